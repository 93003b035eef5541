"""Rows to tasks: the column map applied, golds taken out, options put in an order fixed by the question."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from counterpoint.errors import DataError
from counterpoint.prompts import LETTERS
from counterpoint.records import Kind, Task
from counterpoint.tasks.numbers import literal
from counterpoint.tasks.sources import Row
from counterpoint.tasks.spec import Columns

_USUAL = {
    "question": ("question", "problem", "prompt", "query"),
    "answer": ("answer", "gold", "final_answer"),
    "choices": ("choices", "options"),
    "id": ("id", "unique_id"),
    "kind": ("kind",),
}


def tasks_from(
    rows: Sequence[Row], *, columns: Columns, prefix: str, kind: Kind | None, gold_pattern: str | None
) -> list[Task]:
    """One task a row, ids "PREFIX/ROW"; a row that cannot be read is a DataError that names it."""
    names = _found(columns, rows[0])
    golds = [_gold(row, names["answer"] or "", gold_pattern) for row in rows]
    every = kind or _kind_of_all(rows, names, golds, columns)
    tasks = [
        _task(row, gold, names, columns, prefix, every, i)
        for i, (row, gold) in enumerate(zip(rows, golds, strict=True))
    ]
    seen: dict[str, str] = {}
    for row, task in zip(rows, tasks, strict=True):
        if task.id in seen:
            raise DataError(f"{row.where}: id {task.id!r} occurs twice, first at {seen[task.id]}")
        seen[task.id] = row.where
    return tasks


def _found(columns: Columns, row: Row) -> dict[str, str | None]:
    """The column of each field: the one named, else the first usual name that the set has."""
    names = {field: getattr(columns, field) for field in (*_USUAL, "context")}
    for field, usual in _USUAL.items():
        if names[field] is None and not (field == "choices" and columns.incorrect):
            names[field] = next((name for name in usual if name in row.values), None)
    for field in ("question", "answer"):
        if names[field] is None:
            raise DataError(
                f"{row.where}: no column for the {field} among {', '.join(map(str, row.values))}; "
                f"name it with columns: {{{field}: NAME}}"
            )
    return names


def _cell(row: Row, column: str) -> Any:
    if row.values.get(column) is None:
        raise DataError(
            f"{row.where}: column {column!r} is missing or empty; columns: {', '.join(map(str, row.values))}"
        )
    return row.values[column]


def _gold(row: Row, column: str, pattern: str | None) -> str:
    gold = str(_cell(row, column)).strip()
    if pattern is not None:
        found = re.findall(pattern, gold)
        if not found:
            raise DataError(f"{row.where}: gold_pattern {pattern!r} does not occur in {gold[-60:]!r}")
        gold = str(found[-1]).strip()
    if not gold:
        raise DataError(f"{row.where}: the gold answer is empty")
    return gold


def _kind_of_all(
    rows: Sequence[Row], names: Mapping[str, str | None], golds: list[str], columns: Columns
) -> Kind | None:
    """None where each row says its kind; choice where there are options; number where every gold is a plain number."""
    if names["kind"] is not None:
        return None
    if names["choices"] is not None or columns.incorrect:
        return "choice"
    if all(literal(gold) is not None for gold in golds):
        return "number"
    odd = next(row.where for row, gold in zip(rows, golds, strict=True) if literal(gold) is None)
    raise DataError(f"{odd}: the gold answer is not a plain number; say how to compare: kind: math, text or choice")


def _task(
    row: Row,
    gold: str,
    names: Mapping[str, str | None],
    columns: Columns,
    prefix: str,
    kind: Kind | None,
    index: int,
) -> Task:
    question = str(_cell(row, names["question"] or "")).strip()
    if not question:
        raise DataError(f"{row.where}: the question is empty")
    if kind is None:
        kind = _cell(row, names["kind"] or "")
        if kind not in get_args(Kind):
            raise DataError(f"{row.where}: unknown kind {kind!r}; known: {', '.join(get_args(Kind))}")
    if names["context"] is not None:
        question = f"{str(_cell(row, names['context'])).strip()}\n\n{question}"
    choices: tuple[str, ...] = ()
    if kind == "choice":
        choices, gold = _choices(row, gold, question, names, columns)
    name = str(_cell(row, names["id"])) if names["id"] is not None else str(index)
    answer = gold.replace(",", "") if kind == "number" else gold
    return Task(f"{prefix}/{name.replace('#', '_')}", question, answer, kind, choices)


def _choices(
    row: Row, gold: str, question: str, names: Mapping[str, str | None], columns: Columns
) -> tuple[tuple[str, ...], str]:
    """The options in their order and the gold one's letter."""
    if columns.incorrect:
        options = [gold, *(str(_cell(row, column)).strip() for column in columns.incorrect)]
        order = shuffled(question, len(options))
        return tuple(options[i] for i in order), LETTERS[order.index(0)]
    if names["choices"] is None:
        raise DataError(f"{row.where}: kind choice needs a column of options; name it with columns: {{choices: NAME}}")
    letters, options = _options(row, _cell(row, names["choices"]))
    if gold.upper() in letters:
        return tuple(options), LETTERS[letters.index(gold.upper())]
    if gold.isascii() and gold.isdigit() and gold not in options and int(gold) < len(options):
        return tuple(options), LETTERS[int(gold)]
    if options.count(gold) == 1:
        return tuple(options), LETTERS[options.index(gold)]
    raise DataError(f"{row.where}: the gold {gold!r} is no letter, index or text of the {len(options)} options")


def _options(row: Row, value: Any) -> tuple[list[str], list[str]]:
    """The letters and texts of the options: of a list, of {"A": text}, or of {"label": [...], "text": [...]}."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise DataError(f"{row.where}: options given as text must be a JSON list, got {value[:60]!r}") from error
    letters = list(LETTERS)
    if isinstance(value, Mapping) and {"label", "text"} <= set(value):
        letters, value = [str(label).upper() for label in value["label"]], value["text"]
    elif isinstance(value, Mapping):
        given = {str(key).upper(): text for key, text in value.items() if text is not None}
        letters, value = sorted(given), [given[key] for key in sorted(given)]
    if not isinstance(value, list | tuple) or not 2 <= len(value) <= len(LETTERS):
        raise DataError(f"{row.where}: expected 2 to {len(LETTERS)} options, got {value!r:.80}")
    return letters[: len(value)], [str(option).strip() for option in value]


def shuffled(question: str, count: int) -> list[int]:
    """An order of `count` options that is a function of the question alone: sorted by sha256 of question and number."""
    return sorted(range(count), key=lambda i: hashlib.sha256(f"{question}\x1f{i}".encode()).digest())
