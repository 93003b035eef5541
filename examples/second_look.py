"""A second agent looks again where a controller thinks it pays: one agent solves, another may solve anew beside it.

A worked example: docs/add-a-method.md goes through it line by line. Put into src/counterpoint/methods/, this file is a
method like any other: `counterpoint train method=second_look`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from counterpoint import prompts
from counterpoint.algorithms.advantage import advantages
from counterpoint.controllers import Controller, make
from counterpoint.dialogue import NO_HISTORY, Credit, Method, Play, Seat, read_answer, sibling_groups
from counterpoint.records import ActionValues, Episode, Fork, Request, Task
from counterpoint.tasks.grading import grade

SKIP, SPEAK = 0, 1


class SecondLook(Method):
    """Settings of second_look."""

    name: Literal["second_look"] = "second_look"
    roles: ClassVar[tuple[str, ...]] = ("solver", "checker")

    candidates: int = Field(default=4, ge=2)
    """Replies sampled for each utterance in training."""
    token_cost: float = Field(default=0.001, ge=0)
    """What a token of the second look costs, in units of a right answer."""

    @property
    def siblings(self) -> int:
        return self.candidates

    def play(self, task: Task, seat: Seat) -> Play:
        solver, checker = seat.agents[0], seat.agents[-1]
        [first] = yield [Request(f"{solver}/solver", prompts.solve(task), "solve", seat.n)]
        answer = read_answer(task, first[0])
        state = "unreadable" if answer is None else f"{'long' if len(first[0].token_ids) > 40 else 'short'} answer"
        if seat.decide(f"{checker}/check", state) == SKIP:
            return answer
        [second] = yield [Request(f"{checker}/checker", prompts.revise(task, first[0].text, 0, ()), "check", seat.n)]
        return read_answer(task, second[0])

    def controllers(self, agents: Sequence[str]) -> dict[str, Controller]:
        return {f"{agents[-1]}/check": make("regret")}

    def forks(self, episode: Episode, history: Mapping[str, Any] = NO_HISTORY) -> list[Fork]:
        """The same dialogue with the other decision."""
        return [Fork(episode.id, i, action=1 - d.action) for i, d in enumerate(episode.decisions)]

    def credit(self, episode: Episode, forks: Sequence[Episode], history: Mapping[str, Any]) -> Credit:
        credit, task = Credit(), episode.task
        for turns in sibling_groups(episode).values():
            role = turns[0].agent.split("/")[1]
            right = [grade(task, read_answer(task, t.completion)) == "right" for t in turns]
            rewards = np.where(right, 1.0, -1.0)
            credit.observe(f"reward/{role}", rewards.mean())
            credit.observe(f"zero_signal/{role}", rewards.std() == 0)
            if rewards.std() > 0:
                credit.learn(turns, advantages(rewards, baseline="group_mean", scale="group_std"))
        for decision, fork in zip(episode.decisions, forks, strict=True):
            credit.observe("speak/check", decision.action)
            taken, other = (self._value(e, decision.group) for e in (episode, fork))
            values = (other, taken) if decision.action == SPEAK else (taken, other)
            credit.values.append(ActionValues(decision.controller, decision.state, values))
        return credit

    def _value(self, episode: Episode, start: int) -> float:
        """The final outcome, less the price of what was played from group `start` on."""
        spent = sum(len(t.completion.token_ids) for t in episode.turns if t.group >= start and t.sample == 0)
        return (1.0 if grade(episode.task, episode.answer) == "right" else -1.0) - self.token_cost * spent
