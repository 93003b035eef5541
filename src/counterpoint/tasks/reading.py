"""Where in a reply its answer stands: the last "Final answer:" line, \\boxed{} or "#### " line, and what it says.

Every scan is linear: patterns have bounded repeats and run on the last 64 Ki characters only.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from counterpoint.records import Kind
from counterpoint.tasks import latex
from counterpoint.tasks.cleaning import LONGEST, spoken
from counterpoint.tasks.numbers import canonical, last_number, read_number

Mode = Literal["strict", "flexible"]

_DRESS = r"[*_`\"]{0,3}"
_MARKER = re.compile(
    rf"final[ _\t]{{1,3}}answer{_DRESS}[ \t]{{0,3}}(?:[:=]|-(?=[ \t])|is\b[ \t]{{0,2}}:?){_DRESS}"
    rf"|^[ \t>*_#`-]{{0,6}}answer{_DRESS}[ \t]{{0,2}}:{_DRESS}|(?P<hash>^[ \t]{{0,3}}####(?!#))",
    re.IGNORECASE | re.MULTILINE,
)
_BRACE = re.compile(r"(?P<box>\\f?box(?:ed)?\s{0,9}\{)|\\.|(?P<open>\{)|(?P<close>\})", re.DOTALL)
_BETWEEN = re.compile(r"[\s$.,;()\\\]\[]{0,9}(?:or|and)?[\s$()\\\]\[]{0,9}", re.IGNORECASE)
_LETTER = re.compile(
    r"[\s*_`$\"'\[{<(]{0,9}(?:(?i:option|choice|letter|answer)\b[\s:]{0,3})?([\s*_`\[{<(]{0,3})([A-Ja-j])(?![A-Za-z0-9])"
)
_ANOTHER = re.compile(r"(?:[,;/&+|]|\b(?:or|and)\b)[\s*_`$(]{0,4}(?i:option|choice)?[\s(]{0,2}[A-J](?![A-Za-z0-9])")
_NEXT_LETTER = re.compile(r"[.)\]]{0,2}[A-J](?![A-Za-z0-9])|[\s.)]{1,3}[B-HJ](?![A-Za-z0-9'])")
_LONE_LETTER = re.compile(r"(?<![A-Za-z0-9])(?:\(([A-J])\)|([B-HJ])(?![A-Za-z0-9'])|(A)(?![A-Za-z0-9']| [a-z]))")
_DOLLARS = re.compile(r"(?<!\\)\$([^$]{1,1000})(?<!\\)\$")
_OR = re.compile(r"\b(?:or|and)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Box:
    """One \\boxed{...}: where it starts and ends, and its content, None when its brace never closes."""

    start: int
    end: int
    content: str | None


def extract(kind: Kind, reply: str, *, mode: Mode = "strict") -> str | None:
    """The answer a reply gives, or None when it is unreadable.

    `strict` reads the last of "Final answer: X", "Answer: X" (at a line's start), \\boxed{X} and "#### X"; several
    different answers in one place are unreadable. `flexible` then falls back on the last number, letter or line.
    """
    text = spoken(reply)
    answer = _strict(kind, text)
    if answer is None and mode == "flexible":
        answer = _flexible(kind, text)
    return answer if answer and len(answer) <= LONGEST else None


def boxes(text: str) -> list[Box]:
    """Every outermost \\boxed{...} of `text`, in order, in one pass; one that never closes has no content."""
    first = text.find("\\boxed")
    first = text.find("\\fbox") if first < 0 else first
    if first < 0:
        return []
    found: list[Box] = []
    stack: list[tuple[int, int] | None] = []  # open braces; those of a box with its start and the start of its content
    for token in _BRACE.finditer(text, first):
        if token["box"]:
            stack.append((token.start(), token.end()))
        elif token["open"]:
            stack.append(None)
        elif token["close"] and stack and (box := stack.pop()):
            while found and found[-1].start > box[0]:
                found.pop()  # a box within this one
            found.append(Box(box[0], token.end(), text[box[1] : token.start()]))
    found += [Box(start, len(text), None) for start, _ in filter(None, stack)]
    return sorted(found, key=lambda box: box.start)


def _strict(kind: Kind, text: str) -> str | None:
    read = _READERS[kind]
    read_line = _math_line if kind == "math" else read
    boxed = boxes(text)
    best: tuple[int, str | None] = (-1, None)
    for marker in _last_first(text):
        payload = _payload(text, marker.end(), block=kind == "text")
        answer = read_line(payload)
        sure = not marker["hash"] and not marker[0].rstrip(" \t*_`:").lower().endswith("is")
        if marker["hash"] and answer is not None and not _whole(kind, payload):
            answer = None  # a heading ("#### Step 3"), not an answer
        start = text.find(payload, marker.end()) if payload else marker.end()
        inside = [box for box in boxed if start <= box.start < start + len(payload)]
        if inside:
            return _agreed(read, inside) if inside[-1] is boxed[-1] else _agreed(read, _group(text, boxed))
        if sure or answer is not None:
            best = (marker.start(), answer)
            break
    if boxed and boxed[-1].start > best[0]:
        return _agreed(read, _group(text, boxed))
    return best[1]


def _last_first(text: str) -> list[re.Match[str]]:
    return list(_MARKER.finditer(text))[:-9:-1]  # the last eight, the last one first


def _payload(text: str, start: int, *, block: bool) -> str:
    """The rest of the line, or, when that is empty, the next line (for `block`: all lines up to an empty one)."""
    own, _, following = text[start : start + 4 * LONGEST].partition("\n")
    if own.strip(" \t*_`$"):
        return own.strip()
    if block:
        return following.lstrip("\n").partition("\n\n")[0].strip()
    return next((line.strip() for line in following.split("\n", 4)[:3] if line.strip(" \t*_`$")), "")


def _group(text: str, boxed: list[Box]) -> list[Box]:
    """The last box with those before it that only "or", "and" or a comma parts from it."""
    group = [boxed[-1]]
    for box in boxed[-2:-10:-1]:
        if not _BETWEEN.fullmatch(text[box.end : group[0].start][:40]):
            break
        group.insert(0, box)
    return group


def _agreed(read: Callable[[str], str | None], group: list[Box]) -> str | None:
    answers = {None if box.content is None else read(box.content) for box in group}
    return answers.pop() if len(answers) == 1 else None


def _whole(kind: Kind, payload: str) -> bool:
    """Whether a "####" line is an answer rather than a heading."""
    if kind == "text":
        return True
    return not re.search(r"(?<!\\)\b[A-Za-z]{4,}|^\s*[0-9]+[.)]\s+\S", re.sub(r"\\[a-zA-Z]+", "", payload))


def _number(payload: str) -> str | None:
    value = read_number(payload)
    if value is None:
        return None
    text = canonical(value)
    return text if len(text) <= LONGEST else None


def _math_line(payload: str) -> str | None:
    return _math(re.split(r"\.\s", payload, maxsplit=1)[0])


def _math(payload: str) -> str | None:
    if len(payload) > LONGEST:
        return None
    text = payload.strip(" \t\n*`")
    inside = {latex.tidy(part) for part in _DOLLARS.findall(text)} if "$" in text.strip("$") else set()
    if len(inside) == 1 and not _OR.search(_DOLLARS.sub("", text)):
        return inside.pop() or None
    if len(inside) > 1 or (_OR.search(text) and "\\text" not in text):
        return None
    return latex.tidy(text) or None


def _choice(payload: str) -> str | None:
    text = latex.plain_words(payload[: 2 * LONGEST])
    found = _LETTER.match(text)
    if found is None:
        return None
    letter, rest = found[2], text[found.end() :]
    bare = not rest.strip(" *_`$.)]}>\"'\n")
    if _NEXT_LETTER.match(rest) or _ANOTHER.match(rest.lstrip(" *_`$.)]}>")) or _ANOTHER.search(rest[:80]):
        return None
    if bare or rest[:1] in set(".):,;]}*") or "(" in found[1]:
        return letter.upper()
    prose = rest[:1] == " " and letter in "AI" and not re.match(r" (?:because|since|as|is)\b|\s*[-(]", rest)
    return None if letter.islower() or prose or "'" in rest[:1] else letter


def _text(payload: str) -> str | None:
    return latex.plain_words(payload[: 2 * LONGEST]).strip(" \t\n*_`$\"'<>.") or None


def _flexible(kind: Kind, text: str) -> str | None:
    if kind in ("number", "math"):
        value = last_number(text)
        return None if value is None else canonical(value)
    if kind == "choice":
        letters = ["".join(filter(None, found)) for found in _LONE_LETTER.findall(text)]
        return letters[-1] if letters else None
    lines = [line for line in text.splitlines() if line.strip()]
    return _text(lines[-1]) if lines else None


_READERS: dict[Kind, Callable[[str], str | None]] = {"number": _number, "math": _math, "choice": _choice, "text": _text}
