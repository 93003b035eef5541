"""One training step: play, play the forks, credit, learn, update the controllers; metrics and warnings of it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from counterpoint.controllers import Controller
from counterpoint.dialogue import Credit
from counterpoint.evaluate import measure
from counterpoint.play import Job, fork_jobs, play, play_shared
from counterpoint.records import ActionValues, Episode, Task
from counterpoint.rng import generator
from counterpoint.run import Played, Run


def take_step(run: Run) -> dict[str, Any]:
    """Step number `run.step`, from its questions to its line of metrics, which is returned."""
    clock = _Clock()
    played = run.ahead or _play(run, clock)
    episodes, forks = played.episodes, played.forks
    with clock("credit"):
        credits = _credit(run, episodes, forks)
        _update_controllers(run, credits)
        streams = _merge([c.streams for c in credits])
        run.history = run.config.method.remember(run.history, streams)
    with _playing_ahead(run, clock), clock("learn"):
        learned = run.team.learner.step([s for c in credits for s in c.samples])
    with clock("learn"):
        published = run.team.engine.publish()
    with clock("store"):
        lag = published - 1 - min((t.completion.version for e in episodes for t in e.turns), default=published - 1)
        run.cost.add([*episodes, *forks])
        metrics = _metrics(run, episodes, credits, learned) | run.config.method.figures(streams) | {"lag": lag}
        if run.controllers:
            metrics["controllers"] = {name: _strategies(c) for name, c in sorted(run.controllers.items())}
        run.store.append_line(run.store.metrics_file, metrics)
    tokens = sum(len(t.completion.token_ids) for e in [*episodes, *forks] for t in e.turns)
    run.store.append_line(run.store.timings_file, {"step": run.step, "tokens": tokens, **clock.seconds})
    run.progress.step(
        run.step,
        run.config.steps,
        metrics,
        tokens / max(1e-9, clock.seconds.get("play", 0.0) + clock.seconds.get("forks", 0.0)),
    )
    _guard(run, metrics)
    return metrics


def _batch(run: Run, step: int) -> list[Task]:
    """A step's questions: each epoch is one keyed permutation of the training set."""
    size, count = len(run.train_tasks), run.config.dialogues
    start = (step - 1) * count
    epochs = range(start // size, (start + count - 1) // size + 1)
    orders = {epoch: generator(run.config.seed, "epoch", epoch).permutation(size) for epoch in epochs}
    places = (divmod(position, size) for position in range(start, start + count))
    return [run.train_tasks[int(orders[epoch][offset])] for epoch, offset in places]


def _play(run: Run, clock: _Clock) -> Played:
    """Play this step's dialogues, then the forks of them, each written as it ends."""
    path = run.store.train_file(run.step)
    run.store.restart(path)
    own = partial(_play_own, run)
    with clock("play"):
        jobs = _jobs(run, run.step)
        episodes = list(run.store.append_episodes(path, play_shared(run.ranks, jobs, own)))
    with clock("forks"):
        jobs = _forks(run, episodes)
        return Played(episodes, list(run.store.append_episodes(path, play_shared(run.ranks, jobs, own))))


def _play_own(run: Run, jobs: Sequence[Job]) -> Iterator[Episode]:
    return play(
        run.config.method,
        jobs,
        agents=run.config.names,
        engine=run.team.engine,
        controllers=run.controllers,
        sampling=run.config.sampling.record(),
        seed=run.config.seed,
        n=run.config.method.siblings,
        width=run.config.width,
    )


def _jobs(run: Run, step: int) -> list[Job]:
    return [Job(f"train/{step}/{task.id}", task) for task in _batch(run, step)]


def _forks(run: Run, episodes: Sequence[Episode]) -> list[Job]:
    return [job for episode in episodes for job in fork_jobs(run.config.method, episode, run.history)]


@contextmanager
def _playing_ahead(run: Run, clock: _Clock) -> Iterator[None]:
    """With `overlap`, the next step is played in a thread while the body runs, and written after it; else nothing.

    Controllers and history are those of now; the adapters are those that the engine has, from before this step's learning.
    """
    run.ahead = None
    if not run.config.overlap or run.step == run.config.steps:
        yield
        return
    jobs = list(run.ranks.share(_jobs(run, run.step + 1)))

    def work() -> Played:
        with clock("play"):
            episodes = list(_play_own(run, jobs))
            return Played(episodes, list(_play_own(run, _forks(run, episodes))))

    with ThreadPoolExecutor(1) as pool:
        playing = pool.submit(work)
        yield
        with clock("wait"):
            parts = run.ranks.gather(playing.result(), "the dialogues of the others")
    path = run.store.train_file(run.step + 1)
    run.store.restart(path)
    episodes, forks = (
        sorted((e for part in parts for e in getattr(part, kind)), key=lambda e: e.id) for kind in ("episodes", "forks")
    )
    run.ahead = Played(episodes, forks)
    for _ in run.store.append_episodes(path, [*episodes, *forks]):
        pass


def _credit(run: Run, episodes: Sequence[Episode], forks: Sequence[Episode]) -> list[Credit]:
    """Credit of every dialogue with its forks, in an order that does not depend on which ended first."""
    by_parent: dict[str, list[Episode]] = {}
    for fork in sorted(forks, key=lambda e: e.id):
        assert fork.fork is not None
        by_parent.setdefault(fork.fork.parent, []).append(fork)
    ordered = sorted(episodes, key=lambda e: e.id)
    return [run.config.method.credit(e, by_parent.get(e.id, []), run.history) for e in ordered]


def _update_controllers(run: Run, credits: Sequence[Credit]) -> None:
    by_controller: dict[str, list[ActionValues]] = {}
    for credit in credits:
        for value in credit.values:
            by_controller.setdefault(value.controller, []).append(value)
    for name, values in sorted(by_controller.items()):
        run.controllers[name].update(values)


def _merge(parts: Sequence[Mapping[str, list[float]]]) -> dict[str, list[float]]:
    merged: dict[str, list[float]] = {}
    for part in parts:
        for name, values in part.items():
            merged.setdefault(name, []).extend(values)
    return merged


def _metrics(
    run: Run, episodes: Sequence[Episode], credits: Sequence[Credit], learned: Mapping[str, float]
) -> dict[str, Any]:
    observed = {name: float(np.mean(values)) for name, values in _merge([c.metrics for c in credits]).items()}
    measured = measure(run.config.method, sorted(episodes, key=lambda e: e.id))
    keep = (
        "accuracy",
        "initial_accuracy",
        "calls_per_problem",
        "correction",
        "preservation",
        "unreadable",
        "truncated",
    )
    trained = {name: measured[name] for name in keep}
    return {"step": run.step, **trained, **observed, **{f"learn/{k}": v for k, v in learned.items()}}


def _strategies(controller: Controller) -> dict[str, list[float]]:
    """For each state of a controller: the probability of speaking, and the visits."""
    return {state: [report["strategy"][-1], report["visits"]] for state, report in controller.report().items()}


def _guard(run: Run, metrics: Mapping[str, Any]) -> None:
    """Say out loud when a role's reward falls, when replies are cut off, or when an update was refused."""
    for name, value in metrics.items():
        if name.startswith("truncated/") and value > run.config.guard.truncated:
            run.progress.warn(f"step {run.step}: {value:.0%} of {name[10:]} replies hit max_new_tokens")
        if name.startswith("learn/nonfinite_updates/") and value > 0:
            run.progress.warn(
                f"step {run.step}: a non-finite gradient of {name[24:]} was refused, its adapter is unchanged"
            )
        if name.startswith("reward/"):
            fallen = run.progress.fallen(name, value, run.config.guard.reward_fall)
            if fallen is not None:
                run.progress.warn(
                    f"step {run.step}: mean {name} over 5 steps is {fallen:.2f} under its best; lower learner.lr?"
                )


class _Clock:
    """Seconds of each phase; for the timings file only."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[phase] = self.seconds.get(phase, 0.0) + time.perf_counter() - start
