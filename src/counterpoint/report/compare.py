"""Runs beside each other: paired differences with intervals, and the settings in which they differ."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from counterpoint.algorithms.stats import mcnemar, paired_bootstrap
from counterpoint.report.collect import Collected
from counterpoint.report.runs import flat
from counterpoint.rng import generator


@dataclass(frozen=True, slots=True)
class Difference:
    """Second less first, in accuracy, on the problems both answered."""

    first: str
    second: str
    task_set: str
    seeds: int
    n: int
    mean: float
    low: float
    high: float
    p: float  # McNemar, over all seeds' problems

    @property
    def clear(self) -> bool:
        return self.low > 0 or self.high < 0


def difference(
    first: str, second: str, task_set: str, pairs: Sequence[tuple[Mapping[str, bool], Mapping[str, bool]]]
) -> Difference | None:
    """Paired over problems and seeds; None without a problem that every run answered."""
    common = sorted(set.intersection(*(set(a) & set(b) for a, b in pairs))) if pairs else []
    if not common:
        return None
    before = np.array([[a[task] for task in common] for a, _ in pairs], dtype=np.float64)
    after = np.array([[b[task] for task in common] for _, b in pairs], dtype=np.float64)
    gap = after - before
    mean, low, high = paired_bootstrap(gap, generator(0, "report", first, second, task_set))
    p = mcnemar(int((gap < 0).sum()), int((gap > 0).sum()))
    return Difference(first, second, task_set, len(pairs), len(common), mean, low, high, p)


def gains(collected: Collected) -> list[Difference]:
    """Trained less untrained, a task set at a time."""
    found = []
    for name in collected.sets:
        before, after = collected.tallies.get(("untrained", name)), collected.tallies.get(("eval", name))
        if before and after:
            found.append(difference("untrained", "trained", name, [(before.outcomes, after.outcomes)]))
    return [d for d in found if d is not None]


def between(runs: Sequence[Collected]) -> list[Difference]:
    """Each team less the first one; runs that differ in nothing but their seed are one team."""
    teams: dict[str, list[Collected]] = {}
    for collected in runs:
        config = {k: v for k, v in collected.run.config.items() if k != "seed"}
        teams.setdefault(json.dumps(config, sort_keys=True, default=str), []).append(collected)
    first, *others = teams.values()
    found = []
    for other in others:
        for name in first[0].sets:
            pairs = [(a.tallies.get(("eval", name)), b.tallies.get(("eval", name))) for a, b in _paired(first, other)]
            outcomes = [(a.outcomes, b.outcomes) for a, b in pairs if a and b]
            found.append(difference(_title(first), _title(other), name, outcomes))
    return [d for d in found if d is not None]


def _paired(first: Sequence[Collected], other: Sequence[Collected]) -> list[tuple[Collected, Collected]]:
    """Runs of equal seeds; in the order given where no seed is shared."""
    by_seed = {c.run.config.get("seed"): c for c in other}
    same = [(a, by_seed[a.run.config.get("seed")]) for a in first if a.run.config.get("seed") in by_seed]
    return same or list(zip(first, other, strict=False))


def _title(team: Sequence[Collected]) -> str:
    return team[0].run.label if len(team) == 1 else f"{team[0].run.label} and {len(team) - 1} more seeds"


def config_rows(runs: Sequence[Collected]) -> list[tuple[str, list[str], bool]]:
    """(setting, its value in each run, whether they differ), in the order of the first config."""
    configs = [flat(collected.run.config) for collected in runs]
    keys = list(dict.fromkeys(key for config in configs for key in config))
    rows = []
    for key in keys:
        values = [_shown(config[key]) if key in config else "—" for config in configs]
        rows.append((key, values, len(set(values)) > 1))
    return rows


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
