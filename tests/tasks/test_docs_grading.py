"""Every row of the tables in docs/grading.md is true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from counterpoint.records import Task
from counterpoint.tasks.grading import extract, grade, verdict

PAGE = Path(__file__).parents[2] / "docs" / "grading.md"


def rows(cells: int) -> list[tuple[str, ...]]:
    """The body rows of the tables with so many columns, code marks taken off."""
    found = [
        line.strip("|").split("|") for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("|")
    ]
    bare = [tuple(cell.strip().strip("`").replace("⏎", "\n") for cell in row) for row in found if len(row) == cells]
    return [row for row in bare if not re.fullmatch("---+", row[1]) and row[0] not in ("kind", "reply")]


@pytest.mark.parametrize(("kind", "reply", "gold", "read", "outcome"), rows(5))
def test_examples(kind: str, reply: str, gold: str, read: str, outcome: str) -> None:
    answer = extract(kind, reply)  # type: ignore[arg-type]
    assert (answer or "-") == read
    deadline = 0.5 if outcome == "error" else 30
    assert grade(Task("t", "", gold, kind), answer, deadline=deadline) == outcome  # type: ignore[arg-type]


@pytest.mark.parametrize(("reply", "said"), rows(2))
def test_verdicts(reply: str, said: str) -> None:
    assert (verdict(reply) or "-") == said


def test_the_tables_are_found() -> None:
    assert (len(rows(5)), len(rows(2))) == (37, 8)
