"""Methods x task sets x seeds under one accounting: run what is missing, then one table with intervals.

A comparison is a YAML file: settings that all entries share, and one group of settings an entry. Every (entry, seed) is an
ordinary run directory OUT/ENTRY/seedK; a finished one is not run again, an unfinished one is resumed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import Field, ValidationError, field_validator

from counterpoint.algorithms.stats import (
    mcnemar,
    paired_bootstrap,
    paired_sample_size,
    pareto_front,
    stratified_bootstrap,
)
from counterpoint.config import Config, read_yaml, validate
from counterpoint.errors import ConfigError
from counterpoint.evaluate import measure, right_answers
from counterpoint.progress import Progress
from counterpoint.ranks import ALONE, Ranks
from counterpoint.rng import generator
from counterpoint.settings import Settings, explain, packaged_configs
from counterpoint.store import Store, read_episodes, write_text
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
    method: str = ""
    spent: tuple[Mapping[str, int], ...] = ()  # new tokens of training by what for, one a seed

    def mean(self, key: str) -> float | None:
        """Mean over the seeds of a measure; None where no seed has it."""
        values = [m[key] for m in self.measures if m.get(key) is not None]
        return float(np.mean(values)) if values else None

    @property
    def tokens(self) -> float:
        """Tokens a problem, read and written."""
        return self.mean("tokens_per_problem") or 0.0

    @property
    def calls(self) -> float:
        """Requests a problem."""
        return self.mean("calls_per_problem") or 0.0


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


def compare(comparison: Comparison, out: Path, *, progress: Progress, jobs: int = 1, ranks: Ranks = ALONE) -> str:
    """Run everything that is not on disk, `jobs` runs side by side; returns the Markdown also written to OUT/table.md."""
    if jobs > 1 and ranks.world > 1:
        raise ConfigError(f"--jobs {jobs} is for one process; under torchrun every run has all {ranks.world} of them")
    runs = [(entry, seed) for seed in range(comparison.seeds) for entry in comparison.entries]
    missing = [run for run in runs if not Store(_folder(out, *run)).summary_file.exists()]
    if jobs == 1:
        for entry, seed in ranks.told(lambda: missing, "what is on disk"):
            progress.say(f"== {entry}, seed {seed}")
            _run(comparison, out, entry, seed, progress, ranks)
    else:
        _side_by_side(comparison, out, missing, progress, jobs)
    ranks.agree({"entries": list(comparison.entries)}, "the last summary")
    text = table(comparison, collect(comparison, out))
    if ranks.first:
        write_text(out / "table.md", text)
    return text


def _folder(out: Path, entry: str, seed: int) -> Path:
    return out / entry / f"seed{seed}"


def _run(
    comparison: Comparison,
    out: Path,
    entry: str,
    seed: int,
    progress: Progress | None = None,
    ranks: Ranks = ALONE,
) -> None:
    folder = _folder(out, entry, seed)
    resume = (folder / "config.yaml").exists()
    train(comparison.config(entry, seed), folder, resume=resume, progress=progress, ranks=ranks)


def _side_by_side(
    comparison: Comparison, out: Path, missing: Sequence[tuple[str, int]], progress: Progress, jobs: int
) -> None:
    """Each run in a process of its own, with its share of the cores."""
    share = max(1, (os.cpu_count() or 1) // jobs)
    with ProcessPoolExecutor(
        jobs, mp_context=get_context("spawn"), initializer=torch.set_num_threads, initargs=(share,)
    ) as pool:
        futures = {pool.submit(_run, comparison, out, entry, seed): (entry, seed) for entry, seed in missing}
        for future in as_completed(futures):
            future.result()
            entry, seed = futures[future]
            progress.say(f"== {entry}, seed {seed}: done")


def collect(comparison: Comparison, out: Path) -> list[Cell]:
    """What the runs of a comparison measured; the measures are taken again from the episodes, whenever they were played."""
    cells = []
    for entry in comparison.entries:
        folders = [_folder(out, entry, seed) for seed in range(comparison.seeds)]
        summaries = [json.loads(Store(f).summary_file.read_text(encoding="utf-8")) for f in folders]
        method = comparison.config(entry, 0).method
        spent = tuple(s.get("cost", {}).get("train", {}).get("tokens", {}) for s in summaries)
        for name in summaries[0]["eval"]:
            played = [sorted(read_episodes(Store(f).eval_file("eval", name)), key=lambda e: e.id) for f in folders]
            measures = tuple(s["eval"][name] | measure(method, e) for s, e in zip(summaries, played, strict=True))
            right = np.stack([right_answers(episodes) for episodes in played])
            cells.append(Cell(entry, name, right, measures, method.name, spent))
    return cells


def table(comparison: Comparison, cells: Sequence[Cell]) -> str:
    """Markdown: for each task set accuracies, then what they cost and did, then equal budgets; all sets; training."""
    reference = comparison.reference or next(iter(comparison.entries))
    parts = []
    for name in dict.fromkeys(cell.task_set for cell in cells):
        own = [cell for cell in cells if cell.task_set == name]
        parts.append(f"### {name}\n\n{_rows(own, reference)}\n{_power(own, reference)}\n\n{_details(own)}\n")
        parts += _equal_budget(own)
    return "\n".join([*parts, *_all_sets(cells, reference), *_training(cells)])


COLUMNS = (
    "entry", "accuracy % [95 %]", "difference to {} [95 %]", "McNemar p", "first answer", "correction", "preservation",
    "tokens", "calls", "cut off", "front",
)  # fmt: skip


def _rows(cells: Sequence[Cell], reference: str) -> str:
    base = next(cell for cell in cells if cell.entry == reference)
    tokens = np.array([c.tokens for c in cells], dtype=np.float64)
    front = pareto_front(tokens, np.array([c.right.mean() for c in cells]))
    rows = []
    for index, cell in enumerate(cells):
        mean, low, high = _interval(cell.right, cell)
        values = [cell.entry, f"{100 * mean:.1f} [{100 * low:.1f}, {100 * high:.1f}]", *_against(cell, base)]
        values += [_percent(cell.mean(key)) for key in ("initial_accuracy", "correction", "preservation")]
        values += [f"{cell.tokens:.0f}", f"{cell.calls:.2f}"]
        values += [_percent(cell.mean("truncated")), "*" if front[index] else ""]
        rows.append(values)
    return _markdown([name.format(reference) for name in COLUMNS], rows)


def _interval(values: np.ndarray, cell: Cell) -> tuple[float, float, float]:
    return paired_bootstrap(values, generator(0, "compare", cell.entry, cell.task_set), resamples=4000)


def _against(cell: Cell, base: Cell) -> list[str]:
    """Difference to the reference, problem by problem and seed by seed; McNemar on the first seed's problems."""
    if cell is base:
        return ["", ""]
    difference = _points(_interval(cell.right - base.right, cell))
    first, other = cell.right[0], base.right[0]
    p = mcnemar(int(((first == 1) & (other == 0)).sum()), int(((first == 0) & (other == 1)).sum()))
    return [difference, f"{p:.3f}"]


