"""Training, whole: measure the untrained team, play, credit, learn, update controllers, checkpoint, measure again."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import counterpoint
from counterpoint.config import Config, load_config
from counterpoint.controllers import Controller
from counterpoint.dialogue import Credit
from counterpoint.errors import DataError
from counterpoint.evaluate import Player, evaluate_set, frozen_controllers, measure, unseen_counts
from counterpoint.play import Job, fork_jobs, play
from counterpoint.progress import Progress
from counterpoint.records import ActionValues, Episode, Task
from counterpoint.rng import generator
from counterpoint.store import Store
from counterpoint.tasks.registry import check_golds, load_tasks
from counterpoint.tasks.spec import read_spec
from counterpoint.team import Team, build_team


@dataclass(slots=True)
class Cost:
    """What training has paid for: utterances played, candidates beside them, and counterfactual dialogues."""

    calls: dict[str, int] = field(default_factory=dict)
    tokens: dict[str, int] = field(default_factory=dict)

    def add(self, episodes: Sequence[Episode]) -> None:
        for episode in episodes:
            for turn in episode.turns:
                kind = "counterfactual" if episode.fork else "trajectory" if turn.sample == 0 else "candidates"
                self.calls[kind] = self.calls.get(kind, 0) + 1
                self.tokens[kind] = self.tokens.get(kind, 0) + len(turn.completion.token_ids)

    def record(self) -> dict[str, dict[str, int]]:
        return {"calls": self.calls, "tokens": self.tokens}


@dataclass(slots=True)
class Run:
    """A run in progress: the team, the controllers, the history, and where it writes."""

    config: Config
    store: Store
    team: Team
    controllers: dict[str, Controller]
    train_tasks: Sequence[Task]
    eval_tasks: dict[str, Sequence[Task]]
    progress: Progress
    history: dict[str, Any] = field(default_factory=dict)
    cost: Cost = field(default_factory=Cost)
    step: int = 0


def train(config: Config, out: Path, *, resume: bool = False, progress: Progress | None = None) -> dict[str, Any]:
    """Run `config` in the directory `out`; returns the summary that is also written there."""
    store = Store(out)
    store.check(config.to_yaml(), resume=resume)
    run = prepare(config, store, progress or Progress(quiet=True))
    store.claim(config.to_yaml())
    restore(run)
    untrained = evaluate_phase(run, "untrained", trained=False) if config.evaluation.untrained else {}
    with run.progress.training(config.steps, run.step):
        while run.step < config.steps:
            run.step += 1
            _step(run)
            if run.step % config.checkpoint.every == 0 or run.step == config.steps:
                _save(run)
    return finish(run, untrained)


def evaluate_only(
    target: str, overrides: Sequence[str], out: Path | None, progress: Progress
) -> tuple[dict[str, Any], Path]:
    """Measure a run's newest checkpoint, or an untrained config, under possibly other settings; (summary, where)."""
    source = Path(target)
    is_run = (source / "config.yaml").is_file()
    config = load_config(source / "config.yaml" if is_run else target, overrides)
    config = config.model_copy(update={"steps": 0})
    home = source / "evaluations" if is_run else Path("runs")
    folder = out or home / f"{source.stem if not is_run else 'eval'}-{config.sha256()[:8]}"
    store = Store(folder)
    store.check(config.to_yaml(), resume=store.config_file.exists())
    run = prepare(config, store, progress)
    store.claim(config.to_yaml())
    if is_run:
        newest = Store(source).newest_checkpoint()
        if newest is None:
            raise DataError(f"{source} has no checkpoint yet; train it first")
        load_checkpoint(run, newest[1])
    summary = {"eval": evaluate_phase(run, "eval", trained=is_run), "models": run.team.model_record()}
    store.write_summary(summary)
    return summary, folder


def prepare(config: Config, store: Store, progress: Progress) -> Run:
    """Load data and models and check everything that can be checked before step 1."""
    train_tasks = _load(config.tasks.train, "train", progress) if config.steps else ()
    eval_tasks = {}
    for spec in config.tasks.eval:
        name = read_spec(spec).label
        tasks = _load(spec, "test", progress)
        eval_tasks[name] = tasks[: config.evaluation.limit] if config.evaluation.limit else tasks
    if config.steps and len(train_tasks) < config.dialogues:
        raise DataError(
            f"tasks.train={config.tasks.train!r} has {len(train_tasks)} problems, a step needs dialogues={config.dialogues}"
        )
    team = build_team(config)
    controllers = config.method.controllers(config.names)
    return Run(config, store, team, controllers, train_tasks, eval_tasks, progress)


def _load(spec: Any, split: str, progress: Progress) -> Sequence[Task]:
    """The tasks of a set whose gold answers the grader accepts; the others are left out, out loud."""
    kept, failed = check_golds(load_tasks(spec, split))
    if failed:
        shown = ", ".join(task.id for task in failed[:5])
        progress.warn(f"{spec}: {len(failed)} gold answers do not equal themselves and are left out: {shown}")
    return kept


# ---- one step ----------------------------------------------------------------------------------------------------


