"""MAPoRL: a debate whose every utterance is rewarded by a verifier, now and later, and for changing minds for the better.

Paper: Multi-Agent Post-Co-Training for Collaborative LLMs with RL (arXiv 2502.18439). With score s_t,i of agent i's
answer in round t, N agents, T rounds:
    R_t,i = ( s_t,i + sum_{u > t} gamma^(u-t) mean_k s_u,k ) / sum_{u >= t} gamma^(u-t)  +  bonus_t,i
The bonus rewards correcting oneself (with or against what the others had said) and punishes giving up a right answer;
and it rewards a right answer after which the others turn right, punishes a wrong one after which they turn wrong.
Differs from the paper:
- the verifier is the grader: s is 1 or 0                              (a trained model's score, also shown to agents)
- a baseline without a critic: leave-one-out over the debates of a question, per agent and round    (PPO with GAE)
- clipping as PPO's comes with learner.algorithm=grpo
- influence counts for what the others did next, signs as in the paper's text       (its code has them the other way)
- both adapters of an agent learn                                      (only the one that speaks after the first round)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from counterpoint.algorithms.advantage import advantages
from counterpoint.dialogue import Credit, Method, Play, Seat, read_answer, reply_with
from counterpoint.methods.debate import played, prompt, vote
from counterpoint.records import Completion, Episode, Request, Task, Turn
from counterpoint.tasks.grading import grade


class Maporl(Method):
    """Settings of maporl."""

    name: Literal["maporl"] = "maporl"
    roles: ClassVar[tuple[str, ...]] = ("solver", "debater")

    rounds: int = Field(default=2, ge=1)
    """Rounds of a debate; the first without reading anybody."""
    candidates: int = Field(default=4, ge=2)
    """Debates on a question in training, side by side."""
    discount: float = Field(default=0.3, ge=0, le=1)
    """Gamma, a round."""
    follow: float = Field(default=0.5, ge=0)
    """Bonus for turning right where the others were right (and for turning wrong with them, a penalty)."""
    resist: float = Field(default=0.5, ge=0)
    """Bonus for turning right where the others were wrong (and for turning wrong against them, a penalty)."""
    influence: float = Field(default=0.5, ge=0)
    """Bonus for a right answer after which the others turn right, penalty for a wrong one after which they turn wrong."""
    scale: Literal["group_std", "none"] = "group_std"
    """Whether advantages are divided by the spread over the debates."""
    min_std: float = Field(default=0.05, ge=0)
    """Under scale group_std, rewards that spread less than this teach nothing."""
    train_roles: tuple[Literal["solver", "debater"], ...] = ("solver", "debater")
    """Which adapters learn: that of the first round, that of the later ones."""

    @property
    def siblings(self) -> int:
        return self.candidates

    def play(self, task: Task, seat: Seat) -> Play:
        first = yield [Request(f"{a}/solver", prompt(task, [], 0, "all"), "round1", seat.n) for a in seat.agents]
        debates: list[list[Completion]] = [list(said) for said in zip(*first, strict=True)]
        for number in range(2, self.rounds + 1):
            replies = yield [
                Request(f"{agent}/debater", prompt(task, said, i, "all"), f"round{number}")
                for said in debates
                for i, agent in enumerate(seat.agents)
            ]
            flat, size = [reply for [reply] in replies], len(seat.agents)
            debates = [flat[at : at + size] for at in range(0, len(flat), size)]
        return vote(task, debates[0])

    def last_solution(self, episode: Episode) -> str | None:
        return reply_with(episode.task, played(episode, f"round{self.rounds}"), episode.answer)

    def first_answer(self, episode: Episode) -> str | None:
        """What a vote before the debate would have answered."""
        return vote(episode.task, played(episode, "round1"))

    def credit(self, episode: Episode, forks: Sequence[Episode], history: Mapping[str, Any]) -> Credit:
        credit, table = Credit(), self._table(episode)
        scores = np.array(
            [[[_score(episode.task, t) for t in said] for said in debate] for debate in table]
        )  # [G, T, N]
        rewards = self._scores_ahead(scores) + self._bonus(scores)
        for number in range(scores.shape[1]):
            role: Literal["solver", "debater"] = "debater" if number else "solver"
            for k in range(scores.shape[2]):
                turns, own = [debate[number][k] for debate in table], rewards[:, number, k]
                baseline: Literal["leave_one_out", "group_mean"] = "leave_one_out" if len(own) > 1 else "group_mean"
                advantage = advantages(own, baseline=baseline, scale=self.scale, min_std=self.min_std)
                credit.observe(f"reward/{role}", own.mean())
                credit.observe(f"accuracy/round{number + 1}", scores[:, number, k].mean())
                credit.observe(f"truncated/{role}", float(np.mean([t.completion.finish == "length" for t in turns])))
                credit.observe(f"zero_signal/{role}", not advantage.any())
                if role in self.train_roles and advantage.any():
                    credit.learn(turns, advantage)
        return credit

    def _table(self, episode: Episode) -> list[list[list[Turn]]]:
        """Turns by debate, round and agent."""
        first = [t for t in episode.turns if t.tag == "round1"]
        debates = 1 + max(t.sample for t in first)
        agents = len(first) // debates
        rounds = [[[t for t in first if t.sample == g] for g in range(debates)]]
        for number in range(2, self.rounds + 1):
            later = [t for t in episode.turns if t.tag == f"round{number}"]
            rounds.append([later[g * agents : (g + 1) * agents] for g in range(debates)])
        return [[spoken[g] for spoken in rounds] for g in range(debates)]

    def _scores_ahead(self, scores: np.ndarray) -> np.ndarray:
        """Own score now and everybody's mean score later, discounted, as a weighted mean: [G, T, N]."""
        shared, ahead = scores.mean(axis=2), np.empty_like(scores)
        for t in range(scores.shape[1]):
            weights = self.discount ** np.arange(scores.shape[1] - t, dtype=np.float64)
            later = shared[:, t + 1 :] @ weights[1:]
            ahead[:, t] = (scores[:, t] + later[:, None]) / weights.sum()
        return ahead

    def _bonus(self, scores: np.ndarray) -> np.ndarray:
        """What changed between rounds: in oneself after the others spoke, in the others after oneself spoke."""
        bonus, agents = np.zeros_like(scores), scores.shape[2]
        if agents < 2:
            return bonus
        others = (scores.sum(axis=2, keepdims=True) - scores) / (agents - 1)
        for t in range(scores.shape[1] - 1):
            change, said = scores[:, t + 1] - scores[:, t], np.sign(others[:, t] - 0.5)
            bonus[:, t + 1] += change * np.select([said == 0, said == change], [0.0, self.follow], self.resist)
            turned = (np.sign(others[:, t + 1] - 0.5) - said) / 2  # +1: from wrong to right
            meant = np.where(scores[:, t] > 0.5, 1.0, -1.0)
            bonus[:, t] += self.influence * np.where(turned == meant, turned, 0.0)
        return bonus


def _score(task: Task, turn: Turn) -> float:
    return float(grade(task, read_answer(task, turn.completion)) == "right")
