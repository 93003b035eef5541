"""Grade a file of replies: people check their own data with it (`counterpoint grade FILE.jsonl`)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from rich.table import Table

from counterpoint.errors import DataError
from counterpoint.records import Kind, Task
from counterpoint.tasks.grading import Mode, Outcome, extract, grade
from counterpoint.tasks.sources import Row, file_rows


@dataclass(frozen=True, slots=True)
class Counts:
    """How many replies of each kind had each outcome, and where the graded rows were written."""

    by_kind: Mapping[str, Mapping[Outcome, int]]
    out: Path

    def total(self, outcome: Outcome) -> int:
        """Replies with one outcome, over all kinds."""
        return sum(counts[outcome] for counts in self.by_kind.values())


def grade_file(path: Path, out: Path | None = None, mode: Mode = "strict") -> Counts:
    """Grade each row (reply, gold, kind) and write it with `answer` and `outcome` to FILE.graded.jsonl, or to `out`."""
    rows = file_rows(path, "test")
    out = out or path.with_suffix(".graded.jsonl")
    if out.resolve() == path.resolve():
        raise DataError(f"{out}: the graded rows would overwrite the file they are read from; give another --out")
    counts: dict[str, Counter[Outcome]] = {}
    tasks = [_task(row) for row in rows]  # every row is checked before one is graded
    with out.open("w", encoding="utf-8") as lines:
        for row, task in zip(rows, tasks, strict=True):
            answer = extract(task.kind, row.values["reply"], mode=mode)
            outcome = grade(task, answer)
            counts.setdefault(task.kind, Counter())[outcome] += 1
            graded = {**row.values, "answer": answer, "outcome": outcome}
            lines.write(json.dumps(graded, ensure_ascii=True) + "\n")
    return Counts(dict(sorted(counts.items())), out)


def table(counts: Counts) -> Table:
    """The four outcomes by kind, with the share of right ones."""
    outcomes: tuple[Outcome, ...] = get_args(Outcome)
    shown = Table("kind", "replies", *outcomes, "right %", title="Grading")
    for column in shown.columns[1:]:
        column.justify = "right"
    for kind, found in counts.by_kind.items():
        shown.add_row(kind, *_cells([found[outcome] for outcome in outcomes]))
    if len(counts.by_kind) > 1:
        shown.add_section()
        shown.add_row("all", *_cells([counts.total(outcome) for outcome in outcomes]))
    return shown


def _cells(numbers: list[int]) -> list[str]:
    total = sum(numbers)
    return [str(total), *map(str, numbers), f"{100 * numbers[0] / total:.1f}"]


def _task(row: Row) -> Task:
    for column in ("reply", "gold", "kind"):
        if row.values.get(column) is None:
            raise DataError(f"{row.where}: column {column!r} is missing; every row needs reply, gold and kind")
    if not isinstance(row.values["reply"], str):
        raise DataError(f"{row.where}: reply must be text, got {type(row.values['reply']).__name__}")
    kind = row.values["kind"]
    if kind not in get_args(Kind):
        raise DataError(f"{row.where}: unknown kind {kind!r}; known: {', '.join(get_args(Kind))}")
    return Task(row.where, "", str(row.values["gold"]), kind)