def _step(run: Run) -> None:
    clock = _Clock()
    path = run.store.train_file(run.step)
    path.unlink(missing_ok=True)
    with clock("play"):
        episodes = _play(run, path, [Job(f"train/{run.step}/{t.id}", t) for t in _batch(run)])
    with clock("forks"):
        jobs = [job for episode in episodes for job in fork_jobs(run.config.method, episode, run.history)]
        forks = _play(run, path, jobs)
    with clock("credit"):
        credits = _credit(run, episodes, forks)
    with clock("learn"):
        learned = run.team.learner.step([s for c in credits for s in c.samples])
        run.team.engine.publish()
    with clock("store"):
        _update_controllers(run, credits)
        streams = _merge([c.streams for c in credits])
        run.history = run.config.method.remember(run.history, streams)
        run.cost.add([*episodes, *forks])
        metrics = _metrics(run, episodes, credits, learned) | run.config.method.figures(streams)
        run.store.append_line(run.store.metrics_file, metrics)
    tokens = sum(len(t.completion.token_ids) for e in [*episodes, *forks] for t in e.turns)
    run.store.append_line(run.store.timings_file, {"step": run.step, "tokens": tokens, **clock.seconds})
    run.progress.step(
        run.step, run.config.steps, metrics, tokens / max(1e-9, clock.seconds["play"] + clock.seconds["forks"])
    )
    _guard(run, metrics)


def _batch(run: Run) -> list[Task]:
    """This step's questions: each epoch is one keyed permutation of the training set."""
    size, count = len(run.train_tasks), run.config.dialogues
    start = (run.step - 1) * count
    picked = []
    for position in range(start, start + count):
        epoch, offset = divmod(position, size)
        order = generator(run.config.seed, "epoch", epoch).permutation(size)
        picked.append(run.train_tasks[int(order[offset])])
    return picked


def _play(run: Run, path: Path, jobs: Sequence[Job]) -> list[Episode]:
    played = play(
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
    return list(run.store.append_episodes(path, played))


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


# ---- measuring ---------------------------------------------------------------------------------------------------


def evaluate_phase(run: Run, phase: str, *, trained: bool, strategy: str | None = None) -> dict[str, Any]:
    """Measures of every evaluation set; untrained: adapters and controllers as they were before step 1."""
    config = run.config
    controllers = run.controllers if trained else config.method.controllers(config.names)
    frozen = frozen_controllers(controllers, strategy or config.evaluation.strategy)
    sampling = (config.evaluation.sampling or config.sampling).record()
    player = Player(config.method, config.names, run.team.engine, frozen, sampling, config.seed, config.width)
    measures = {}
    for name, tasks in run.eval_tasks.items():
        if not trained and run.step and len(_on_disk(run, phase, name)) < len(tasks):
            continue  # adapters have moved; this run was started without an untrained evaluation
        with run.progress.counting(f"{phase} {name}", len(tasks)) as tick:
            episodes = evaluate_set(player, name, tasks, store=run.store, phase=phase, tick=tick)
        measures[name] = measure(config.method, sorted(episodes, key=lambda e: e.id))
        run.progress.measured(phase, name, measures[name])
    unseen = unseen_counts(frozen)
    if unseen and trained:
        run.progress.say(f"{phase}: controllers met {sum(unseen.values())} times a state never seen in training")
    return measures


def _on_disk(run: Run, phase: str, name: str) -> list[str]:
    path = run.store.eval_file(phase, name)
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def finish(run: Run, untrained: Mapping[str, Any]) -> dict[str, Any]:
    """Measure the trained team and write the summary."""
    also = run.config.evaluation.also
    result = evaluate_phase(run, "eval", trained=True)
    second = {}
    if also not in ("none", run.config.evaluation.strategy):
        second = evaluate_phase(run, f"eval-{also}", trained=True, strategy=also)
    summary: dict[str, Any] = {
        "version": counterpoint.__version__,
        "config_sha256": run.config.sha256(),
        "models": run.team.model_record(),
        "untrained": dict(untrained),
        "eval": result,
        "train": {"steps": run.step, "dialogues": run.step * run.config.dialogues},
        "controllers": {name: c.report() for name, c in sorted(run.controllers.items())},
        "cost": {"train": run.cost.record()},
    }
    if second:
        summary[f"eval_{also}"] = second
    run.store.write_summary(summary)
    return summary


# ---- resuming ----------------------------------------------------------------------------------------------------


def _save(run: Run) -> None:
    folder = run.store.start_checkpoint()
    run.team.learner.save(folder)
    _write_json(folder / "controllers.json", {name: c.state_dict() for name, c in run.controllers.items()})
    _write_json(folder / "history.json", run.history)
    _write_json(folder / "state.json", {"step": run.step, "cost": run.cost.record()})
    run.store.finish_checkpoint(folder, run.step, keep=run.config.checkpoint.keep)


def restore(run: Run) -> None:
    """Continue from the newest whole checkpoint, if there is one; what was written after it is written again."""
    newest = run.store.newest_checkpoint()
    run.store.rewind(newest[0] if newest else 0)
    if newest is None:
        return
    load_checkpoint(run, newest[1])


def load_checkpoint(run: Run, folder: Path) -> None:
    """Adapters, optimizer, controllers, history and counts as they were saved."""
    run.team.learner.load(folder)
    run.team.engine.publish()
    controllers = _read_json(folder / "controllers.json")
    for name, controller in run.controllers.items():
        controller.load_state_dict(controllers[name])
    run.history = _read_json(folder / "history.json")
    state = _read_json(folder / "state.json")
    run.step, run.cost = state["step"], Cost(**state["cost"])


def _read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _write_json(path: Path, data: Any) -> None:
    path.write_text(json.dumps(data, sort_keys=True), encoding="utf-8")


class _Clock:
    """Seconds of each phase; for the timings file only."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[phase] = self.seconds.get(phase, 0.0) + time.perf_counter() - start
