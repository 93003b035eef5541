"""Follows a run in the terminal by reading its files: how far it is, how it goes, what its controllers do."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from counterpoint.report.runs import Run, open_run, phase_title
from counterpoint.store import Store, whole_lines

BARS = "▁▂▃▄▅▆▇█"
SHOWN = (
    "accuracy", "initial_accuracy", "reward/", "reward_std/", "zero_signal/", "speak/", "learn/clip_fraction/",
    "truncated/", "calls_per_problem",
)  # fmt: skip


def watch(
    root: Path, *, console: Console, once: bool = False, every: float = 2.0, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Redraw until the run has its summary; `once` draws one frame and returns."""
    run = open_run(root)
    if once or run.summary:
        console.print(frame(run, time.time()))
        return
    with Live(frame(run, time.time()), console=console, auto_refresh=False) as live:
        while not run.summary:
            sleep(every)
            run = open_run(root)
            live.update(frame(run, time.time()), refresh=True)


def frame(run: Run, now: float) -> RenderableType:
    """One picture of a run at the time `now`."""
    total = int(run.config.get("steps", 0))
    head = Text.assemble(
        (run.label, "bold"), f"   {run.config['method'].get('name')}   {run.status}   {_activity(run, now)}"
    )
    parts: list[RenderableType] = [head]
    if total:
        parts.append(Padding(ProgressBar(total=total, completed=run.done, width=60)))
    parts.append(Text(_doing(run)))
    if run.metrics:
        parts.append(_curves(run.metrics))
    controllers = _controllers(run)
    if controllers is not None:
        parts.append(controllers)
    if run.summary.get("eval"):
        from counterpoint.tables import before_after

        parts.append(before_after({"untrained": {}, **run.summary}))
    parts += [Text(f"note: {note}", "yellow") for note in run.notes]
    return Group(*parts)


def _activity(run: Run, now: float) -> str:
    """When anything was last written: an unfinished run that has long been silent was probably stopped."""
    files = [p for pattern in ("*.jsonl", "*/*.jsonl") for p in run.root.glob(pattern)]
    newest = max((p.stat().st_mtime for p in files), default=None)
    if newest is None or run.summary:
        return ""
    quiet = max(0, int(now - newest))
    return f"last written {quiet} s ago" + (": stopped?" if quiet > 600 else "")


def _doing(run: Run) -> str:
    """The step or the evaluation that is being played."""
    files = run.train_files()
    if files and files[-1][0] > run.done:
        step, path = files[-1]
        lines = whole_lines(path)
        mains = sum(line.endswith('"fork":null}') for line in lines)
        forks = len(lines) - mains
        return f"step {step}: {mains} of {run.config.get('dialogues', '?')} dialogues played, {forks} counterfactuals"
    parts = []
    for phase, sets in run.phases().items():
        for name, path in sets.items():
            with path.open("rb") as file:
                parts.append(f"{phase_title(phase)} {name} {sum(1 for _ in file)}")
    return "evaluated: " + ", ".join(parts) if parts else "nothing played yet"


def _curves(metrics: Sequence[dict[str, Any]]) -> Table:
    table = Table("measure", "last", "so far", box=None, pad_edge=False)
    for key in sorted({k for line in metrics for k in line if k.startswith(SHOWN)}):
        values = [float(line[key]) for line in metrics if isinstance(line.get(key), int | float)]
        if values:
            table.add_row(key, f"{values[-1]:.3f}", sparkline(values[-40:]))
    return table


def sparkline(values: Sequence[float]) -> str:
    """Bars from the smallest to the largest value; nan is left out."""
    kept = [v for v in values if v == v]
    low, high = min(kept, default=0.0), max(kept, default=0.0)
    span = (high - low) or 1.0
    return "".join(BARS[round((v - low) / span * (len(BARS) - 1))] for v in kept)


def _controllers(run: Run) -> Table | None:
    """The newest checkpoint's strategies."""
    newest = Store(run.root).newest_checkpoint()
    if newest is None or not (newest[1] / "controllers.json").is_file():
        return None
    saved = json.loads((newest[1] / "controllers.json").read_text(encoding="utf-8"))
    table = Table(
        "controller",
        "state",
        "visits",
        "p(speak)",
        title=f"after step {newest[0]}",
        title_justify="left",
        box=None,
        pad_edge=False,
    )
    for name, controller in run.method.controllers(run.agents).items():
        if name in saved:
            controller.load_state_dict(saved[name])
            for state, report in controller.report().items():
                p = 1 - report["strategy"][0]
                table.add_row(name, state, str(report.get("visits", "")), Text(f"{p:.2f} {'█' * round(10 * p)}"))
    return table if table.row_count else None
