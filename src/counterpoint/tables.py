"""Tables for the terminal: before and after, measures, what a config can name, what it will cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from counterpoint.errors import ConfigError

if TYPE_CHECKING:
    from counterpoint.estimate import Estimate, Rate

COLUMNS = ("accuracy % [95 %]", "first", "corr.", "pres.", "tokens", "calls", "cut off")


def _cells(m: Mapping[str, Any]) -> list[str]:
    def percent(value: float | None) -> str:
        return "-" if value is None else f"{100 * value:.1f}"

    low, high = m["ci95"]
    return [
        f"{percent(m['accuracy'])} [{percent(low)}, {percent(high)}]", percent(m["initial_accuracy"]),
        percent(m["correction"]), percent(m["preservation"]), f"{m['tokens_per_problem']:.0f}",
        f"{m['calls_per_problem']:.2f}", percent(m["truncated"]),
    ]  # fmt: skip


def _table(*first: str) -> Table:
    table = Table(*first, box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    for name in COLUMNS:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def measures(sets: Mapping[str, Mapping[str, Any]]) -> Table:
    """One row a task set: accuracy, first-answer accuracy, correction and preservation in percent; tokens, calls."""
    table = _table("task set")
    for name, m in sets.items():
        table.add_row(name, *_cells(m))
    return table


def before_after(summary: Mapping[str, Any]) -> Table:
    """Untrained, trained, and trained under the other strategy, a task set at a time."""
    table = _table("task set", "team")
    phases = [("untrained", "untrained"), ("eval", "trained")]
    phases += [(key, key[5:]) for key in summary if key.startswith("eval_")]
    for name in summary["eval"]:
        for key, label in phases:
            if name in summary.get(key, {}):
                table.add_row(name, label, *_cells(summary[key][name]))
        table.add_section()
    return table


def catalogue(what: str) -> list[tuple[str, str]]:
    """(name, one line) of everything of a kind."""
    from counterpoint.controllers import controllers
    from counterpoint.methods import methods

    if what == "methods":
        return [(name, _first_line(_module_doc(m))) for name, m in methods().items()]
    if what == "controllers":
        return [(name, _first_line(c.__doc__)) for name, c in controllers().items()]
    if what == "engines":
        from counterpoint.engines import engine_settings

        return [(name, _first_line(kind.__doc__)) for name, kind in engine_settings().items()]
    if what == "configs":
        from counterpoint.settings import packaged_configs

        return [(name, _comment(path)) for name, path in packaged_configs().items()]
    if what == "tasks":
        from counterpoint.tasks.registry import BUNDLED
        from counterpoint.tasks.sets import SETS

        return [(name, "bundled") for name in BUNDLED] + [(name, f"hub: {s.repo}") for name, s in SETS.items()]
    raise ConfigError(f"cannot list {what!r}; choose methods, tasks, engines, controllers or configs")


def _module_doc(thing: Any) -> str | None:
    import sys

    return sys.modules[thing.__module__].__doc__


def _first_line(text: str | None) -> str:
    return (text or "").strip().splitlines()[0]


def _comment(path: Any) -> str:
    first = path.read_text(encoding="utf-8").splitlines()[0]
    return str(first.removeprefix("#").strip()) if first.startswith("#") else ""


def estimated(found: Estimate, rate: Rate, devices: int) -> Table:
    """One row a phase, and the whole: upper bounds of replies and tokens, FLOP, and time."""
    table = Table("phase", box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    for name in ("dialogues", "replies", "prompt tokens", "new tokens", "FLOP", "time"):
        table.add_column(name, justify="right", no_wrap=True)
    total = 0.0
    for phase in found.phases:
        seconds = rate.seconds(found, phase, devices)
        total += seconds
        counts = (phase.dialogues, phase.replies, phase.prompt, phase.new)
        table.add_row(phase.name, *(f"{count:,.0f}" for count in counts), f"{phase.flops:.3g}", _duration(seconds))
    table.add_section()
    played = [p for p in found.phases if not p.learns]
    sums = (sum(getattr(p, name) for p in played) for name in ("dialogues", "replies", "prompt", "new"))
    table.add_row("all (learning reads again)", *(f"{s:,.0f}" for s in sums), f"{found.flops:.3g}", _duration(total))
    return table


def memory_needed(found: Estimate) -> Table:
    """One row a base model: gigabytes on every device."""
    table = Table("memory of a device, GB", box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    for name in ("parameters", "dtype", "weights", "adapters", "KV cache", "activations", "peak"):
        table.add_column(name, justify="right", no_wrap=True)
    for m in found.memory:
        parts = (m.weights, m.adapters, m.cache, m.activations, m.peak)
        shown = ("unknown" if part is None else f"{part / 1e9:,.3g}" for part in parts)
        table.add_row(m.model, f"{m.shape.parameters:,}", m.dtype, *shown)
    return table


def _duration(seconds: float) -> str:
    for unit, size in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:.3g} s"
