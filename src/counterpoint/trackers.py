"""Experiment trackers as one small sink: each step's metrics also go where a person already looks. Off by default.

Nothing here prompts, logs in or uploads: TensorBoard and W&B write into the run directory (`wandb sync` uploads it later),
trackio into its local database.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal

from counterpoint.errors import MissingExtra

Tracker = Literal["tensorboard", "wandb", "trackio"]
Log = Callable[[int, Mapping[str, float]], None]
"""(step, numbers) -> None"""
PROJECT = "counterpoint"


@contextmanager
def open_trackers(
    names: Sequence[Tracker], folder: Path, config: Mapping[str, Any], *, done: int = 0
) -> Iterator[Callable[[int, Mapping[str, Any]], None]]:
    """A function (step, metrics) that feeds every named tracker, all closed at the end; `done` steps are there already."""
    with ExitStack() as stack:
        logs = [stack.enter_context(OPENERS[name](folder, config, done)) for name in dict.fromkeys(names)]

        def log(step: int, metrics: Mapping[str, Any]) -> None:
            numbers = {k: float(v) for k, v in metrics.items() if isinstance(v, int | float) and k != "step"}
            for one in logs:
                one(step, numbers)

        yield log


@contextmanager
def _tensorboard(folder: Path, config: Mapping[str, Any], done: int) -> Iterator[Log]:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise MissingExtra("tensorboard", "trackers", "trackers: tensorboard") from error

    writer: Any = SummaryWriter(str(folder / "tensorboard"), purge_step=done + 1)
    writer.add_text("config", f"```\n{dict(config)}\n```", done)

    def log(step: int, numbers: Mapping[str, float]) -> None:
        for name, value in numbers.items():
            writer.add_scalar(name, value, step)
        writer.flush()

    try:
        yield log
    finally:
        writer.close()


@contextmanager
def _wandb(folder: Path, config: Mapping[str, Any], done: int) -> Iterator[Log]:
    try:
        import wandb
    except ImportError as error:
        raise MissingExtra("wandb", "trackers", "trackers: wandb") from error

    run = wandb.init(
        project=PROJECT,
        name=folder.name,
        dir=str(folder),
        config=dict(config),
        mode="offline",  # no account is asked for, nothing leaves the machine
        settings=wandb.Settings(silent=True),
    )
    try:
        yield lambda step, numbers: run.log(dict(numbers), step=step)
    finally:
        run.finish()


@contextmanager
def _trackio(folder: Path, config: Mapping[str, Any], done: int) -> Iterator[Log]:
    try:
        import trackio
    except ImportError as error:
        raise MissingExtra("trackio", "trackers", "trackers: trackio") from error

    run = trackio.init(
        project=PROJECT,
        name=folder.name,
        config=dict(config),
        resume="allow" if done else "never",
        embed=False,
        auto_log_gpu=False,
        auto_log_cpu=False,
    )
    try:
        yield lambda step, numbers: run.log(dict(numbers), step=step)
    finally:
        run.finish()


OPENERS = {"tensorboard": _tensorboard, "wandb": _wandb, "trackio": _trackio}
