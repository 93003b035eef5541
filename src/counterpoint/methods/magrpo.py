"""MAGRPO: agents answer together over several turns; all learn from one joint return, relative to its siblings.

Paper: LLM Collaboration with Multi-Agent Reinforcement Learning (arXiv 2508.04652), aligned joint actions:
    R_t = r_t + gamma mean over the children of R_{t+1};   A_i,t = R_t - mean of R_t over the siblings of the node
with the same advantage for every agent. In training each of the G joint answers of a turn opens a branch of its own:
G, G^2, ... joint answers. With one agent and one turn this is GRPO without its division by the group's std.
Differs from the paper:
- the joint answer of a turn is the agents' vote, and r_t is its value with ties in expectation   (writing, coding)
- what reaches the next turn is everybody's last answer                                           (an external model)
- no branch is stopped early                                                                      (a reward threshold)
- the policy loss is the learner's, clipped or not, as configured                                 (plain REINFORCE)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
from pydantic import Field

from counterpoint.algorithms.advantage import advantages
from counterpoint.algorithms.vote import classes, plurality_value
from counterpoint.dialogue import Credit, Method, Play, Seat, read_answer, reply_with, sibling_groups
from counterpoint.methods.debate import played, prompt, vote
from counterpoint.records import Completion, Episode, Request, Task, Turn
from counterpoint.tasks.grading import equal, grade

T = TypeVar("T")


class Magrpo(Method):
    """Settings of magrpo."""

    name: Literal["magrpo"] = "magrpo"
    roles: ClassVar[tuple[str, ...]] = ("solver",)

    turns: int = Field(default=2, ge=1)
    """Turns of a dialogue; the first without reading anybody."""
    candidates: int = Field(default=4, ge=2)
    """Joint answers sampled at every node in training; a tree has candidates ** turns leaves."""
    discount: float = Field(default=0.9, ge=0, le=1)
    """Gamma, a turn."""
    scale: Literal["none", "group_std"] = "none"
    """Whether advantages are divided by the siblings' spread."""
    min_std: float = Field(default=0.05, ge=0)
    """Under scale group_std, groups whose returns spread less than this teach nothing."""

    @property
    def siblings(self) -> int:
        return self.candidates

    def play(self, task: Task, seat: Seat) -> Play:
        nodes: list[list[Completion]] = [[]]  # the joint answer that each branch goes on from
        for number in range(1, self.turns + 1):
            replies = yield [
                Request(f"{agent}/solver", prompt(task, said, i, "all"), f"turn{number}", seat.n)
                for said in nodes
                for i, agent in enumerate(seat.agents)
            ]
            nodes = [joint for at in _nodes(replies, len(seat.agents)) for joint in map(list, zip(*at, strict=True))]
        return vote(task, nodes[0])

    def last_solution(self, episode: Episode) -> str | None:
        return reply_with(episode.task, played(episode, f"turn{self.turns}"), episode.answer)

    def first_answer(self, episode: Episode) -> str | None:
        """What a vote after the first turn would have answered."""
        return vote(episode.task, played(episode, "turn1"))

    def credit(self, episode: Episode, forks: Sequence[Episode], history: Mapping[str, Any]) -> Credit:
        credit, groups = Credit(), [turns for _, turns in sorted(sibling_groups(episode).items())]
        agents = sum(turns[0].tag == "turn1" for turns in groups)
        levels = [
            _nodes([g for g in groups if g[0].tag == f"turn{number}"], agents) for number in range(1, self.turns + 1)
        ]
        returns = self._returns(credit, episode.task, levels)
        for number, (level, values) in enumerate(zip(levels, returns, strict=True), start=1):
            for node, own in zip(level, values, strict=True):
                advantage = advantages(own, baseline="group_mean", scale=self.scale, min_std=self.min_std)
                credit.observe(f"zero_signal/turn{number}", not advantage.any())
                for turns in node if advantage.any() else []:
                    credit.learn(turns, advantage)
        return credit

    def _returns(self, credit: Credit, task: Task, levels: Sequence[list[list[list[Turn]]]]) -> list[np.ndarray]:
        """R of every joint answer: [nodes, G] of each turn."""
        returns: list[np.ndarray] = []
        for number, level in reversed(list(enumerate(levels, start=1))):
            rewards = np.array([[_value(task, joint) for joint in zip(*node, strict=True)] for node in level])
            credit.observe(f"reward/turn{number}", rewards.mean())
            later = returns[0].mean(axis=1).reshape(rewards.shape) if returns else 0.0
            returns.insert(0, rewards + self.discount * later)
        replies = [turn for level in levels for node in level for turns in node for turn in turns]
        credit.observe("reward/solver", returns[0].mean())
        credit.observe("truncated/solver", float(np.mean([t.completion.finish == "length" for t in replies])))
        return returns


def _nodes(groups: Sequence[T], agents: int) -> list[list[T]]:
    """The groups of a turn by node: one group an agent."""
    return [list(groups[i : i + agents]) for i in range(0, len(groups), agents)]


def _value(task: Task, joint: Sequence[Turn]) -> float:
    answers = [read_answer(task, turn.completion) for turn in joint]
    right = np.array([grade(task, answer) == "right" for answer in answers], dtype=bool)
    return plurality_value(classes(answers, partial(equal, task.kind)), right)
