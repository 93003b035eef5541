"""Training, whole: measure the untrained team, play, credit, learn, update controllers, checkpoint, measure again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

import counterpoint
from counterpoint.config import Config, load_config
from counterpoint.engines.muted import MutedEngine
from counterpoint.errors import ConfigError, DataError, EngineError
from counterpoint.evaluate import Player, evaluate_set, frozen_controllers, measure, unseen_decisions
from counterpoint.play import failure
from counterpoint.progress import Progress
from counterpoint.ranks import ALONE, Ranks
from counterpoint.records import Task
from counterpoint.run import Run, load_checkpoint, restore, save
from counterpoint.step import take_step
from counterpoint.store import ReadOnlyStore, Store, read_episodes
from counterpoint.tasks.registry import check_golds, load_tasks
from counterpoint.tasks.spec import read_spec
from counterpoint.team import build_team
from counterpoint.trackers import open_trackers


def train(
    config: Config,
    out: Path,
    *,
    resume: bool = False,
    progress: Progress | None = None,
    ranks: Ranks = ALONE,
) -> dict[str, Any]:
    """Run `config` in the directory `out`; returns the summary that is also written there, by rank 0 of several."""
    store = _store(out, ranks)
    store.check(config.to_yaml(), resume=resume)
    run = prepare(config, store, progress or Progress(quiet=True), ranks)
    _agree(run, store)
    store.claim(config.to_yaml())
    restore(run)
    untrained = evaluate_phase(run, "untrained", trained=False) if config.evaluation.untrained else {}
    plain = yaml.safe_load(config.to_yaml())
    with (
        run.progress.training(config.steps, run.step),
        open_trackers(config.trackers if ranks.first else (), out, plain, done=run.step) as track,
    ):
        while run.step < config.steps:
            run.step += 1
            track(run.step, take_step(run))
            if run.step % config.checkpoint.every == 0 or run.step == config.steps:
                save(run)
    return finish(run, untrained)


def evaluation_config(target: str, overrides: Sequence[str]) -> Config:
    """Settings to measure a run, or a config, under."""
    own = Path(target) / "config.yaml"
    return load_config(own if own.is_file() else target, overrides).model_copy(update={"steps": 0})


def evaluate_only(
    target: str, config: Config, out: Path | None, progress: Progress, ranks: Ranks = ALONE
) -> tuple[dict[str, Any], Path]:
    """Measure a run's newest checkpoint, or an untrained config, under what `evaluation_config` gives; (summary, where)."""
    source = Path(target)
    is_run = (source / "config.yaml").is_file()
    if is_run and not config.engine.weights:
        raise ConfigError(
            f"engine {config.engine.name!r} loads no checkpoint, so it cannot measure the run {target}; "
            "evaluate a config with it, or the run with another engine"
        )
    home = source / "evaluations" if is_run else Path("runs")
    folder = out or home / f"{source.stem if not is_run else 'eval'}-{config.sha256()[:8]}"
    store = _store(folder, ranks)
    store.check(config.to_yaml(), resume=store.config_file.exists())
    run = prepare(config, store, progress, ranks)
    _agree(run, Store(source) if is_run else store)
    store.claim(config.to_yaml())
    if is_run:
        newest = Store(source).newest_checkpoint()
        if newest is None:
            raise DataError(f"{source} has no checkpoint yet; train it first")
        load_checkpoint(run, newest[1])
    summary = {"eval": evaluate_phase(run, "eval", trained=is_run), "models": run.team.model_record()}
    store.write_summary(summary)
    return summary, folder


def _store(root: Path, ranks: Ranks) -> Store:
    return Store(root) if ranks.first else ReadOnlyStore(root)


def _agree(run: Run, source: Store) -> None:
    """Whether all ranks are about to do the same; from here on the directory may be written to."""
    newest = source.newest_checkpoint()
    facts = {
        "settings": run.config.sha256(),
        "models": run.team.model_record(),
        "newest checkpoint": newest[0] if newest else None,
    }
    run.ranks.agree(facts, "the others to load")


def prepare(config: Config, store: Store, progress: Progress, ranks: Ranks = ALONE) -> Run:
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
    team = build_team(config, ranks)
    controllers = config.method.controllers(config.names)
    return Run(config, store, team, controllers, train_tasks, eval_tasks, progress, ranks=ranks)


def _load(spec: Any, split: str, progress: Progress) -> Sequence[Task]:
    """The tasks of a set whose gold answers the grader accepts; the others are left out, out loud."""
    kept, failed = check_golds(load_tasks(spec, split))
    if failed:
        shown = ", ".join(task.id for task in failed[:5])
        progress.warn(f"{spec}: {len(failed)} gold answers do not equal themselves and are left out: {shown}")
    return kept


# ---- measuring ---------------------------------------------------------------------------------------------------


def evaluate_phase(run: Run, phase: str, *, trained: bool, strategy: str | None = None) -> dict[str, Any]:
    """Measures of every evaluation set; untrained: adapters and controllers as they were before step 1."""
    config = run.config
    controllers = run.controllers if trained else config.method.controllers(config.names)
    frozen = frozen_controllers(controllers, strategy or config.evaluation.strategy)
    sampling = (config.evaluation.sampling or config.sampling).record()
    mute = config.evaluation.mute
    engine = MutedEngine(run.team.engine, mute) if mute else run.team.engine
    player = Player(
        config.method, config.names, engine, frozen, sampling, config.seed, config.width,
        by_chunk=config.engine.weights,
    )  # fmt: skip
    measures = {}
    unanswered = []
    for name, tasks in run.eval_tasks.items():
        if not trained and run.step and _on_disk(run, phase, name) < len(tasks):
            continue  # adapters have moved; this run was started without an untrained evaluation
        with run.progress.counting(f"{phase} {name}", len(tasks)) as tick:
            episodes = evaluate_set(player, name, tasks, store=run.store, phase=phase, tick=tick, ranks=run.ranks)
        if len(episodes) < len(tasks):
            unanswered.append(_unanswered(run, phase, name, len(tasks) - len(episodes)))
        if not episodes:
            continue
        flexible = config.evaluation.extraction == "flexible"
        measures[name] = measure(config.method, sorted(episodes, key=lambda e: e.id), flexible=flexible)
        if trained:
            measures[name]["unseen_decisions"] = unseen_decisions(episodes, controllers)
        run.progress.measured(phase, name, measures[name])
    if unanswered:
        raise EngineError(
            f"{'; '.join(unanswered)}. The others are in {run.store.root}: the same command (train: with --resume) plays the rest"
        )
    return measures


def _unanswered(run: Run, phase: str, name: str, count: int) -> str:
    """How many dialogues of a set were broken off, and why the last one was."""
    path = run.store.failed_file(phase, name)
    reason = run.ranks.told(lambda: failure(read_episodes(path)[-1]), f"why {name} was not answered")
    return f"{count} of {len(run.eval_tasks[name])} dialogues of {name} were not answered ({reason})"


def _on_disk(run: Run, phase: str, name: str) -> int:
    path = run.store.eval_file(phase, name)

    def lines() -> int:
        return len(path.read_text(encoding="utf-8").splitlines()) if path.exists() else 0

    return run.ranks.told(lines, f"what is on disk of {phase} {name}")


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
