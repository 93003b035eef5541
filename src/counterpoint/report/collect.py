"""One pass over the episodes of several runs: measures, steps and the dialogues for the browser."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from counterpoint.report.pack import Packer
from counterpoint.report.readings import read_dialogue
from counterpoint.report.replay import Replay
from counterpoint.report.runs import Run, set_name
from counterpoint.report.tally import Choices, Cost, Earned, Tally, credit_by_agent


@dataclass(slots=True)
class Collected:
    """What the figures of one run are drawn from."""

    run: Run
    tallies: dict[tuple[str, str], Tally] = field(default_factory=dict)  # (phase, task set)
    costs: dict[int, Cost] = field(default_factory=dict)  # by step
    earned: dict[int, dict[str, Earned]] = field(default_factory=dict)  # by step, then agent and role
    choices: Choices = field(default_factory=Choices)
    controllers: dict[int, dict[str, dict[str, dict[str, Any]]]] = field(default_factory=dict)  # by step
    agrees: bool | None = None

    @property
    def sets(self) -> list[str]:
        return list(dict.fromkeys(name for _, name in self.tallies))


def collect(runs: Sequence[Run], packer: Packer, *, limit: int) -> list[Collected]:
    """Read every episode once; at most about `limit` dialogues go into the browser, evenly thinned."""
    every = max(1, math.ceil(sum(_expected(run) for run in runs) / limit))
    found = []
    for number, run in enumerate(runs):
        collected = Collected(run)
        _evaluations(collected, packer, number, every)
        _training(collected, packer, number, every)
        if every > 1:
            run.notes.append(f"the browser holds every {every}th dialogue; figures and tables count all of them")
        found.append(collected)
    packer.close()
    return found


def _expected(run: Run) -> int:
    """About how many dialogues a run holds: training steps have as many as the config says."""
    lines = 0
    for files in run.phases().values():
        for path in files.values():
            with path.open("rb") as file:
                lines += sum(1 for _ in file)
    return lines + len(run.train_files()) * int(run.config.get("dialogues", 0))


def _evaluations(collected: Collected, packer: Packer, number: int, every: int) -> None:
    run = collected.run
    for phase, files in run.phases().items():
        for name, path in files.items():
            tally = Tally()
            for i, episode in enumerate(run.episodes(path)):
                dialogue = read_dialogue(run.method, episode)
                tally.add(dialogue)
                if i % every == 0:
                    packer.add(dialogue, run=number, phase=phase, step=0, task_set=name)
            if tally.n:
                collected.tallies[phase, name] = tally


def _training(collected: Collected, packer: Packer, number: int, every: int) -> None:
    run, replay = collected.run, Replay(collected.run)
    name = set_name(run.config["tasks"]["train"])
    for step in replay.steps():
        collected.costs[step.number] = step.cost
        collected.earned[step.number] = credit_by_agent(step.dialogues)
        if step.controllers:
            collected.controllers[step.number] = step.controllers
        if not step.whole:
            run.notes.append(f"step {step.number} is not whole: {len(step.dialogues)} dialogues, shown without credit")
        for i, dialogue in enumerate(step.dialogues):
            collected.choices.add(dialogue)
            if i % every == 0:
                packer.add(dialogue, run=number, phase="train", step=step.number, task_set=name)
    if collected.controllers:
        collected.agrees = replay.agrees()
    if collected.agrees is False:
        run.notes.append("controllers credited again from the records differ from those of the newest checkpoint")
    for line in run.metrics:  # where episodes are lost, the strategies that training wrote down are left
        collected.controllers.setdefault(int(line["step"]), _written(line))
    collected.controllers = {step: found for step, found in sorted(collected.controllers.items()) if found}


def _written(line: Mapping[str, Any]) -> dict[str, dict[str, dict[str, Any]]]:
    """Controllers' reports as far as a line of metrics holds them: {name: {state: [p(speak), visits]}}."""
    return {
        name: {state: {"strategy": [1 - p, p], "visits": visits} for state, (p, visits) in states.items()}
        for name, states in line.get("controllers", {}).items()
    }
