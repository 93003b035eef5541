"""Methods x task sets x seeds under one accounting: run what is missing, then one table with intervals.

A comparison is a YAML file: settings that all entries share, and one group of settings an entry. Every (entry, seed) is an
ordinary run directory OUT/ENTRY/seedK; a finished one is not run again, an unfinished one is resumed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field, ValidationError, field_validator

from counterpoint.algorithms.stats import mcnemar, paired_bootstrap, paired_sample_size, pareto_front
from counterpoint.config import Config, read_yaml, validate
from counterpoint.errors import ConfigError
from counterpoint.progress import Progress
from counterpoint.ranks import Ranks
from counterpoint.rng import generator
from counterpoint.settings import Settings, explain, packaged_configs
from counterpoint.store import Store, read_episodes, write_text
from counterpoint.tasks.grading import grade
from counterpoint.train import train


class Comparison(Settings):
    """What is compared with what."""

    seeds: int = Field(default=3, ge=1)
    """Runs of every entry, with seeds 0, 1, ..."""
    reference: str = ""
    """Entry that all others are compared with, problem by problem; the first when empty."""
    shared: dict[str, Any] = Field(default_factory=dict)
    """Settings of all entries."""
    entries: dict[str, dict[str, Any]]
    """Settings of each entry, on top of the shared ones; a group of settings replaces the shared group key by key."""

    @field_validator("entries")
    @classmethod
    def _some(cls, value: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        if not value:
            raise ValueError("a comparison has at least one entry, got none")
        return value

    def config(self, entry: str, seed: int) -> Config:
        """The settings of one run."""
        data = _merged(self.shared, self.entries[entry]) | {"seed": seed}
        return validate(data, where=f"entry {entry!r}")


@dataclass(frozen=True, slots=True)
class Cell:
    """One entry on one task set, all seeds together."""

    entry: str
    task_set: str
    right: np.ndarray  # [K seeds, P problems] 0 or 1
    measures: tuple[Mapping[str, Any], ...]  # one a seed

    def mean(self, key: str) -> float | None:
        """Mean over the seeds of a measure; None where no seed has it."""
        values = [m[key] for m in self.measures if m[key] is not None]
        return float(np.mean(values)) if values else None


def load_comparison(source: str | Path) -> Comparison:
    """Read and check a comparison, every entry's settings included."""
    data = read_yaml(source, packaged_configs("comparisons"))
    try:
        comparison = Comparison.model_validate(data)
    except ValidationError as error:
        raise ConfigError(f"{source}: {explain(error, Comparison)}") from error
    for entry in comparison.entries:
        comparison.config(entry, 0)
    if comparison.reference and comparison.reference not in comparison.entries:
        raise ConfigError(
            f"{source}: reference {comparison.reference!r} is not an entry: {', '.join(comparison.entries)}"
        )
    return comparison


def compare(comparison: Comparison, out: Path, *, progress: Progress, ranks: Ranks | None = None) -> str:
    """Run everything that is not on disk; returns the Markdown that is also written to OUT/table.md."""
    ranks = ranks or Ranks()
    for seed in range(comparison.seeds):
        for entry in comparison.entries:
            folder = out / entry / f"seed{seed}"
            if Store(folder).summary_file.exists():
                continue
            progress.say(f"== {entry}, seed {seed}")
            resume = (folder / "config.yaml").exists()
            train(comparison.config(entry, seed), folder, resume=resume, progress=progress, ranks=ranks)
    ranks.agree({"entries": list(comparison.entries)}, "the last summary")
    text = table(comparison, collect(comparison, out))
    if ranks.first:
        write_text(out / "table.md", text)
    return text


def collect(comparison: Comparison, out: Path) -> list[Cell]:
    """What the runs of a comparison measured."""
    cells = []
    for entry in comparison.entries:
        folders = [out / entry / f"seed{seed}" for seed in range(comparison.seeds)]
        summaries = [json.loads(Store(f).summary_file.read_text(encoding="utf-8")) for f in folders]
        for name in summaries[0]["eval"]:
            right = np.stack([_right(Store(f).eval_file("eval", name)) for f in folders])
            cells.append(Cell(entry, name, right, tuple(s["eval"][name] for s in summaries)))
    return cells


