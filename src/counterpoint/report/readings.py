"""A recorded dialogue as people read it: who decided what, what was said, how it was read, and what it was worth.

A reply whose tag begins with "review" is read as a verdict on the pending answer, one whose tag begins with "think" or
"rate" as neither; every other reply as an answer, which becomes the pending one when it was played.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from counterpoint.dialogue import Credit, Method
from counterpoint.records import Decision, Episode, Task, Turn
from counterpoint.tasks.grading import Outcome, extract, verdict
from counterpoint.tasks.grading import grade as grade_once

ACTIONS = ("skips", "speaks")
grade = lru_cache(maxsize=65_536)(grade_once)  # siblings and forks repeat answers
UNREAD = ("think", "rate")  # tags of replies that are neither answers nor verdicts


@dataclass(frozen=True, slots=True)
class Reply:
    """One completion as it was read."""

    turn: Turn
    said: str | None  # the answer or verdict read from it
    right: bool | None  # None: nothing to be right about
    reward: float | None
    advantage: float | None


@dataclass(slots=True)
class Move:
    """One decision and what came of it: its replies (the played one first), none when the agent kept silent."""

    agent: str
    role: str
    decision: Decision | None
    replies: list[Reply] = field(default_factory=list)
    values: tuple[float, ...] | None = None
    branch: Branch | None = None

    @property
    def reads(self) -> str:
        """What its replies are read as: an answer, a verdict, or neither (empty)."""
        tag = self.replies[0].turn.tag if self.replies else "think"
        return "" if tag.startswith(UNREAD) else "verdict" if tag.startswith("review") else "answer"

    @property
    def action(self) -> str:
        if self.decision is None:
            return "speaks"
        return action_name(self.decision.action)


@dataclass(slots=True)
class Branch:
    """A counterfactual: what happened where one thing was different."""

    title: str
    moves: list[Move]
    whole: bool  # played to the end, so that its answer counts
    answer: str | None
    outcome: Outcome | None


@dataclass(slots=True)
class Dialogue:
    """One episode, read."""

    episode: Episode
    moves: list[Move]
    others: list[Branch]  # forks that belong to no decision: an agent left out, a rating
    first_answer: str | None
    first: Outcome
    final: Outcome

    @property
    def change(self) -> str:
        """What became of the first answer: kept, corrected, harmed or missed."""
        if self.first == "right":
            return "kept" if self.final == "right" else "harmed"
        return "corrected" if self.final == "right" else "missed"


def action_name(action: int) -> str:
    return ACTIONS[action] if action < len(ACTIONS) else f"action {action}"


def read_dialogue(
    method: Method, episode: Episode, forks: Sequence[Episode] = (), credit: Credit | None = None
) -> Dialogue:
    """Everything to be shown of an episode; rewards and advantages only with its credit."""
    reader = _Reader(method, episode.task, _advantages(episode, credit), _rewards(credit))
    bare = _Reader(method, episode.task, {}, {})  # forks are worth what they were played for, nothing else
    values = _Values(credit)
    by_decision = {f.fork.at: f for f in forks if f.fork is not None and f.fork.action is not None}
    board = _Pending()
    moves = []
    for index, move in reader.moves(episode, board):
        if index is not None and move.decision is not None:
            move.values = values.next(move.decision)
            if index in by_decision:
                move.branch = _branch(bare, by_decision[index], board.before)
        moves.append(move)
    others = [_branch(bare, f, None) for f in forks if f.fork is not None and f.fork.action is None]
    first = method.first_answer(episode)
    return Dialogue(episode, moves, others, first, grade(episode.task, first), grade(episode.task, episode.answer))


@dataclass(slots=True)
class _Pending:
    """Whether the pending answer is right: now, and before the last move."""

    now: bool | None = None
    before: bool | None = None


@dataclass(frozen=True, slots=True)
class _Reader:
    method: Method
    task: Task
    advantages: Mapping[tuple[int, int], float]
    rewards: Mapping[tuple[int, int], float]

    def moves(self, episode: Episode, board: _Pending) -> Iterator[tuple[int | None, Move]]:
        """(index of the decision or None, move) in the order of the dialogue."""
        groups = _groups(episode.turns)
        waiting = list(enumerate(episode.decisions))
        for number, turns in groups.items():
            due: tuple[int, Decision] | None = None
            while waiting and waiting[0][1].group <= number:
                if due is not None:
                    yield due[0], self._silent(due[1], board)
                due = waiting.pop(0)
            if due is not None and due[1].action == 0:
                yield due[0], self._silent(due[1], board)
                due = None
            played = not (groups.get(number + 1) or turns)[0].tag.endswith("/played") or turns[0].tag.endswith(
                "/played"
            )
            yield (due[0] if due else None), self._spoken(turns, due[1] if due else None, board, played)
        for index, decision in waiting:
            yield index, self._silent(decision, board)

    def _silent(self, decision: Decision, board: _Pending) -> Move:
        board.before = board.now
        agent, _, role = decision.controller.partition("/")
        return Move(agent, role, decision)

    def _spoken(self, turns: list[Turn], decision: Decision | None, board: _Pending, played: bool) -> Move:
        board.before = board.now
        replies = [self._read(turn, board.now) for turn in turns]
        if played and not turns[0].tag.startswith(("review", *UNREAD)):
            board.now = replies[0].right
        agent, _, role = turns[0].agent.partition("/")
        return Move(agent, role, decision, replies)

    def _read(self, turn: Turn, pending: bool | None) -> Reply:
        completion = turn.completion
        agent = turn.agent.split("/")[0]
        advantage = self.advantages.get((turn.group, turn.sample))
        reward = self.rewards.get((turn.group, turn.sample))
        text = completion.text if completion.finish == "stop" else ""
        if turn.tag.startswith(UNREAD):
            return Reply(turn, None, None, reward, advantage)
        if turn.tag.startswith("review"):
            said = self._hook(agent, "verdict", verdict)(text)
            right = None if said is None or pending is None else (said == "right") == pending
            if reward is None:
                reward = self._reward(agent, "review_reward", said, pending is True)
            return Reply(turn, said, right, reward, advantage)
        answer = self._hook(agent, "extract", extract)(self.task.kind, text)
        outcome = grade(self.task, answer)
        if reward is None:
            reward = self._reward(agent, "propose_reward", outcome)
        return Reply(turn, answer, outcome == "right", reward, advantage)

    def _hook(self, agent: str, name: str, usual: Any) -> Any:
        find = getattr(self.method, "hook", None)
        return find(agent, name) if find else usual

    def _reward(self, agent: str, name: str, *arguments: Any) -> float | None:
        function = self._hook(agent, name, None)
        return float(function(*arguments)) if function else None


def _branch(reader: _Reader, fork: Episode, pending: bool | None) -> Branch:
    """The replies that a fork added to its parent."""
    plan = fork.fork
    assert plan is not None
    title = f"had it been: {action_name(plan.action)}" if plan.action is not None else f"without {plan.remove}"
    title = plan.kind or title
    moves = [move for _, move in reader.moves(fork, _Pending(pending, pending))]
    whole = plan.stop_after is None and not plan.kind
    return Branch(title, moves, whole, fork.answer, grade(fork.task, fork.answer) if whole else None)


class _Values:
    """Action values in the order of the decisions they belong to."""

    def __init__(self, credit: Credit | None) -> None:
        self.left = list(credit.values) if credit else []

    def next(self, decision: Decision) -> tuple[float, ...] | None:
        for i, value in enumerate(self.left):
            if (value.controller, value.state) == (decision.controller, decision.state):
                return self.left.pop(i).values
        return None


def _advantages(episode: Episode, credit: Credit | None) -> dict[tuple[int, int], float]:
    """Advantage of each reply, by (group, sample).

    A sample holds its reply's own ids, the object: that tells equal replies to one context apart (a group with a spread
    and one without). Samples made of copies are matched by value.
    """
    samples = credit.samples if credit else []
    same = {id(s.token_ids): s.advantage for s in samples}
    whole = same.keys() <= {id(t.completion.token_ids) for t in episode.turns}
    equal = {} if whole else {(s.agent, s.prompt_ids, s.token_ids): s.advantage for s in samples}
    found = {}
    for t in episode.turns:
        c = t.completion
        advantage = same.get(id(c.token_ids)) if whole else equal.get((t.agent, c.prompt_ids, c.token_ids))
        if advantage is not None:
            found[t.group, t.sample] = advantage
    return found


def _rewards(credit: Credit | None) -> Mapping[tuple[int, int], float]:
    """Rewards that the method's credit states itself, by (group, sample)."""
    return credit.rewards if credit else {}


def _groups(turns: Sequence[Turn]) -> dict[int, list[Turn]]:
    groups: dict[int, list[Turn]] = {}
    for turn in turns:
        groups.setdefault(turn.group, []).append(turn)
    return groups
