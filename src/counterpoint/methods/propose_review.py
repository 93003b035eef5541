"""TRACER: agents propose and review over several rounds; regret matching decides who speaks, role rewards what is said.

Paper: Turn-level Regret Matching with Inner Reinforcement Credit (arXiv 2605.28699).
Differs from the paper (`fidelity: published` restores the second column of each line):
- proposals and reviews rotate over all agents, and a reviewer is never the author      (agent = round mod N)
- the utterance played is candidate 0 of its group                                      (a fresh sample)
- the value of speaking is the mean over the candidates                                 (one sample)
- regrets are summed over a step under frozen strategies                                (after every turn)
- a review reasons first and ends with its verdict                                      (verdict first)
Under `published` the rotation stays ours, and the fresh sample is drawn from the adapters of the step, which learn after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from counterpoint.algorithms.advantage import advantages
from counterpoint.controllers import Controller
from counterpoint.controllers.spec import ControllerSpec
from counterpoint.dialogue import NO_HISTORY, Credit, Method, Play, Seat, sibling_groups
from counterpoint.hooks import Hook, load_hook
from counterpoint.records import ActionValues, Completion, Episode, Fork, Request, Task, Turn
from counterpoint.settings import Settings
from counterpoint.tasks.grading import Outcome, grade

SKIP, SPEAK = 0, 1
Stage = Literal["propose", "review"]
ROLE: dict[Stage, str] = {"propose": "proposer", "review": "reviewer"}


class Hooks(Settings):
    """The pieces that a config can replace by a function of its own."""

    solve: Hook = "counterpoint.prompts:solve"
    """(task) -> messages: the first proposal."""
    revise: Hook = "counterpoint.prompts:revise"
    """(task, pending, votes, history) -> messages: a proposal beside a pending one."""
    review: Hook = "counterpoint.prompts:review"
    """(task, pending, history) -> messages."""
    extract: Hook = "counterpoint.tasks.grading:extract"
    """(kind, reply) -> answer or None."""
    verdict: Hook = "counterpoint.tasks.grading:verdict"
    """(reply) -> "right", "wrong" or None."""
    propose_reward: Hook = "counterpoint.methods.propose_review:propose_reward"
    """(outcome) -> reward of one proposal."""
    review_reward: Hook = "counterpoint.methods.propose_review:review_reward"
    """(verdict, pending_right) -> reward of one review."""
    values: Hook = "counterpoint.methods.propose_review:immediate_values"
    """(stage, pending_right, rewards, cost) -> what skip and speak are worth, under value: immediate."""


def propose_reward(outcome: Outcome) -> float:
    """+1 for a right answer, -1 for a wrong or unreadable one (TRACER, generation credit)."""
    return 1.0 if outcome == "right" else -1.0


def review_reward(verdict: str | None, pending_right: bool) -> float:
    """+1 for a right verdict, -1 for a wrong one, 0 for one that cannot be read."""
    if verdict is None:
        return 0.0
    return 1.0 if (verdict == "right") == pending_right else -1.0


def immediate_values(stage: Stage, pending_right: bool, rewards: np.ndarray, cost: float) -> tuple[float, float]:
    """skip: +1 or -1 by the pending answer. speak: the mean reward of the new answers or verdicts, less their tokens' cost."""
    return (1.0 if pending_right else -1.0, float(rewards.mean() - cost))


@dataclass(slots=True)
class _Board:
    """The state of one dialogue: the pending solution, its votes, and what was said before."""

    text: str | None = None
    answer: str | None = None
    author: str = ""
    votes: int = 0
    history: tuple[tuple[str, str], ...] = ()

    def propose(self, agent: str, text: str, answer: str | None) -> None:
        if self.text is not None:
            self.history += ((f"{self.author} proposed", self.text),)
        self.text, self.answer, self.author, self.votes = text, answer, agent, 0

    def review(self, agent: str, text: str, verdict: str | None) -> None:
        self.votes += {"right": 1, "wrong": -1, None: 0}[verdict]
        self.history += ((f"{agent} reviewed", text),)


@dataclass(frozen=True, slots=True)
class _Step:
    """One round as recorded."""

    stage: Stage
    agent: str
    pending: str | None  # the pending answer before the round
    decision: int | None  # its place among the decisions; None for the first, forced proposal
    group: int | None  # the candidates' group; None when skipped


