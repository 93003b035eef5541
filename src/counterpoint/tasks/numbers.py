"""Numbers, exactly: from the words of an answer to one Fraction, or to None where more than one could be meant."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

from counterpoint.tasks.cleaning import LONGEST, clean

LARGEST_EXPONENT = 300  # beyond it a number is unreadable: 1e999999999 must not become an integer of a billion digits

_PLAIN = r"(?:(?:[0-9]{1,3}(?:,[0-9]{2,3})*,[0-9]{3}|[0-9]+)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]{1,9}(?![0-9]))?"
_LITERAL = re.compile(
    rf"(?<![0-9.])(?<![0-9],)(?:(?P<sign>[-+])\s{{0,2}})?(?:[$€£¥₹]\s{{0,2}}(?P<inner>[-+]?))?"
    rf"(?:(?P<whole>[0-9]+)\s+(?P<over>[0-9]+)\s?/\s?(?P<under>[0-9]+)|(?P<top>{_PLAIN})(?:\s?/\s?(?P<bottom>{_PLAIN}))?)"
    r"(?![0-9]|[.,:/][0-9])"
)
SCALE = {"hundred": 100, "thousand": 1_000, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_SCALED = re.compile(r"\s{0,2}(hundred|thousand|million|billion|trillion)\b", re.IGNORECASE)
_GOES_ON = re.compile(r"\s*(?:[-+*/×÷·^,;:~±<>≤≥xX]+|to|or|and|through)?\s*[$€£(]*\s*[-+]?\.?[0-9]|\s*[\^²³\\√]|[kK]\b")
_ASIDE = re.compile(
    r"\b(?:in|of|for|per|on|at|with|from|after|over|by|each|every|within|during|among)\s+[$€£]?$", re.IGNORECASE
)
_SEVERAL = re.compile(r"\b(?:or|and|either|between)\b|[;±]", re.IGNORECASE)
_NEGATED = re.compile(r"\b(?:not|cannot|unknown|no|none|never|less|more|least|most)\b|n't|[≠<>≤≥]", re.IGNORECASE)
_FRAC = re.compile(
    r"\\[dtc]?frac\s{0,2}(?:\{\s{0,2}([-+]?[0-9]+)\s{0,2}\}|([0-9]))\s{0,2}(?:\{\s{0,2}([0-9]+)\s{0,2}\}|([0-9]))"
)
_TEXT = re.compile(r"\\(?:text|textbf|mathrm|mathbf|mbox|textrm)\s?\{([^{}]*)\}")
_DROPPED = re.compile(r"\\[!()\[\]]|\\(?:left|right|displaystyle)(?![a-zA-Z])|\^\s?\{?\s?\\circ\s?\}?|°")
_THIN = re.compile(r"(?<=[0-9])(?:\\[,;: ]|\{,\})(?=[0-9]{3}(?![0-9]))")
_OR_INSIDE = re.compile(r"\(\s{0,2}(?:or|and)\b", re.IGNORECASE)
_BOLD = re.compile(r"\*{1,3}(?!\s{0,2}[0-9(])|[`_]")


@lru_cache(maxsize=65_536)
def literal(text: str) -> Fraction | None:
    """The value of `text` when it is one number and nothing else ("1,234.50", "-3", "1/2", "1 1/2", "1e3")."""
    found = _LITERAL.fullmatch(text.strip()) if len(text) <= LONGEST else None
    return _value(found) if found else None


def canonical(value: Fraction) -> str:
    """The shortest plain form of a number: "18", "2.5" or "1/3"."""
    if value.denominator == 1:
        return str(value.numerator)
    for places in range(1, 31):
        scaled = value * 10**places
        if scaled.denominator == 1:
            digits = f"{abs(scaled.numerator):0{places + 1}d}"
            return f"{'-' if value < 0 else ''}{digits[:-places]}.{digits[-places:]}"
    return f"{value.numerator}/{value.denominator}"


@lru_cache(maxsize=65_536)
def read_number(payload: str) -> Fraction | None:
    """The one number that an answer line states, or None where it states none or several.

    Units, currency and words around it are passed over ("20 apples in 3 boxes" is 20, the leading number); the sides
    of an equation have to agree ("18 = 9 * 2" is 18); "5 or 6", "5-6", "3:30" and "2^3" are not numbers.
    """
    text = _plain(payload)
    if len(text) > LONGEST:
        return None
    numbers = [_value(found) for found in _LITERAL.finditer(text)]
    if None in numbers or (_SEVERAL.search(text) and len(numbers) > 1):
        return None
    sides = {value for side in re.split("=|≈", text) if (value := _side(side)) is not None}
    return sides.pop() if len(sides) == 1 else None


def last_number(text: str) -> Fraction | None:
    """The last number anywhere in `text`: the flexible reading."""
    value = None
    for found in _LITERAL.finditer(_plain(text)):
        value = _value(found)
    return value


def _plain(payload: str) -> str:
    """`payload` without LaTeX and markdown dress, cut at the end of its first sentence and at a parenthesis."""
    text = clean(payload).replace("\\$", "$").replace("\\%", "%").replace("{,}", ",")
    text = text.replace("\\times", "×").replace("\\cdot", "×").replace("\\boxed", "")
    text = _THIN.sub("", _DROPPED.sub("", text))
    text = _TEXT.sub(r" \1 ", text)
    text = _FRAC.sub(lambda m: f" {m[1] or m[2]}/{m[3] or m[4]} ", text)
    text = _BOLD.sub("", text.strip(" \t\n*_`$<>[]{}\"'~")).replace("$$", "$")
    text = re.split(r"\.\s", f"{text} ", maxsplit=1)[0]
    said, opening, _ = text.partition("(") if not _OR_INSIDE.search(text) else (text, "", "")
    return said if opening and any(c.isdigit() for c in said) else text.lstrip("(").rstrip(") ")


def _side(side: str) -> Fraction | None:
    """The number one side of an equation states: the leading one, or the only one behind a few plain words."""
    text = side.strip(" \t*,!\"'<>)(").rstrip("$.%")
    found = _LITERAL.match(text)
    if found is None:
        rest = list(_LITERAL.finditer(text))
        lead = text[: rest[0].start()] if rest else ""
        if len(rest) != 1 or len(lead) > 60 or _NEGATED.search(lead) or not (lead[-1:].isspace() or lead[-1:] == "$"):
            return None
        if lead.rstrip()[-1:] in set("^√*/+-_\\×÷("):
            return None
        found = rest[0]
    value, after = _value(found), text[found.end() :]
    scaled = _SCALED.match(after)
    if value is not None and scaled:
        return value * SCALE[scaled[1].lower()]
    aside = all(_ASIDE.search(after[: other.start()][-40:]) for other in _LITERAL.finditer(after))
    return value if aside and not _GOES_ON.match(after) else None


def _value(found: re.Match[str]) -> Fraction | None:
    if found["sign"] and found["inner"]:
        return None
    sign = -1 if "-" in (found["sign"], found["inner"]) else 1
    if found["whole"]:
        under = int(found["under"])
        return sign * (int(found["whole"]) + Fraction(int(found["over"]), under)) if under else None
    top, bottom = _decimal(found["top"]), _decimal(found["bottom"] or "1")
    return sign * top / bottom if top is not None and bottom else None


def _decimal(text: str) -> Fraction | None:
    mantissa, _, exponent = text.replace(",", "").lower().partition("e")
    if len(mantissa) > LONGEST or len(exponent) > 4 or abs(int(exponent or 0)) > LARGEST_EXPONENT:
        return None
    return Fraction(f"0{mantissa}".rstrip(".")) * Fraction(10) ** int(exponent or 0)
