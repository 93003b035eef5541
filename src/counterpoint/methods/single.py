"""One agent, one chain of thought; trained, single-agent GRPO or GSPO with group advantages.

Papers: chain of thought (arXiv 2201.11903); GRPO (arXiv 2402.03300) and GSPO (arXiv 2507.18071), chosen by
`learner.algorithm`.
Differs from the paper:
- groups whose rewards spread less than `min_std` are skipped and counted            (kept, with advantages near 0)
- its adapter is called proposer, so that a one-agent propose_review of one round is this method, sample for sample
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from counterpoint import prompts
from counterpoint.algorithms.advantage import advantages
from counterpoint.dialogue import Credit, Method, Play, Seat, read_answer
from counterpoint.records import Episode, Request, Task
from counterpoint.tasks.grading import grade


class Single(Method):
    """Settings of single."""

    name: Literal["single"] = "single"
    roles: ClassVar[tuple[str, ...]] = ("proposer",)

    candidates: int = Field(default=4, ge=2)
    """Solutions sampled for a question in training."""
    baseline: Literal["group_mean", "leave_one_out"] = "group_mean"
    """What a reward is compared with."""
    scale: Literal["group_std", "none"] = "group_std"
    """none: as Dr. GRPO (arXiv 2503.20783) has it."""
    min_std: float = Field(default=0.05, ge=0)
    """Groups whose rewards spread less than this teach nothing and are counted."""

    @property
    def siblings(self) -> int:
        return self.candidates

    def play(self, task: Task, seat: Seat) -> Play:
        [replies] = yield [Request(f"{seat.agents[0]}/proposer", prompts.solve(task), "solve", seat.n)]
        return read_answer(task, replies[0])

    def credit(self, episode: Episode, forks: Sequence[Episode], history: Mapping[str, Any]) -> Credit:
        credit, task, turns = Credit(), episode.task, episode.turns
        right = [grade(task, read_answer(task, t.completion)) == "right" for t in turns]
        rewards = np.where(right, 1.0, -1.0)
        silent = len(turns) < 2 or bool(rewards.std() < self.min_std)
        credit.reward(turns, rewards)
        credit.observe("reward/proposer", rewards.mean())
        credit.observe("reward_std/proposer", rewards.std())
        credit.observe("truncated/proposer", float(np.mean([t.completion.finish == "length" for t in turns])))
        credit.observe("zero_signal/proposer", silent)
        if not silent:
            credit.learn(turns, advantages(rewards, baseline=self.baseline, scale=self.scale))
        return credit
