"""What a person sees while a run goes on: a bar, a line a step, warnings that stay; silent when told to be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar


class Progress:
    """Prints to a rich console; `quiet` keeps warnings only, `silent` nothing."""

    def __init__(self, *, quiet: bool = False, silent: bool = False, console: Console | None = None) -> None:
        self.quiet = quiet or silent
        self.console = console or Console(stderr=True, quiet=silent)
        self.rewards: dict[str, list[float]] = {}
        self._bar: Bar | None = None
        self._task: Any = None

    def say(self, text: str) -> None:
        if not self.quiet:
            self.console.print(text, markup=False, highlight=False)

    def warn(self, text: str) -> None:
        self.console.print(f"warning: {text}", style="yellow", markup=False, highlight=False)

    @contextmanager
    def training(self, total: int, done: int) -> Iterator[None]:
        """A bar over training steps, with time left."""
        columns = (
            TextColumn("training"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        with Bar(*columns, console=self.console, disable=self.quiet, transient=True) as bar:
            self._bar, self._task = bar, bar.add_task("training", total=total, completed=done)
            yield
            self._bar = None

    def step(self, step: int, steps: int, metrics: Mapping[str, Any], tokens_per_second: float) -> None:
        if self._bar is not None:
            self._bar.update(self._task, completed=step)
        rewards = " ".join(f"{k[7:]} {v:+.2f}" for k, v in metrics.items() if k.startswith("reward/"))
        self.say(
            f"step {step:>3}/{steps}  accuracy {metrics['accuracy']:.3f} (first {metrics['initial_accuracy']:.3f})  "
            f"reward {rewards}  calls {metrics['calls_per_problem']:.2f}  {tokens_per_second:,.0f} tokens/s"
        )

    @contextmanager
    def counting(self, label: str, total: int) -> Iterator[Callable[[int], None]]:
        """A bar over the dialogues of one evaluation."""
        columns = (TextColumn(label), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        with Bar(*columns, console=self.console, disable=self.quiet, transient=True) as bar:
            task = bar.add_task(label, total=total)
            yield lambda count: bar.advance(task, count)

    def measured(self, phase: str, name: str, m: Mapping[str, Any]) -> None:
        low, high = m["ci95"]
        self.say(
            f"{phase:<12} {name:<12} accuracy {m['accuracy']:.3f} [{low:.3f}, {high:.3f}]  "
            f"first {m['initial_accuracy']:.3f}  tokens {m['tokens_per_problem']:.0f}  calls {m['calls_per_problem']:.2f}"
        )

    def fallen(self, name: str, value: float, limit: float) -> float | None:
        """How far the mean of the last five values lies under the best such mean, when that is more than `limit`."""
        values = self.rewards.setdefault(name, [])
        values.append(value)
        means = [sum(values[i - 5 : i]) / 5 for i in range(5, len(values) + 1)]
        gap = max(means) - means[-1] if means else 0.0
        return gap if gap > limit else None
