"""Comparisons of tidied math answers that are certain without algebra: same spelling, plain numbers, plain words."""

from __future__ import annotations

import re
from fractions import Fraction

from counterpoint.tasks.cleaning import LONGEST
from counterpoint.tasks.latex import without_text
from counterpoint.tasks.numbers import LARGEST_EXPONENT, SCALE, literal

_ALTERNATIVES = re.compile(r"(?<![a-zA-Z\\])(?:or|and|not)(?![a-zA-Z])|\\(?:lor|vee|pm|mp|neq?|not)(?![a-zA-Z])")
_SEVERAL = re.compile(_ALTERNATIVES.pattern + r"|[,;]|\\\{|\\cup")
_UNIT = re.compile(r"\\(?:text|mathrm|mbox|textrm)\{([^{}0-9]*)\}(?:\^(?:[0-9]|\{[0-9]\}))?$")
_BASED = re.compile(r"([0-9]+)_(?:\{([0-9]+)\}|([0-9]+))")
_NUMERIC = re.compile(
    r"(?P<sign>[-+]?)(?:"
    r"(?P<whole>[0-9]+)?\\frac(?:\{(?P<top>-?[0-9]+)\}|(?P<top1>[0-9]))(?:\{(?P<under>[0-9]+)\}|(?P<under1>[0-9]))"
    r"|(?P<plain>[0-9][0-9,]*(?:\.[0-9]*)?|\.[0-9]+)(?:/(?P<over>[0-9]+))?"
    r"(?:\\(?:times|cdot)10\^(?:\{(?P<power>[-+]?[0-9]{1,3})\}|(?P<power1>[0-9])))?)"
)


def certain(answer: str, gold: str) -> bool | None:
    """Whether two tidied answers are equal, where that needs no algebra; None where it does."""
    if answer == gold:
        return True
    if not answer or not gold or max(len(answer), len(gold)) > LONGEST or answer.count("{") != answer.count("}"):
        return False
    a, g = numeric(answer), numeric(gold)
    if a is not None and g is not None:
        return a == g
    if "\\text" in gold and words(gold) is not None:
        return words(answer) == words(gold)
    if _BASED.fullmatch(gold) or _BASED.fullmatch(answer):
        return _equal_in_base(answer, gold)
    return False if _contradicts_itself(answer, gold) else None


def numeric(tidied: str) -> Fraction | None:
    """The value of a tidied answer that is plainly one number (10,000; \\frac{1}{2}; 5\\text{ cm}), else None."""
    unit = _UNIT.search(tidied)
    if unit and _ALTERNATIVES.search(unit[1]):
        return None
    body = tidied[: unit.start()].strip() if unit else tidied
    found = _NUMERIC.fullmatch(body) if len(body) <= LONGEST else None
    if found is None:
        return None
    value = _fraction(found) if found["plain"] is None else _plain(found)
    scale = SCALE.get(unit[1].strip().lower(), 1) if unit else 1
    return None if value is None else scale * (-value if found["sign"] == "-" else value)


def words(tidied: str) -> str | None:
    """The bare words of an answer of words only ("\\text{Evelyn}", "(C)"), case and spaces aside; else None."""
    text = without_text(tidied).replace(" ", "").strip("().'\"")
    return text.casefold() if text and text.isalpha() else None


def _fraction(found: re.Match[str]) -> Fraction | None:
    under = int(found["under"] or found["under1"])
    top = int(found["top"] or found["top1"])
    if under == 0 or (found["whole"] and top < 0):
        return None
    return int(found["whole"] or 0) + Fraction(top, under)


def _plain(found: re.Match[str]) -> Fraction | None:
    top, under = literal(found["plain"]), int(found["over"] or 1)
    power = int(found["power"] or found["power1"] or 0)
    if top is None or under == 0 or abs(power) > LARGEST_EXPONENT:
        return None
    return top / under * Fraction(10) ** power


def _equal_in_base(answer: str, gold: str) -> bool:
    """Digits in a stated base: equal when digits and base are; only an answer may leave the base out."""
    a, g = _BASED.fullmatch(answer), _BASED.fullmatch(gold)
    if g is None:
        return False
    return answer == g[1] if a is None else (a[1], a[2] or a[3]) == (g[1], g[2] or g[3])


def _contradicts_itself(answer: str, gold: str) -> bool:
    """Whether it names several answers where the gold names one: "5 \\text{ or } 6", "5 = 6"."""
    if _ALTERNATIVES.search(answer) and not _SEVERAL.search(gold):
        return True
    sides = [value for side in answer.split("=") if (value := numeric(side.strip())) is not None]
    return len(set(sides)) > 1
