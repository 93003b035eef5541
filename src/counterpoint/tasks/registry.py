"""The one entry point to task sets: `load_tasks(spec, split)`, and the check of their golds before training."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from counterpoint.errors import ConfigError, DataError
from counterpoint.records import Task
from counterpoint.tasks.grading import grade, grade_reply
from counterpoint.tasks.rows import tasks_from
from counterpoint.tasks.sets import SETS, NamedSet
from counterpoint.tasks.sources import READERS, Row, file_rows, hub_rows, modelscope_rows
from counterpoint.tasks.spec import TaskSource, read_spec

BUNDLED = ("mini-gsm", "mini-math", "mini-choice")


def load_tasks(spec: str | Mapping[str, Any] | TaskSource, split: str) -> Sequence[Task]:
    """The tasks of a set; never those of another set in its place, never none."""
    settings = read_spec(spec)
    split = settings.split or split
    if settings.source in BUNDLED:
        tasks: Sequence[Task] = _bundled(settings.source, split)
    elif settings.source in SETS:
        tasks = _named(settings, SETS[settings.source], split)
    elif settings.source.startswith("rg:"):
        from counterpoint.tasks.gym import gym_tasks

        tasks = gym_tasks(settings, split)
    else:
        tasks = _tasks(settings, _rows(settings, split), split)
    return tasks[: settings.limit]


def set_names() -> tuple[str, ...]:
    """The names that `load_tasks` knows, apart from paths and hub addresses."""
    return (*BUNDLED, *SETS)


def check_golds(tasks: Sequence[Task]) -> tuple[list[Task], list[Task]]:
    """(kept, failed): a task is kept when a reply that states its gold answer would be graded right."""
    kept: list[Task] = []
    failed: list[Task] = []
    for task in tasks:
        (kept if _gold_holds(task) else failed).append(task)
    return kept, failed


def _gold_holds(task: Task) -> bool:
    if (
        task.kind == "choice"
        and not task.scorer
        and ord(task.answer[:1] or "@") - ord("A") not in range(len(task.choices))
    ):
        return False
    if task.scorer:
        return not task.answer or grade(task, task.answer) == "right"  # some puzzles come without a solution
    stated = f"\\boxed{{{task.answer}}}" if task.kind == "math" else task.answer
    return grade_reply(task, f"Final answer: {stated}") == "right"


def _bundled(name: str, split: str) -> Sequence[Task]:
    from counterpoint.tasks.mini import MiniSet

    if split not in ("train", "test"):
        raise ConfigError(f"task set {name} has the splits train and test, not {split!r}")
    return MiniSet(name).load("train" if split == "train" else "test")


def _named(settings: TaskSource, known: NamedSet, split: str) -> list[Task]:
    if split not in known.counts:
        raise DataError(f"task set {settings.source} has no split {split!r}, only {', '.join(known.counts)}")
    if settings.path is not None:
        rows = file_rows(_existing(settings.path), split)
    else:
        hub_split = known.hub_splits.get(split, split)
        rows = hub_rows(known.repo, known.config, hub_split, name=settings.label, revision=known.revision)
    if len(rows) != known.counts[split]:
        raise DataError(
            f"task set {settings.source}, split {split}: expected {known.counts[split]} rows, got {len(rows)}; "
            f"read a part or another version as jsonl:PATH or hf:{known.repo}"
        )
    columns = settings.columns.model_copy(
        update={field: value for field, value in known.columns if field not in settings.columns.model_fields_set}
    )
    return tasks_from(
        rows,
        columns=columns,
        prefix=f"{settings.label}/{split}",
        kind=settings.kind or known.kind,
        gold_pattern=settings.gold_pattern or known.gold_pattern,
    )


def _tasks(settings: TaskSource, rows: Sequence[Row], split: str) -> list[Task]:
    return tasks_from(
        rows,
        columns=settings.columns,
        prefix=f"{settings.label}/{split}",
        kind=settings.kind,
        gold_pattern=settings.gold_pattern,
    )


def _rows(settings: TaskSource, split: str) -> list[Row]:
    scheme, colon, rest = settings.source.partition(":")
    if colon and scheme in ("hf", "ms"):
        repo, _, config = rest.partition("::")
        read = hub_rows if scheme == "hf" else modelscope_rows
        return read(repo, config or None, split, name=settings.source)
    if colon and f".{scheme}" in READERS:
        return file_rows(_existing(rest), split)
    path = Path(settings.source).expanduser()
    if path.suffix in READERS or path.is_dir():
        return file_rows(_existing(settings.source), split)
    near = difflib.get_close_matches(settings.source, set_names(), n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(set_names())}"
    raise ConfigError(
        f"unknown task set {settings.source!r}; {hint} Or jsonl:PATH, hf:OWNER/NAME, ms:OWNER/NAME, rg:NAME"
    )


def _existing(path: str) -> Path:
    found = Path(path).expanduser()
    if not found.exists():
        raise DataError(f"{path}: no such file or folder")
    return found
