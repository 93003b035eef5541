"""A run in progress: the team, the controllers, the history and the costs; saved whole and restored exactly."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from counterpoint.config import Config
from counterpoint.controllers import Controller
from counterpoint.errors import ResumeError
from counterpoint.progress import Progress
from counterpoint.ranks import ALONE, Ranks
from counterpoint.records import Episode, Task
from counterpoint.store import Store, read_episodes
from counterpoint.team import Team


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
    ranks: Ranks = ALONE
    ahead: Played | None = None


@dataclass(frozen=True, slots=True)
class Played:
    """What one step has played: dialogues, and the counterfactual ones beside them."""

    episodes: list[Episode]
    forks: list[Episode]


def save(run: Run) -> None:
    """A checkpoint of everything that the next step depends on; it is the same on every rank."""
    if not run.ranks.first:
        return
    folder = run.store.start_checkpoint()
    run.team.learner.save(folder)
    _write_json(folder / "controllers.json", {name: c.state_dict() for name, c in run.controllers.items()})
    _write_json(folder / "history.json", run.history)
    state = {"step": run.step, "cost": run.cost.record(), "models": run.team.model_record()}
    _write_json(folder / "state.json", state)
    run.store.finish_checkpoint(folder, run.step, keep=run.config.checkpoint.keep)


def restore(run: Run) -> None:
    """Continue from the newest whole checkpoint, if there is one; what was written after it is written again."""
    newest = run.store.newest_checkpoint()
    ahead = newest is not None and run.config.overlap
    run.store.rewind(newest[0] if newest else 0, ahead=ahead)
    if newest is None:
        return
    load_checkpoint(run, newest[1])
    if ahead and run.step < run.config.steps:  # played by adapters that are no more
        played = read_episodes(run.store.train_file(run.step + 1))
        run.ahead = Played([e for e in played if not e.fork], [e for e in played if e.fork])


def load_checkpoint(run: Run, folder: Path) -> None:
    """Adapters, optimizer, controllers, history and counts as they were saved, on the base models they belong to."""
    state = _read_json(folder / "state.json")
    _same_models(state.get("models", {}), run.team.model_record(), folder)
    run.team.learner.load(folder)
    controllers = _read_json(folder / "controllers.json")
    for name, controller in run.controllers.items():
        controller.load_state_dict(controllers[name])
    run.history = _read_json(folder / "history.json")
    run.step, run.cost = state["step"], Cost(**state["cost"])
    run.team.engine.publish(run.step)


def _same_models(saved: Mapping[str, Mapping[str, str]], loaded: Mapping[str, Mapping[str, str]], folder: Path) -> None:
    """Adapters mean nothing on other weights than those they were trained on."""
    for adapter, model in saved.items():
        now = loaded.get(adapter)
        if now is not None and now["sha256"] != model["sha256"]:
            raise ResumeError(
                f"{folder}: {adapter} was trained on {model['name']} with hash {model['sha256'][:12]}, loaded is {now['name']} "
                f"with {now['sha256'][:12]}; name the model it was trained on"
            )


def _read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _write_json(path: Path, data: Any) -> None:
    path.write_text(json.dumps(data, sort_keys=True), encoding="utf-8")
