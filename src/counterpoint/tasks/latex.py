"""LaTeX answers in one canonical spelling."""

from __future__ import annotations

import re

from counterpoint.tasks.cleaning import clean

_TOKEN = re.compile(r"\\[a-zA-Z]+\*?|\\.|\s+|.", re.DOTALL)
_SIGNS = {"π": "pi", "∞": "infty", "×": "times", "·": "cdot", "≤": "le", "≥": "ge", "∪": "cup", "√": "sqrt"}
_SUPERSCRIPTS = {sign: f"^{digit}" for digit, sign in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")}
_TABLE = str.maketrans({**{sign: f"\\{name} " for sign, name in _SIGNS.items()}, **_SUPERSCRIPTS, "°": "^\\circ "})

_DELIMITER = {"\\left", "\\right", "\\bigl", "\\bigr", "\\big", "\\Bigl", "\\Bigr"}
_NOTHING = _DELIMITER | {"\\displaystyle", "\\limits", "\\(", "\\)", "\\[", "\\]", "$", "\\$", "%", "\\%"}
_THIN = {"\\,", "\\;", "\\:", "\\thinspace"}
_WIDE = {"\\ ", "\\quad", "\\qquad", "~"}
_FRACTIONS = dict.fromkeys(("\\dfrac", "\\tfrac", "\\cfrac"), "\\frac")
_SAME = _FRACTIONS | {"\\leq": "\\le", "\\geq": "\\ge", "\\ne": "\\neq", "\\lbrace": "\\{", "\\rbrace": "\\}"}

_DEGREES = re.compile(r"\^(?:\\circ(?![a-zA-Z])|\{\\circ\})")
_WORDS = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mbox)\s?\{([^{}]*)\}")


def tidy(text: str) -> str:
    """One spelling for what is written alike: without `$`, `\\left`, `\\right`, spacing and trailing period.

    Percent and degree signs are units, as "cm" is: "50\\%" is 50 and never 0.5.
    """
    return _unboxed(_DEGREES.sub("", "".join(_kept(clean(text).translate(_TABLE)))).rstrip(" .").strip())


def without_text(text: str) -> str:
    """`text` with every \\text{...} replaced by its words."""
    return _WORDS.sub(r"\1", text)


def plain_words(text: str) -> str:
    """`text` with \\text{...}, \\boxed{...} and $ taken off: for letters and words."""
    return re.sub(r"\\boxed\s{0,3}\{|\\[()\[\]]|\$", "", without_text(clean(text))).strip()


def _kept(text: str) -> list[str]:
    """The tokens that count, with single spaces where leaving them out would join two words, numbers or list items."""
    kept: list[str] = []
    gap, glued, delimiter = False, False, False
    for token in _TOKEN.findall(text):
        if token in _NOTHING:
            delimiter = token in _DELIMITER
        elif token == "\\!":
            glued = True
        elif token.isspace() or token in _WIDE:
            gap = True
        elif delimiter and token == ".":  # \left. and \right. draw nothing
            delimiter = False
        elif token not in _THIN:
            token = _SAME.get(token, token)
            if kept and _parted(kept[-1], token, gap=gap and not glued):
                kept.append(" ")
            kept.append(token)
            gap, glued, delimiter = False, False, False
    return kept


def _parted(before: str, token: str, *, gap: bool) -> bool:
    if before[0] == "\\" and before[-1].isalpha():
        return token[0].isalpha()
    return gap and ((before.isalnum() and token.isalnum()) or (before == "," and token.isdigit()))


def _unboxed(text: str) -> str:
    """Without a \\boxed{} or braces around the whole."""
    while text.startswith(("\\boxed{", "{")) and text.endswith("}") and text.count("{") == text.count("}") == 1:
        text = text[text.index("{") + 1 : -1].strip()
    return text
