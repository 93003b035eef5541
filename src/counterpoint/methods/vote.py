"""Several agents answer in parallel and vote; each is credited for what the vote owes to it.

Paper: Counterfactual Credit Policy Optimization (arXiv 2603.21563), whose repository has no voting code: this follows
its abstract and figure.
Differs from the paper:
- in training every agent samples `candidates` answers; the j-th of all agents are one team, so each agent has a sibling
  group of its own to be compared within
- votes are counted over equivalence classes, ties in expectation (credit) or by a fixed rule (the answer given)
- cut-off and unreadable answers abstain and are never right
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import AliasChoices, Field

from counterpoint import prompts
from counterpoint.algorithms.advantage import advantages
from counterpoint.algorithms.counterfactual import (
    SHAPLEY_LIMIT,
    leave_one_out_vote,
    mixed_credit,
    shapley_vote,
    shared_credit,
)
from counterpoint.algorithms.vote import classes, plurality, plurality_value
from counterpoint.controllers import Controller
from counterpoint.dialogue import Credit, Method, Play, Seat, read_answer, reply_with, sibling_groups
from counterpoint.errors import ConfigError
from counterpoint.records import Episode, Request, Task, Turn
from counterpoint.tasks.grading import equal, grade


class Vote(Method):
    """Settings of vote."""

    name: Literal["vote"] = "vote"
    roles: ClassVar[tuple[str, ...]] = ("solver",)

    candidates: int = Field(default=4, ge=2)
    """Answers that each agent samples in training; as many teams."""
    preset: Literal["mixed", "joint", "shared"] = Field(
        default="mixed", validation_alias=AliasChoices("credit", "preset")
    )
    """mixed: (1 - beta) own + beta delta. joint: team + weight delta. shared: the team's outcome. Or written `credit`."""
    beta: float = Field(default=0.5, ge=0, le=1)
    """mixed: share of the counterfactual delta; the rest is whether the agent itself is right."""
    weight: float = Field(default=0.2, ge=0)
    """joint: weight of delta beside the team's outcome."""
    delta: Literal["leave_one_out", "shapley"] = "leave_one_out"
    """The team's value with and without the agent, or its Shapley value (exact, up to 8 agents)."""
    baseline: Literal["group_mean", "leave_one_out", "none"] = "leave_one_out"
    """What an agent's reward is compared with: its siblings' (delta alone needs nothing: it has a baseline inside)."""
    scale: Literal["none", "group_std"] = "none"
    """Whether advantages are divided by their group's spread."""
    min_std: float = Field(default=0.05, ge=0)
    """Under scale group_std, groups whose rewards spread less than this teach nothing."""

    @property
    def siblings(self) -> int:
        return self.candidates

    def controllers(self, agents: Sequence[str]) -> dict[str, Controller]:
        """None; the team is known here first, so this is where its size is checked."""
        if self.delta == "shapley" and len(agents) > SHAPLEY_LIMIT:
            raise ConfigError(f"method.delta=shapley takes at most {SHAPLEY_LIMIT} agents, the team has {len(agents)}")
        return {}

    def play(self, task: Task, seat: Seat) -> Play:
        messages = prompts.solve(task)
        replies = yield [Request(f"{agent}/solver", messages, "vote", seat.n) for agent in seat.agents]
        return plurality([read_answer(task, own[0]) for own in replies], partial(equal, task.kind))

    def credit(self, episode: Episode, forks: Sequence[Episode], history: Mapping[str, Any]) -> Credit:
        credit, task = Credit(), episode.task
        groups = [turns for _, turns in sorted(sibling_groups(episode).items())]
        teams = [_team(task, members) for members in zip(*groups, strict=True)]
        rewards = np.array([self._rewards(credit, labels, right) for labels, right in teams])  # [teams, N]
        for k, turns in enumerate(groups):
            own = rewards[:, k]
            baseline = "group_mean" if len(own) < 2 and self.baseline == "leave_one_out" else self.baseline
            advantage = advantages(own, baseline=baseline, scale=self.scale, min_std=self.min_std)
            credit.observe("reward/solver", own.mean())
            credit.observe("zero_signal/solver", not advantage.any())
            credit.observe("truncated/solver", float(np.mean([t.completion.finish == "length" for t in turns])))
            if advantage.any():
                credit.learn(turns, advantage)
        return credit

    def _rewards(self, credit: Credit, labels: np.ndarray, right: np.ndarray) -> np.ndarray:
        """The reward of every member of one team."""
        team = plurality_value(labels, right)
        delta = (leave_one_out_vote if self.delta == "leave_one_out" else shapley_vote)(labels, right)
        credit.observe("team_value", team)
        credit.observe("own_accuracy", right.mean())
        credit.observe("pivotal", (delta != 0).mean())
        match self.preset:
            case "mixed":
                return mixed_credit(right, delta, beta=self.beta)
            case "joint":
                return shared_credit(team, delta, weight=self.weight)
            case "shared":
                return np.full(len(right), team)

    def last_solution(self, episode: Episode) -> str | None:
        said = [t.completion for t in episode.turns if t.sample == 0]
        return reply_with(episode.task, said, episode.answer)

    def first_answer(self, episode: Episode) -> str | None:
        """The first agent's own answer, before the others were counted."""
        return read_answer(episode.task, episode.turns[0].completion) if episode.turns else None


def _team(task: Task, members: Sequence[Turn]) -> tuple[np.ndarray, np.ndarray]:
    """(class of each member's answer, whether it is right)."""
    answers = [read_answer(task, t.completion) for t in members]
    right = np.array([grade(task, answer) == "right" for answer in answers], dtype=bool)
    return classes(answers, partial(equal, task.kind)), right
