"""Counting while episodes stream by: the measures of a set, what each agent earned, what training cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from counterpoint.algorithms.stats import wilson
from counterpoint.records import Episode
from counterpoint.report.readings import Dialogue, Reply

CHANGES = ("kept", "corrected", "harmed", "missed")


@dataclass(slots=True)
class Tally:
    """The same measures as evaluate.measure, one dialogue at a time."""

    n: int = 0
    changes: Counter[str] = field(default_factory=Counter)
    flow: Counter[tuple[str, str]] = field(default_factory=Counter)  # (first outcome, final outcome) -> problems
    outcomes: dict[str, bool] = field(default_factory=dict)  # task id -> right
    prompt: int = 0
    completion: int = 0
    calls: int = 0
    truncated: int = 0
    changed: int = 0

    def add(self, dialogue: Dialogue) -> None:
        episode = dialogue.episode
        self.n += 1
        self.changes[dialogue.change] += 1
        self.flow[dialogue.first, dialogue.final] += 1
        self.outcomes[episode.task.id] = dialogue.final == "right"
        self.changed += dialogue.first_answer != episode.answer
        for turn in episode.turns:
            self.calls += 1
            self.prompt += len(turn.completion.prompt_ids)
            self.completion += len(turn.completion.token_ids)
            self.truncated += turn.completion.finish == "length"

    def measures(self) -> dict[str, Any]:
        """As in the summary; shares are None where there is nothing to share."""
        n, c = self.n, self.changes
        right, first = c["kept"] + c["corrected"], c["kept"] + c["harmed"]
        preservation = c["kept"] / first if first else None
        return {
            "n": n,
            "accuracy": right / n,
            "ci95": list(wilson(right, n)),
            "initial_accuracy": first / n,
            "tokens_per_problem": (self.prompt + self.completion) / n,
            "prompt_tokens_per_problem": self.prompt / n,
            "completion_tokens_per_problem": self.completion / n,
            "calls_per_problem": self.calls / n,
            "correction": c["corrected"] / (n - first) if n > first else None,
            "preservation": preservation,
            "harm": None if preservation is None else 1 - preservation,
            "changed": self.changed / n,
            "unreadable": sum(k for (_, final), k in self.flow.items() if final == "unreadable") / n,
            "errors": sum(k for (_, final), k in self.flow.items() if final == "error") / n,
            "truncated": self.truncated / max(1, self.calls),
        }


@dataclass(slots=True)
class Earned:
    """What one agent in one role said in training and what it was worth."""

    replies: int = 0
    judged: int = 0
    right: int = 0
    rewarded: int = 0
    reward: float = 0.0
    learned: int = 0
    advantage: float = 0.0  # sum of absolute values
    tokens: int = 0

    def add(self, reply: Reply) -> None:
        self.replies += 1
        self.tokens += len(reply.turn.completion.token_ids)
        if reply.right is not None:
            self.judged += 1
            self.right += reply.right
        if reply.reward is not None:
            self.rewarded += 1
            self.reward += reply.reward
        if reply.advantage is not None:
            self.learned += 1
            self.advantage += abs(reply.advantage)

    def record(self) -> dict[str, float | None]:
        return {
            "replies": self.replies,
            "right": _ratio(self.right, self.judged),
            "reward": _ratio(self.reward, self.rewarded),
            "learned": self.learned,
            "advantage": _ratio(self.advantage, self.learned),
            "tokens": self.tokens,
        }


def credit_by_agent(dialogues: Iterable[Dialogue]) -> dict[str, Earned]:
    """ "agent0/proposer" -> what it earned in these dialogues, forks apart."""
    earned: dict[str, Earned] = {}
    for dialogue in dialogues:
        for move in dialogue.moves:
            for reply in move.replies:
                earned.setdefault(reply.turn.agent, Earned()).add(reply)
    return earned


@dataclass(slots=True)
class Choices:
    """How often each controller let its agent speak, and as whom: "agent0/review" speaks as "agent0/reviewer"."""

    decisions: Counter[str] = field(default_factory=Counter)
    spoken: Counter[str] = field(default_factory=Counter)
    speaks_as: dict[str, str] = field(default_factory=dict)

    def add(self, dialogue: Dialogue) -> None:
        for move in dialogue.moves:
            if move.decision is not None:
                name = move.decision.controller
                self.decisions[name] += 1
                self.spoken[name] += move.decision.action != 0
                if move.replies:
                    self.speaks_as[name] = move.replies[0].turn.agent

    def rate(self, agent: str) -> float | None:
        """Share of its decisions in which "AGENT/ROLE" spoke; None where nothing was to decide."""
        names = [name for name in self.decisions if self.speaks_as.get(name, name) == agent]
        return _ratio(sum(self.spoken[n] for n in names), sum(self.decisions[n] for n in names))


def merge(parts: Iterable[Mapping[str, Earned]]) -> dict[str, Earned]:
    """The sum over steps."""
    total: dict[str, Earned] = {}
    for part in parts:
        for name, earned in part.items():
            into = total.setdefault(name, Earned())
            for item in fields(Earned):
                setattr(into, item.name, getattr(into, item.name) + getattr(earned, item.name))
    return total


@dataclass(slots=True)
class Cost:
    """Replies and new tokens: played utterances, candidates beside them, counterfactual dialogues."""

    calls: Counter[str] = field(default_factory=Counter)
    tokens: Counter[str] = field(default_factory=Counter)

    def add(self, episode: Episode) -> None:
        for turn in episode.turns:
            kind = "counterfactuals" if episode.fork else "trajectory" if turn.sample == 0 else "candidates"
            self.calls[kind] += 1
            self.tokens[kind] += len(turn.completion.token_ids)

    def rows(self) -> Iterator[dict[str, Any]]:
        for kind in ("trajectory", "candidates", "counterfactuals"):
            yield {"kind": kind, "calls": self.calls[kind], "tokens": self.tokens[kind]}


def _ratio(part: float, whole: int) -> float | None:
    return part / whole if whole else None
