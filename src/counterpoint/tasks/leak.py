"""Whether a text gives a task's answer away, and a text without the places where answers are stated."""

from __future__ import annotations

import re

from counterpoint.records import Task
from counterpoint.tasks.numbers import literal
from counterpoint.tasks.reading import boxes

PASSES = 4  # taking a box out may bring another together
_ANSWER_LINE = re.compile(r"^[^\n]{0,40}\bfinal[ \t]{1,3}answer\b[^\n]*\n?", re.IGNORECASE | re.MULTILINE)
_NUMBER = re.compile(r"(?<![\w.])-?\d{1,30}(?:,\d{3}){0,9}(?:\.\d{1,30})?(?:/\d{1,30})?(?!\w|[.,]\d)")


def without_answer(text: str) -> str:
    """`text` without any \\boxed{...} (braces balanced; one that never closes ends the text) or "Final answer" line."""
    for _ in range(PASSES):
        found = boxes(text)
        if not found:
            break
        ends = [0, *(box.end for box in found)]
        starts = [*(box.start for box in found), len(text)]
        text = "".join(text[a:b] for a, b in zip(ends, starts, strict=True))
    return _ANSWER_LINE.sub("", text).strip()


def states_answer(task: Task, text: str) -> bool:
    """Whether the gold answer stands in `text` as a whole number, word or expression (for choices: letter or option).

    A coincidence counts too (a number of the question that happens to be the answer), so compare rates, not zero.
    """
    gold = task.answer.strip()
    if not gold:
        return False
    if task.kind == "choice":
        place = ord(gold[0]) - ord("A")
        option = task.choices[place] if place in range(len(task.choices)) else ""
        return _letter(gold, text) or (bool(option) and _states(option, text))
    return _states(gold, text)


def _states(gold: str, text: str) -> bool:
    value = literal(gold)
    if value is not None:
        return any(literal(found) == value for found in _NUMBER.findall(text))
    squeezed = " ".join(gold.casefold().split())
    return _whole(re.escape(squeezed), " ".join(text.casefold().split()))


def _letter(letter: str, text: str) -> bool:
    """The letter as an answer; "A" and "I" before a lower-case word are words."""
    word = r"(?![ ][a-z])" if letter in "AI" else ""
    return _whole(re.escape(letter) + word, text)


def _whole(pattern: str, text: str) -> bool:
    return re.search(rf"(?<![A-Za-z0-9_]){pattern}(?![A-Za-z0-9_'])", text) is not None
