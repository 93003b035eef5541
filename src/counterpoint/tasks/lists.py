"""Tuples, intervals, sets, unions and matrices of tidied math answers, compared item by item.

The brackets decide what a list is: "(...)" and "[...]" are ordered and must close alike, "\\{...\\}" and unions are not
ordered, and a bare list is read as whichever the other side is.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from counterpoint.tasks.certainty import certain

MOST = 64  # items; a longer list is left whole to the worker

_MATRIX = re.compile(r"\\begin\{([bpvBV]?)matrix\}(.*)\\end\{\1matrix\}", re.DOTALL)
_BRACKET = re.compile(r"\\[a-zA-Z]+|\\.|[()\[\]{},]|[^\\()\[\]{},]+", re.DOTALL)
_MEMBER = re.compile(r"[a-zA-Z]\\in(?![a-zA-Z])\s?")


@dataclass(frozen=True, slots=True)
class Items:
    """A list: its form (its brackets; "set", "union", "bare", or a matrix with its size) and its items."""

    form: str
    parts: tuple[str, ...]

    @property
    def unordered(self) -> bool:
        """Whether the order of the items says nothing."""
        return self.form in ("set", "union", "bare")


@dataclass(frozen=True, slots=True)
class Open:
    """What algebra has still to decide: that these are equal, pair by pair or as sets."""

    answers: tuple[str, ...]
    golds: tuple[str, ...]
    ordered: bool


def decide(answer: str, gold: str) -> bool | Open:
    """Whether two tidied answers are equal, or what algebra has still to decide."""
    known = _known(answer, gold)
    if known is not None:
        return known
    a, g = items(answer), items(gold)
    if a is None or g is None:
        return Open((answer,), (gold,), ordered=True)
    return Open(a.parts, g.parts, ordered=not (a.unordered and g.unordered))


def items(tidied: str) -> Items | None:
    """The items of a list of at least two, of a union or of a matrix; None for anything else."""
    text = _MEMBER.sub("", tidied, count=1) if _MEMBER.match(tidied) else tidied
    matrix = _MATRIX.fullmatch(text)
    if "\\pm" in text or "\\mp" in text:
        return None
    if matrix:
        rows = [row.split("&") for row in re.split(r"\\\\", matrix[2].strip()) if row.strip()]
        sign = "determinant" if matrix[1] in ("v", "V") else "matrix"
        sizes = ",".join(str(len(row)) for row in rows)
        return _listed(f"{sign} {sizes}", [cell for row in rows for cell in row])
    if "\\cup" in text:
        return _listed("union", _split(text, "\\cup"))
    if text.startswith("\\{") and text.endswith("\\}"):
        return _listed("set", _split(text[2:-2], ","))
    if text.startswith(("(", "[")) and text.endswith((")", "]")):
        inner = _split(text[1:-1], ",")
        if inner:
            return _listed(text[0] + text[-1], inner)
    return _listed("bare", _split(text, ","))


def _listed(form: str, parts: list[str]) -> Items | None:
    return Items(form, tuple(part.strip() for part in parts)) if 2 <= len(parts) <= MOST else None


def _split(text: str, separator: str) -> list[str]:
    """`text` at every `separator` outside brackets; nothing where a bracket closes that was not opened."""
    parts, depth = [""], 0
    for token in _BRACKET.findall(text):
        depth += (token in ("(", "[", "{", "\\{")) - (token in (")", "]", "}", "\\}"))
        if depth < 0:
            return []
        if token == separator and depth == 0:
            parts.append("")
        else:
            parts[-1] += token
    return parts


def _known(answer: str, gold: str) -> bool | None:
    """`certain`, extended to lists of things that are certain."""
    known = certain(answer, gold)
    if known is not None:
        return known
    a, g = items(answer), items(gold)
    if a is None or g is None:
        return None
    if a.unordered and g.unordered:
        return _same_set(a.parts, g.parts, _known)
    if a.form != g.form and "bare" not in (a.form, g.form):
        return False
    if len(a.parts) != len(g.parts):
        return False
    return _all([_known(x, y) for x, y in zip(a.parts, g.parts, strict=True)])


def _same_set(answers: tuple[str, ...], golds: tuple[str, ...], same: Callable[[str, str], bool | None]) -> bool | None:
    found = [[same(x, y) for y in golds] for x in answers]
    columns = [list(column) for column in zip(*found, strict=True)]
    return _all([_any(row) for row in (*found, *columns)])


def _all(known: list[bool | None]) -> bool | None:
    return False if False in known else None if None in known else True


def _any(known: list[bool | None]) -> bool | None:
    return True if True in known else None if None in known else False