DETAILS = {
    "prompt tokens": "prompt_tokens_per_problem", "new tokens": "completion_tokens_per_problem", "harm %": "harm",
    "verdicts right %": "verdict_accuracy", "changed %": "changed", "unreadable %": "unreadable",
}  # fmt: skip


def _details(cells: Sequence[Cell]) -> str:
    """Tokens apart; harm, verdicts (balanced: of right and of wrong answers alike), and what came after the first turn."""
    rows = []
    for cell in cells:
        values = {head: cell.mean(key) for head, key in DETAILS.items()}
        rows.append([cell.entry, *(_percent(v) if h.endswith("%") else f"{v or 0:.0f}" for h, v in values.items())])
    return _markdown(["entry", *DETAILS], rows)


def _equal_budget(cells: Sequence[Cell]) -> list[str]:
    """Every entry against the self-consistency nearest to it in tokens a problem."""
    votes = [cell for cell in cells if cell.method == "self_consistency"]
    others = [cell for cell in cells if cell.method != "self_consistency"]
    if not votes or not others:
        return []
    rows = []
    for cell in others:
        near = min(votes, key=lambda vote: abs(vote.tokens - cell.tokens))
        difference = _points(_interval(cell.right - near.right, cell))
        rows.append([cell.entry, f"{cell.tokens:.0f}", near.entry, f"{near.tokens:.0f}", difference])
    head = ["entry", "tokens", "nearest self-consistency", "its tokens", "difference to it [95 %]"]
    return [f"Equal budget, as near as the entries come to it:\n\n{_markdown(head, rows)}\n"]


def _all_sets(cells: Sequence[Cell], reference: str) -> list[str]:
    """The mean over the task sets that every entry was measured on, each set counting the same."""
    by_entry: dict[str, dict[str, Cell]] = {}
    for cell in cells:
        by_entry.setdefault(cell.entry, {})[cell.task_set] = cell
    names = [name for name in by_entry[reference] if all(name in own for own in by_entry.values())]
    if len(names) < 2:
        return []
    rows = []
    for entry, own in by_entry.items():
        right, base = [own[n].right for n in names], [by_entry[reference][n].right for n in names]
        mean, low, high = _mean_interval(right, entry)
        apart = [a - b for a, b in zip(right, base, strict=True)]
        difference = "" if entry == reference else _points(_mean_interval(apart, entry))
        tokens = float(np.mean([own[n].tokens for n in names]))
        calls = float(np.mean([own[n].calls for n in names]))
        accuracy = f"{100 * mean:.1f} [{100 * low:.1f}, {100 * high:.1f}]"
        rows.append([entry, accuracy, difference, f"{calls:.2f}", f"{tokens:.0f}"])
    head = ["entry", "accuracy % [95 %]", f"difference to {reference} [95 %]", "calls", "tokens"]
    return [f"### all sets\n\nMean of {', '.join(names)}.\n\n{_markdown(head, rows)}\n"]


def _mean_interval(sets: Sequence[np.ndarray], entry: str) -> tuple[float, float, float]:
    return stratified_bootstrap(sets, generator(0, "compare", entry, "all sets"), resamples=4000)


SPENT = ("trajectory", "candidates", "counterfactual")


def _training(cells: Sequence[Cell]) -> list[str]:
    """New tokens of training by what they were for, mean over the seeds."""
    rows = []
    for entry, spent in {cell.entry: cell.spent for cell in cells}.items():
        means = [float(np.mean([tokens.get(kind, 0) for tokens in spent])) if spent else 0.0 for kind in SPENT]
        rows.append([entry, *(f"{mean:,.0f}" for mean in [*means, sum(means)])])
    return [f"### training, new tokens of a run\n\n{_markdown(['entry', *SPENT, 'all'], rows)}\n"]


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|", *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(lines)


def _points(interval: tuple[float, float, float]) -> str:
    mean, low, high = (100 * value for value in interval)
    return f"{mean:+.1f} [{low:+.1f}, {high:+.1f}]"


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
