"""One agent samples several solutions and answers with the plurality of their answers; not trained.

Paper: Self-Consistency (arXiv 2203.11171).
Differs from the paper:
- votes are counted over equivalence classes of answers ("0.5" and "1/2" agree)      (equal strings)
- a cut-off or unreadable solution abstains; ties go to the shorter answer, then to the alphabetically first
"""

from __future__ import annotations

from functools import partial
from typing import ClassVar, Literal

from pydantic import Field

from counterpoint import prompts
from counterpoint.algorithms.vote import plurality
from counterpoint.dialogue import Method, Play, Seat, read_answer, reply_with
from counterpoint.records import Episode, Request, Task
from counterpoint.tasks.grading import equal


class SelfConsistency(Method):
    """Settings of self_consistency."""

    name: Literal["self_consistency"] = "self_consistency"
    roles: ClassVar[tuple[str, ...]] = ("proposer",)  # as single has it: the adapter it trained may be loaded here
    trained: ClassVar[bool] = False

    samples: int = Field(default=5, ge=1)
    """Solutions that vote; the first one is also the answer before anybody else spoke."""

    def play(self, task: Task, seat: Seat) -> Play:
        [replies] = yield [Request(f"{seat.agents[0]}/proposer", prompts.solve(task), "solve", self.samples)]
        return plurality([read_answer(task, reply) for reply in replies], partial(equal, task.kind))

    def last_solution(self, episode: Episode) -> str | None:
        return reply_with(episode.task, [t.completion for t in episode.turns], episode.answer)
