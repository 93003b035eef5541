"""How a task set is asked for: a plain string, or a mapping with these keys."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import Field, ValidationError

from counterpoint.errors import ConfigError
from counterpoint.records import Kind
from counterpoint.settings import Settings, explain


class Columns(Settings):
    """Which column holds what; an unnamed one is looked for under its usual names."""

    question: str | None = None
    """Question text; usually question, problem, prompt or query."""
    answer: str | None = None
    """Gold answer; for choices a letter, an index from 0, or an option's text. Usually answer, gold or final_answer."""
    choices: str | None = None
    """Options in order: a list, or a mapping from letters. Usually choices or options."""
    incorrect: tuple[str, ...] = ()
    """Columns of wrong options; `answer` then holds the right option's text and all are shuffled by the question."""
    context: str | None = None
    """Text put before the question."""
    id: str | None = None
    """Unique name of the row; usually id or unique_id, else the row's number."""
    kind: str | None = None
    """Kind of each row, where a set mixes them; usually kind."""


class TaskSource(Settings):
    """A task set and how to read it."""

    source: str
    """A named set; jsonl:PATH, csv:, parquet:, arrow: or a bare path; hf:OWNER/NAME::CONFIG, ms: alike; rg:NAME."""
    name: str | None = None
    """Name in ids, files and tables; the source's own when absent."""
    path: str | None = None
    """For a named set: a local copy (a file, or a folder with one file a split), read with its columns and counts."""
    split: str | None = None
    """Split to take, whatever is asked for."""
    columns: Columns = Columns()
    """Column map."""
    kind: Kind | None = None
    """How answers are compared: number, math, choice or text; found from the golds where that is certain."""
    gold_pattern: str | None = None
    """Regular expression whose first group, at its last match, is the gold inside the answer column."""
    limit: int | None = Field(default=None, ge=1)
    """Take only the first so many tasks."""
    size: int = Field(default=500, ge=1)
    """For rg: how many tasks to draw."""
    seed: int = 0
    """For rg: root of the draw; train and test never share a seed."""
    options: dict[str, bool | int | float | str] = Field(default_factory=dict)
    """For rg: settings of the generator."""

    @property
    def label(self) -> str:
        """The set's name, safe as a file name."""
        return re.sub(r"[^A-Za-z0-9._-]+", "-", self.name or self.source).strip("-.")


def read_spec(spec: str | Mapping[str, Any] | TaskSource) -> TaskSource:
    """The settings of a spec; a ConfigError says what is wrong with it."""
    if isinstance(spec, TaskSource):
        return spec
    try:
        return TaskSource.model_validate({"source": spec} if isinstance(spec, str) else dict(spec))
    except ValidationError as error:
        raise ConfigError(f"task set {spec!r}: {explain(error, TaskSource)}") from error