def _right(path: Path) -> np.ndarray:
    episodes = sorted(read_episodes(path), key=lambda e: e.task.id)
    return np.array([grade(e.task, e.answer) == "right" for e in episodes], dtype=np.float64)


def table(comparison: Comparison, cells: Sequence[Cell]) -> str:
    """One Markdown table a task set, and one over all sets."""
    reference = comparison.reference or next(iter(comparison.entries))
    parts = []
    for name in dict.fromkeys(cell.task_set for cell in cells):
        own = [cell for cell in cells if cell.task_set == name]
        parts.append(f"### {name}\n\n{_rows(own, reference)}\n{_power(own, reference)}\n")
    return "\n".join(parts)


COLUMNS = (
    "entry", "accuracy % [95 %]", "difference to {} [95 %]", "McNemar p", "first answer", "correction", "preservation",
    "tokens", "calls", "cut off", "front",
)  # fmt: skip


def _rows(cells: Sequence[Cell], reference: str) -> str:
    base = next(cell for cell in cells if cell.entry == reference)
    tokens = np.array([c.mean("tokens_per_problem") for c in cells], dtype=np.float64)
    front = pareto_front(tokens, np.array([c.right.mean() for c in cells]))
    lines = [f"| {' | '.join(COLUMNS).format(reference)} |", "|---" * len(COLUMNS) + "|"]
    for index, cell in enumerate(cells):
        mean, low, high = _interval(cell.right, cell)
        values = [cell.entry, f"{100 * mean:.1f} [{100 * low:.1f}, {100 * high:.1f}]", *_against(cell, base)]
        values += [_percent(cell.mean(key)) for key in ("initial_accuracy", "correction", "preservation")]
        values += [f"{cell.mean('tokens_per_problem'):.0f}", f"{cell.mean('calls_per_problem'):.2f}"]
        values += [_percent(cell.mean("truncated")), "*" if front[index] else ""]
        lines.append(f"| {' | '.join(values)} |")
    return "\n".join(lines)


def _interval(values: np.ndarray, cell: Cell) -> tuple[float, float, float]:
    return paired_bootstrap(values, generator(0, "compare", cell.entry, cell.task_set), resamples=4000)


def _against(cell: Cell, base: Cell) -> list[str]:
    """Difference to the reference, problem by problem and seed by seed; McNemar on the first seed's problems."""
    if cell is base:
        return ["", ""]
    mean, low, high = _interval(cell.right - base.right, cell)
    first, other = cell.right[0], base.right[0]
    p = mcnemar(int(((first == 1) & (other == 0)).sum()), int(((first == 0) & (other == 1)).sum()))
    return [f"{100 * mean:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]", f"{p:.3f}"]


def _power(cells: Sequence[Cell], reference: str) -> str:
    """How many problems a difference of two points would need, at the disagreement seen here."""
    base = next(cell for cell in cells if cell.entry == reference)
    others = [c for c in cells if c is not base]
    if not others:
        return ""
    disagreement = float(np.mean([np.abs(c.right - base.right).mean() for c in others]))
    needed = paired_sample_size(0.02, max(disagreement, 0.02))
    return (
        f"\nEntries and reference disagree on {100 * disagreement:.0f} % of problems on average: a difference of 2 points "
        f"needs {needed:,} problems (5 % two-sided, 80 % power, one seed); here are {base.right.size:,}."
    )


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` on top of `base`; groups with the same name are merged, unless they name different things."""
    merged = dict(base)
    for key, value in over.items():
        inner = merged.get(key)
        if (
            isinstance(inner, Mapping)
            and isinstance(value, Mapping)
            and value.get("name", inner.get("name")) == inner.get("name")
        ):
            merged[key] = _merged(inner, value)
        else:
            merged[key] = value
    return merged
