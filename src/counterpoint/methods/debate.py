"""Multi-agent debate: everybody solves, reads what all said, solves again; the plurality of the last round answers.

Paper: Improving Factuality and Reasoning through Multiagent Debate (arXiv 2305.14325).
Differs from the paper:
- an agent reads the previous round in one message, its own solution among them      (a growing chat)
- votes are counted over equivalence classes of answers; ties go to the shorter, then to the alphabetically first
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar, Literal

from pydantic import Field

from counterpoint import prompts
from counterpoint.algorithms.vote import plurality
from counterpoint.dialogue import Method, Play, Seat, read_answer, reply_with
from counterpoint.records import Completion, Episode, Message, Request, Task
from counterpoint.tasks.grading import equal


class Debate(Method):
    """Settings of debate."""

    name: Literal["debate"] = "debate"
    roles: ClassVar[tuple[str, ...]] = ("solver",)
    trained: ClassVar[bool] = False

    rounds: int = Field(default=2, ge=1)
    """Rounds of solutions; the first is given without reading anybody."""
    reads: Literal["all", "others"] = "all"
    """Whose solutions of the previous round an agent reads: everybody's, its own among them, or the others' alone."""

    def play(self, task: Task, seat: Seat) -> Play:
        said: list[Completion] = []
        for number in range(self.rounds):
            asked = [
                Request(f"{agent}/solver", prompt(task, said, i, self.reads), f"round{number + 1}")
                for i, agent in enumerate(seat.agents)
            ]
            replies = yield asked
            said = [siblings[0] for siblings in replies]
        return vote(task, said)

    def last_solution(self, episode: Episode) -> str | None:
        return reply_with(episode.task, played(episode, f"round{self.rounds}"), episode.answer)

    def first_answer(self, episode: Episode) -> str | None:
        """What a vote before the debate would have answered."""
        return vote(episode.task, played(episode, "round1"))


def prompt(task: Task, said: Sequence[Completion], own: int, reads: str) -> tuple[Message, ...]:
    """What agent number `own` is asked after the previous round's solutions `said`, one an agent."""
    shown = [c.text for i, c in enumerate(said) if reads == "all" or i != own]
    return prompts.debate(task, shown) if said else prompts.solve(task)


def played(episode: Episode, tag: str) -> list[Completion]:
    """What everybody said in one round of the dialogue that was played: its first turns, one an agent."""
    agents = len({t.agent.partition("/")[0] for t in episode.turns})
    return [t.completion for t in episode.turns if t.tag == tag and t.sample == 0][:agents]


def vote(task: Task, said: Sequence[Completion]) -> str | None:
    """The plurality's answer; cut-off and unreadable solutions abstain."""
    return plurality([read_answer(task, c) for c in said], partial(equal, task.kind))
