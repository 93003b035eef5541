"""LaTeX answers in one canonical spelling, and the comparisons that are certain without algebra."""

from __future__ import annotations

import re
from fractions import Fraction

from counterpoint.tasks.cleaning import LONGEST, clean
from counterpoint.tasks.numbers import literal

_TOKEN = re.compile(r"\\[a-zA-Z]+\*?|\\.|\s+|.", re.DOTALL)
_SIGNS = {
    "π": "\\pi ",
    "∞": "\\infty ",
    "×": "\\times ",
    "·": "\\cdot ",
    "≤": "\\le ",
    "≥": "\\ge ",
    "∪": "\\cup ",
    "√": "\\sqrt ",
}
_POWERS = {"⁰": "0", "¹": "1", "²": "2", "³": "3", "⁴": "4", "⁵": "5", "⁶": "6", "⁷": "7", "⁸": "8", "⁹": "9"}
_TABLE = str.maketrans({**_SIGNS, **{sign: f"^{digit}" for sign, digit in _POWERS.items()}, "°": "^\\circ "})
_NOTHING = {
    "\\left",
    "\\right",
    "\\displaystyle",
    "\\bigl",
    "\\bigr",
    "\\big",
    "\\Bigl",
    "\\Bigr",
    "\\!",
    "\\(",
    "\\)",
    "\\[",
    "\\]",
    "$",
    "\\$",
    "\\limits",
}
_GAPS = {"\\,", "\\;", "\\:", "\\ ", "\\quad", "\\qquad", "~", "\\thinspace"}
_SAME = {
    "\\dfrac": "\\frac",
    "\\tfrac": "\\frac",
    "\\cfrac": "\\frac",
    "\\leq": "\\le",
    "\\geq": "\\ge",
    "\\ne": "\\neq",
    "\\lbrace": "\\{",
    "\\rbrace": "\\}",
}
_WORDY = {"\\text", "\\textbf", "\\textit", "\\textrm", "\\mathrm", "\\mathbf", "\\mbox", "\\operatorname"}

_DEGREES = re.compile(r"\^(?:\\circ(?![a-zA-Z])|\{\\circ\})")
_ALTERNATIVES = re.compile(r"(?<![a-zA-Z\\])(?:or|and|not)(?![a-zA-Z])|\\(?:lor|vee|pm|mp|neq?|not)(?![a-zA-Z])")
_SEVERAL = re.compile(_ALTERNATIVES.pattern + r"|[,;]|\\\{|\\cup")
_UNIT = re.compile(r"\\(?:text|mathrm|mbox|textrm)\{([^{}0-9]*)\}(?:\^(?:[0-9]|\{[0-9]\}))?$")
_WORDS = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mbox)\{([^{}]*)\}")
_SCALE = {"hundred": 100, "thousand": 1_000, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_NUMERIC = re.compile(
    r"(?P<sign>[-+]?)(?:(?P<whole>[0-9]+)?\\frac(?:\{(?P<top>-?[0-9]+)\}|(?P<top1>[0-9]))(?:\{(?P<under>[0-9]+)\}|(?P<under1>[0-9]))"
    r"|(?P<plain>[0-9][0-9,]*(?:\.[0-9]*)?|\.[0-9]+)(?:/(?P<over>[0-9]+))?"
    r"(?:\\(?:times|cdot)10\^(?:\{(?P<power>[-+]?[0-9]{1,3})\}|(?P<power1>[0-9])))?)"
)


def tidy(text: str) -> str:
    """One spelling for what is written alike: no `$`, `\\left`, `\\right`, spacing, degree or percent sign, trailing period.

    Percent and degree signs are units, as "cm" is: "50\\%" is 50 and never 0.5.
    """
    return _unboxed(_DEGREES.sub("", "".join(_kept(clean(text).translate(_TABLE)))).rstrip(" .").strip())


def _kept(text: str) -> list[str]:
    kept: list[str] = []
    gap, invisible = False, False
    for token in _TOKEN.findall(text):
        if token in _NOTHING or token in ("\\%", "%"):
            invisible = token in ("\\left", "\\right")
            gap = gap and token != "\\!"
            continue
        if token.isspace() or token in _GAPS:
            gap = gap or token not in ("\\,", "\\:", "\\;")
            continue
        if invisible and token == ".":  # \left. and \right. draw nothing
            invisible = False
            continue
        token = _SAME.get(token, token)
        if kept and _needs_space(kept[-1], token, gap=gap):
            kept.append(" ")
        kept.append(token)
        gap, invisible = False, False
    return kept


def _needs_space(before: str, token: str, *, gap: bool) -> bool:
    """A control word must not run into a letter; two words, two numbers and the items of a list stay apart."""
    if before[0] == "\\" and before[-1].isalpha():
        return token[0].isalpha()
    return gap and ((before.isalnum() and token.isalnum()) or (before == "," and token.isdigit()))


def _unboxed(text: str) -> str:
    """Without braces around the whole and without \\boxed{}."""
    while text.startswith(("\\boxed{", "{")) and text.endswith("}") and text.count("{") == text.count("}") == 1:
        text = text[text.index("{") + 1 : -1].strip()
    return text


def numeric(tidied: str) -> Fraction | None:
    """The value of a tidied answer when it is plainly one number: 10,000, -\\frac{1}{2}, 1\\frac45, 5\\text{ cm}; else None."""
    unit = _UNIT.search(tidied)
    scale = _SCALE.get(unit[1].strip().lower(), 1) if unit else 1
    body = tidied[: unit.start()].strip() if unit else tidied
    found = _NUMERIC.fullmatch(body) if len(body) <= LONGEST else None
    if found is None:
        return None
    value = _fraction(found) if found["plain"] is None else _plain(found)
    return None if value is None else scale * (-value if found["sign"] == "-" else value)


def _fraction(found: re.Match[str]) -> Fraction | None:
    under = int(found["under"] or found["under1"])
    top = int(found["top"] or found["top1"])
    if under == 0 or (found["whole"] and top < 0):
        return None
    return int(found["whole"] or 0) + Fraction(top, under)


def _plain(found: re.Match[str]) -> Fraction | None:
    top, under = literal(found["plain"]), int(found["over"] or 1)
    power = int(found["power"] or found["power1"] or 0)
    return None if top is None or under == 0 or abs(power) > 300 else top / under * Fraction(10) ** power


def words(tidied: str) -> str | None:
    """The bare words of an answer that is words only ("\\text{Evelyn}", "(C)", "east"), case and spaces aside; else None."""
    text = _WORDS.sub(r"\1", tidied).replace(" ", "").strip("().'\"")
    return text.casefold() if text and text.isalpha() else None


def plain_words(text: str) -> str:
    """`text` with \\text{...}, \\boxed{...} and $ taken off: for letters and words."""
    return re.sub(r"\\boxed\s{0,3}\{|\\[()\[\]]|\$", "", _WORDS.sub(r"\1", clean(text))).strip()


def certain(answer: str, gold: str) -> bool | None:
    """Whether two tidied answers are equal, where that needs no algebra; None where it does."""
    if answer == gold:
        return True
    if not answer or not gold or max(len(answer), len(gold)) > LONGEST:
        return False
    a, g = numeric(answer), numeric(gold)
    if a is not None and g is not None:
        return a == g
    if "\\text" in gold and words(gold) is not None:
        return words(answer) == words(gold)
    return False if _ALTERNATIVES.search(answer) and not _SEVERAL.search(gold) else None
