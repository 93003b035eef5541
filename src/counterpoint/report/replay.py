"""Training credited again from its records alone: each step's dialogues, and the controllers after it.

Nothing here is read from a checkpoint, so what the report draws can be checked against one: `agrees` does.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from counterpoint.controllers import Controller
from counterpoint.dialogue import Credit, Method
from counterpoint.records import ActionValues, Episode
from counterpoint.report.readings import Dialogue, read_dialogue
from counterpoint.report.runs import Run
from counterpoint.report.tally import Cost
from counterpoint.store import Store


@dataclass(frozen=True, slots=True)
class Step:
    """One training step, read and credited."""

    number: int
    whole: bool  # False for the step that was being played when the run was stopped or looked at
    dialogues: list[Dialogue]
    cost: Cost
    controllers: dict[str, dict[str, dict[str, Any]]]  # controller -> state -> its report


class Replay:
    """Goes through a run's training steps in order; afterwards holds the controllers it ended with."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.controllers: dict[str, Controller] = run.method.controllers(run.agents)
        self.history: dict[str, Any] = {}
        self.gap = False  # a step's file is missing: what follows has no credit

    def steps(self) -> Iterator[Step]:
        expected = 1
        for number, path in self.run.train_files():
            if number != expected and not self.gap:
                self.gap = True
                self.run.notes.append(f"steps {expected} to {number - 1} have no episodes: later ones are not credited")
            expected = number + 1
            yield self._step(number, list(self.run.episodes(path)))

    def at(self, number: int) -> Step:
        """One step alone; those before it are gone through only where the method keeps a history."""
        if type(self.run.method).remember is not Method.remember:
            return next(step for step in self.steps() if step.number == number)
        path = next(path for step, path in self.run.train_files() if step == number)
        return self._step(number, list(self.run.episodes(path)))

    def _step(self, number: int, episodes: Sequence[Episode]) -> Step:
        whole = number <= self.run.done
        forks: dict[str, list[Episode]] = {}
        cost = Cost()
        for episode in episodes:
            cost.add(episode)
            if episode.fork is not None:
                forks.setdefault(episode.fork.parent, []).append(episode)
        mains = sorted((e for e in episodes if e.fork is None), key=lambda e: e.id)
        credits = self._credits(mains, forks) if whole and self.run.creditable and not self.gap else None
        dialogues = [
            read_dialogue(self.run.method, e, forks.get(e.id, []), credits[i] if credits else None)
            for i, e in enumerate(mains)
        ]
        reports = {name: controller.report() for name, controller in self.controllers.items()} if credits else {}
        return Step(number, whole, dialogues, cost, reports)

    def _credits(self, mains: Sequence[Episode], forks: Mapping[str, list[Episode]]) -> list[Credit]:
        """Credit of the step; controllers and history move on, as they did in training."""
        method = self.run.method
        ordered = [sorted(forks.get(e.id, []), key=lambda f: f.id) for e in mains]
        credits = [method.credit(e, f, self.history) for e, f in zip(mains, ordered, strict=True)]
        values: dict[str, list[ActionValues]] = {}
        streams: dict[str, list[float]] = {}
        for credit in credits:
            for value in credit.values:
                values.setdefault(value.controller, []).append(value)
            for name, stream in credit.streams.items():
                streams.setdefault(name, []).extend(stream)
        for name, found in sorted(values.items()):
            self.controllers[name].update(found)
        self.history = method.remember(self.history, streams)
        return credits

    def agrees(self) -> bool | None:
        """Whether the replayed controllers are those of the newest checkpoint; None when it is of another step."""
        newest = Store(self.run.root).newest_checkpoint()
        if newest is None or newest[0] != self.run.done or self.gap or not self.run.creditable:
            return None
        saved = json.loads((newest[1] / "controllers.json").read_text(encoding="utf-8"))
        return bool(saved == json.loads(json.dumps({n: c.state_dict() for n, c in self.controllers.items()})))
