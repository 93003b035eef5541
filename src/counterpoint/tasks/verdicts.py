"""A reviewer's reply read as one verdict: right, wrong, or None where it says neither or both."""

from __future__ import annotations

import re
from typing import Literal

from counterpoint.tasks.cleaning import spoken

Verdict = Literal["right", "wrong"]

_WORD = r"(?P<word>right|wrong|correct|incorrect)"
_LABEL = re.compile(r"(?:final\s{1,3})?verdict(?:\s{1,3}is)?[\s*_`:=\"'([<-]{1,8}(?P<rest>[^\n]{0,200})", re.IGNORECASE)
_LEADING = re.compile(
    r"(?:\\boxed\{|[\s*_`\"'(\[<>#]){0,9}(?:[0-9]{1,2}[.)]\s{0,3})?[*_`\"'(\[<]{0,5}(?P<no>not\s{1,3})?"
    rf"{_WORD}(?![A-Za-z])",
    re.IGNORECASE,
)
_POLAR = re.compile(
    r"(?P<no>\b(?:not|n't|never)\s{1,3}|n't\s{1,3})?(?<![a-z])(?P<word>right|wrong|correct|incorrect)", re.IGNORECASE
)
_SENTENCE = re.compile(
    r"\b(?:answer|solution|result|reasoning|it|this|that)(?:\s(?:is|was|looks|seems)|'s|\sisn't)\s(?P<no>not\s)?"
    r"(?:also\s|indeed\s|clearly\s|therefore\s)?(?P<word>right|wrong|correct|incorrect)(?![A-Za-z])(?!\s(?:angle|triangle|side|hand))",
    re.IGNORECASE,
)


def verdict(reply: str) -> Verdict | None:
    """The verdict of a reply: its last "Verdict: X"; else X opening its first or last line; else what sentences say.

    X is RIGHT, CORRECT, WRONG or INCORRECT in any case. A line that says both, or two lines that disagree, say neither.
    """
    text = spoken(reply)
    labels = [
        label
        for label in _LABEL.finditer(text)
        if _leading(label["rest"], loose=True) is not None or _both(label["rest"])
    ]
    if labels:
        return None if _both(labels[-1]["rest"]) else _leading(labels[-1]["rest"], loose=True)
    lines = [line for line in text.split("\n") if line.strip()]
    if not lines:
        return None
    opening = {line: _leading(line) for line in (lines[0], lines[-1])}
    if any(_LEADING.match(line) and _both(line) for line in opening):
        return None
    stated = {said for said in opening.values() if said}
    if not stated:
        stated = {_flip(found["word"], negated=_denies(found)) for found in _SENTENCE.finditer(text)}
    return stated.pop() if len(stated) == 1 else None


def _leading(line: str, *, loose: bool = False) -> Verdict | None:
    """The verdict a line opens with; not where the word only begins a sentence ("Right triangles have ...")."""
    found = _LEADING.match(line)
    if found is None:
        return None
    rest = line[found.end() :].lstrip("*_`\"')]}> \t")
    plain = not rest or rest[0] in ".,:;!-–—" or found["word"].isupper() or loose
    return _flip(found["word"], negated=found["no"] is not None) if plain else None


def _both(line: str) -> bool:
    """Whether a line speaks for both sides."""
    said = {_flip(found["word"], negated=found["no"] is not None) for found in _POLAR.finditer(line)}
    return len(said) > 1


def _denies(found: re.Match[str]) -> bool:
    return found["no"] is not None or "isn't" in found[0].lower()


def _flip(word: str, *, negated: bool) -> Verdict:
    return "right" if (word.lower() in ("right", "correct")) != negated else "wrong"