class ProposeReview(Method):
    """Settings of propose_review."""

    name: Literal["propose_review"] = "propose_review"
    roles: ClassVar[tuple[str, ...]] = ("proposer", "reviewer")

    rounds: int = Field(default=5, ge=1)
    """Rounds of a dialogue; odd ones propose, even ones review."""
    candidates: int = Field(default=4, ge=2)
    """Siblings sampled for each utterance in training."""
    history: int = Field(default=4, ge=0)
    """How many earlier turns an agent sees beside the question and the pending solution."""
    reviewing: bool = True
    """Whether there are reviews at all (ablation: no reviewer)."""
    train_roles: tuple[Literal["proposer", "reviewer"], ...] = ("proposer", "reviewer")
    """Roles whose adapters learn."""
    train_skipped: bool = False
    """Also learn from what would have been said where an agent kept silent (value: immediate); it is generated anyway."""
    propose_controller: ControllerSpec = ControllerSpec()
    """Decides whether a proposer refreshes the pending solution."""
    review_controller: ControllerSpec = ControllerSpec()
    """Decides whether a reviewer judges it."""
    vote_state: bool = True
    """Whether controllers see the votes of the pending solution."""
    round_state: Literal["last", "exact", "none"] = "last"
    """What controllers see of the round: whether a later proposal can follow, its number, or nothing."""
    value: Literal["immediate", "outcome"] = "immediate"
    """What an action is worth: the answer or verdict right after it, or the final outcome of a dialogue forked there."""
    token_cost: float = Field(default=0.0, ge=0)
    """Taken off the value of an action for every token generated because of it."""
    min_std: float = 0.05
    """Groups whose rewards spread less than this teach nothing and are counted."""
    played: Literal["first", "fresh"] = "first"
    """Which utterance enters the dialogue: candidate 0, or one more sample."""
    estimate: Literal["mean", "played"] = "mean"
    """The value of speaking: mean over the candidates, or the played one alone."""
    fidelity: Literal["default", "published"] = "default"
    """published: everything as in the paper, where it differs from our defaults."""
    hooks: Hooks = Hooks()
    """Functions that replace prompts, readers and rewards."""
    agent_hooks: dict[str, Hooks] = Field(default_factory=dict)
    """The same for single agents, by name."""

    @model_validator(mode="before")
    @classmethod
    def _published(cls, data: Any) -> Any:
        if not isinstance(data, dict) or data.get("fidelity") != "published":
            return data
        turn = {"name": "regret", "update": "turn"}
        published = {"played": "fresh", "estimate": "played", "propose_controller": turn, "review_controller": turn}
        published["hooks"] = {"review": "counterpoint.prompts:review_verdict_first"}
        return published | data

    @property
    def siblings(self) -> int:
        return self.candidates

    def hook(self, agent: str, name: str) -> Any:
        """The function in force for one agent."""
        return load_hook(getattr(self.agent_hooks.get(agent, self.hooks), name))

    # ---- play ----------------------------------------------------------------------------------------------------

    def play(self, task: Task, seat: Seat) -> Play:
        agents, board = seat.agents, _Board()
        first = seat.seed("first") % len(agents)
        proposals = reviews = 0
        for number in range(1, self.rounds + 1):
            stage = _stage(number)
            if stage == "propose":
                agent = agents[(first + proposals) % len(agents)]
                proposals += 1
            elif self.reviewing:
                agent = _reviewer(agents, first + 1 + reviews, board.author)
                reviews += 1
            else:
                continue
            forced = board.text is None
            if not forced and seat.decide(f"{agent}/{stage}", self._state(board, number)) == SKIP:
                continue
            reply = yield from self._speak(task, seat, agent, stage, board)
            if stage == "propose":
                board.propose(agent, reply.text, self._answer(agent, task, reply))
            else:
                board.review(agent, reply.text, self._verdict(agent, reply))
        return board.answer

    def _speak(self, task: Task, seat: Seat, agent: str, stage: Stage, board: _Board) -> Any:
        request = Request(f"{agent}/{ROLE[stage]}", self._messages(task, agent, stage, board), stage, seat.n)
        if self.played == "first" or seat.n == 1:
            [candidates] = yield [request]
            return candidates[0]
        _, [fresh] = yield [request, Request(request.agent, request.messages, f"{stage}/played", 1)]
        return fresh

    def _messages(self, task: Task, agent: str, stage: Stage, board: _Board) -> Any:
        if board.text is None:
            return self.hook(agent, "solve")(task)
        recent = (
            board.history[len(board.history) - self.history :] if self.history < len(board.history) else board.history
        )
        if stage == "review":
            return self.hook(agent, "review")(task, board.text, recent)
        return self.hook(agent, "revise")(task, board.text, board.votes, recent)

    def _answer(self, agent: str, task: Task, reply: Completion) -> str | None:
        return self.hook(agent, "extract")(task.kind, reply.text) if reply.finish == "stop" else None

    def _verdict(self, agent: str, reply: Completion) -> str | None:
        return self.hook(agent, "verdict")(reply.text) if reply.finish == "stop" else None

    def _state(self, board: _Board, number: int) -> str:
        votes = "invalid" if board.answer is None else f"{max(-2, min(2, board.votes)):+d}"
        last = number >= self.rounds - (1 - self.rounds % 2)
        where = {"last": "last" if last else "early", "exact": str(number), "none": "any"}[self.round_state]
        return f"votes={votes if self.vote_state else 'any'} round={where}"

    def verdicts(self, episode: Episode) -> list[tuple[bool, str | None]]:
        groups, found = sibling_groups(episode), []
        pending: str | None = None
        for group, turns in sorted(groups.items()):
            if turns[0].tag.endswith("/played"):
                continue
            (agent, role), reply = turns[0].agent.split("/"), self._played(groups, group)
            if role == ROLE["propose"]:
                pending = self._answer(agent, episode.task, reply)
            else:
                found.append((grade(episode.task, pending) == "right", self._verdict(agent, reply)))
        return found

    def last_solution(self, episode: Episode) -> str | None:
        proposed = [t for t in episode.turns if t.sample == 0 and t.agent.endswith("/proposer")]
        return proposed[-1].completion.text if proposed else None

    def controllers(self, agents: Sequence[str]) -> dict[str, Controller]:
        made: dict[str, Controller] = {}
        for agent in agents:
            made[f"{agent}/propose"] = self.propose_controller.make()
            made[f"{agent}/review"] = self.review_controller.make()
        return made

    # ---- credit --------------------------------------------------------------------------------------------------

    def forks(self, episode: Episode, history: Mapping[str, Any] = NO_HISTORY) -> list[Fork]:
        """immediate: what speaking would have said where it was skipped. outcome: the other action, to the end."""
        made = []
        for i, decision in enumerate(episode.decisions):
            if self.value == "outcome":
                made.append(Fork(episode.id, i, action=1 - decision.action))
            elif decision.action == SKIP:
                made.append(Fork(episode.id, i, action=SPEAK, stop_after=1, n=self.candidates))
        return made

    def credit(self, episode: Episode, forks: Sequence[Episode], history: Mapping[str, Any]) -> Credit:
        credit = Credit()
        groups = sibling_groups(episode)
        by_decision = {fork.fork.at: fork for fork in forks if fork.fork is not None}
        for step in self._walk(episode):
            right = grade(episode.task, step.pending) == "right"
            if step.group is not None:
                credit.reward(groups[step.group], self._learn(credit, episode.task, step, right, groups[step.group]))
            elif self.train_skipped and self.value == "immediate":
                self._learn(credit, episode.task, step, right, _first_group(by_decision.get(step.decision or 0)))
            if step.decision is None:
                continue
            decision = episode.decisions[step.decision]
            credit.observe(f"speak/{step.stage}", decision.action)
            fork = by_decision.get(step.decision)
            if self.value == "outcome":
                values = self._outcome_values(episode, step.decision, fork)
            else:
                spoken = groups[step.group] if step.group is not None else _first_group(fork)
                values = self._immediate_values(episode.task, step, right, spoken, groups)
            credit.values.append(ActionValues(decision.controller, decision.state, values))
        return credit

    def _walk(self, episode: Episode) -> list[_Step]:
        """The rounds of a recorded dialogue, with the pending answer before each."""
        groups, decisions = sibling_groups(episode), list(enumerate(episode.decisions))
        board = _Board()
        steps: list[_Step] = []
        for number in range(1, self.rounds + 1):
            stage = _stage(number)
            if stage == "review" and not self.reviewing:
                continue
            if board.text is None:
                step = _Step(stage, episode.turns[0].agent.split("/")[0], None, None, 0)
            else:
                index, decision = decisions.pop(0)
                group = decision.group if decision.action == SPEAK else None
                step = _Step(stage, decision.controller.split("/")[0], board.answer, index, group)
            steps.append(step)
            if step.group is not None and stage == "propose":
                played = self._played(groups, step.group)
                board.propose(step.agent, played.text, self._answer(step.agent, episode.task, played))
        return steps

    def _played(self, groups: Mapping[int, list[Turn]], group: int) -> Completion:
        fresh = groups.get(group + 1, []) if self.played == "fresh" else []
        return (fresh if fresh and fresh[0].tag.endswith("/played") else groups[group])[0].completion

    def _rewards(self, task: Task, step: _Step, pending_right: bool, replies: Sequence[Completion]) -> np.ndarray:
        if step.stage == "propose":
            reward = self.hook(step.agent, "propose_reward")
            outcomes = [grade(task, self._answer(step.agent, task, reply)) for reply in replies]
            return np.array([reward(outcome) for outcome in outcomes], dtype=np.float64)
        reward = self.hook(step.agent, "review_reward")
        verdicts = [self._verdict(step.agent, reply) for reply in replies]
        return np.array([reward(verdict, pending_right) for verdict in verdicts], dtype=np.float64)

    def _learn(self, credit: Credit, task: Task, step: _Step, pending_right: bool, turns: Sequence[Turn]) -> np.ndarray:
        """Group advantages of the candidates of one utterance (TRACER: (r - mean) / std, none under min_std); returns rewards."""
        role = ROLE[step.stage]
        rewards = self._rewards(task, step, pending_right, [t.completion for t in turns])
        credit.observe(f"reward/{role}", rewards.mean())
        credit.observe(f"reward_std/{role}", rewards.std())
        credit.observe(f"truncated/{role}", sum(t.completion.finish == "length" for t in turns) / len(turns))
        silent = len(turns) < 2 or bool(rewards.std() < self.min_std)
        credit.observe(f"zero_signal/{role}", silent)
        if not silent and role in self.train_roles:
            credit.learn(turns, advantages(rewards, baseline="group_mean", scale="group_std"))
        return rewards

    def _immediate_values(
        self, task: Task, step: _Step, right: bool, spoken: Sequence[Turn], groups: Mapping[int, list[Turn]]
    ) -> tuple[float, float]:
        """The values hook on all candidates, or on the played one alone."""
        completions = [t.completion for t in spoken]
        if self.estimate == "played":
            completions = [self._played(groups, step.group) if step.group is not None else completions[0]]
        rewards = self._rewards(task, step, right, completions)
        cost = self.token_cost * float(np.mean([len(c.token_ids) for c in completions]))
        skip, speak = self.hook(step.agent, "values")(step.stage, right, rewards, cost)
        return float(skip), float(speak)

    def _outcome_values(self, episode: Episode, index: int, fork: Episode | None) -> tuple[float, float]:
        """The final outcome of the dialogue as played and of its fork, each less the cost of the tokens from there on."""
        if fork is None:
            raise ValueError(f"dialogue {episode.id} has no fork at decision {index}; outcome values need one")
        decision = episode.decisions[index]
        later = {g: turns for g, turns in sibling_groups(episode).items() if g >= decision.group}
        spent = sum(len(self._played(later, g).token_ids) for g in later if not later[g][0].tag.endswith("/played"))
        forked = sum(len(t.completion.token_ids) for t in fork.turns if t.sample == 0)
        taken = _outcome(episode) - self.token_cost * spent
        other = _outcome(fork) - self.token_cost * forked
        return (taken, other) if decision.action == SKIP else (other, taken)


def _stage(number: int) -> Stage:
    return "propose" if number % 2 else "review"


def _reviewer(agents: Sequence[str], turn: int, author: str) -> str:
    """The next agent in the rotation that did not write the pending solution; the author only when alone."""
    order = [agents[(turn + i) % len(agents)] for i in range(len(agents))]
    return next((agent for agent in order if agent != author), author)


def _first_group(fork: Episode | None) -> list[Turn]:
    assert fork is not None
    return [turn for turn in fork.turns if turn.group == fork.turns[0].group]


def _outcome(episode: Episode) -> float:
    return 1.0 if grade(episode.task, episode.answer) == "right" else -1.0
