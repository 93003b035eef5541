"""What a method is, and what one dialogue may ask of its driver."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Protocol, SupportsFloat

import numpy as np
from pydantic import BaseModel, ConfigDict

from counterpoint.controllers.base import Controller
from counterpoint.records import ActionValues, Completion, Episode, Fork, Request, Sample, Task, Turn
from counterpoint.tasks.grading import extract

Replies = list[list[Completion]]
Play = Generator[list[Request], Replies, str | None]
"""Yields requests, receives as many lists of completions, returns the team's answer."""
NO_HISTORY: Mapping[str, Any] = MappingProxyType({})


def read_answer(task: Task, completion: Completion) -> str | None:
    """The answer a reply gives; None when it is unreadable or was cut off at the length limit."""
    return extract(task.kind, completion.text) if completion.finish == "stop" else None


def reply_with(task: Task, replies: Sequence[Completion], answer: str | None) -> str | None:
    """The text of the first reply that gives `answer`: who speaks for a vote; the first of all where none does."""
    speaks = [c.text for c in replies if read_answer(task, c) == answer] or [c.text for c in replies]
    return speaks[0] if speaks else None


def sibling_groups(episode: Episode) -> dict[int, list[Turn]]:
    """The turns of a dialogue by request, siblings in order."""
    groups: dict[int, list[Turn]] = {}
    for turn in episode.turns:
        groups.setdefault(turn.group, []).append(turn)
    return groups


def training_step(episode: Episode) -> int:
    """The step of an episode of training ("train/STEP/..."); 0 of any other."""
    phase, _, rest = episode.id.partition("/")
    step = rest.partition("/")[0]
    return int(step) if phase == "train" and step.isdigit() else 0


class Seat(Protocol):
    """One dialogue's view of its driver."""

    agents: tuple[str, ...]

    @property
    def n(self) -> int:
        """How many siblings a request for a trained role asks for: the method's candidates in training, 1 otherwise."""
        ...

    def decide(self, controller: str, state: str) -> int:
        """The action that `controller` takes in `state`; recorded."""
        ...

    def present(self, agent: str) -> bool:
        """False in a fork that removes `agent` (an agent, or one "AGENT/ROLE": whatever the fork names)."""
        ...

    def seed(self, *path: str | int) -> int:
        """A keyed seed of this dialogue, the same in all its forks."""
        ...


@dataclass(slots=True)
class Credit:
    """What one group of episodes (a dialogue and its forks) teaches."""

    samples: list[Sample] = field(default_factory=list)
    values: list[ActionValues] = field(default_factory=list)
    metrics: dict[str, list[float]] = field(default_factory=dict)  # observations; the step reports their means
    streams: dict[str, list[float]] = field(default_factory=dict)  # outcomes for the global history
    rewards: dict[tuple[int, int], float] = field(
        default_factory=dict
    )  # by (group, sample), for whoever shows a dialogue

    def observe(self, name: str, value: SupportsFloat) -> None:
        """Add one observation of a metric."""
        self.metrics.setdefault(name, []).append(float(value))

    def learn(self, turns: Sequence[Turn], advantages: Sequence[float] | np.ndarray) -> None:
        """One sample a turn, with the advantage in the same place."""
        for turn, advantage in zip(turns, advantages, strict=True):
            c = turn.completion
            self.samples.append(Sample(turn.agent, c.prompt_ids, c.token_ids, c.logprobs, float(advantage)))

    def reward(self, turns: Sequence[Turn], rewards: Sequence[float] | np.ndarray) -> None:
        """Note what each reply was worth."""
        self.rewards |= {(t.group, t.sample): float(r) for t, r in zip(turns, rewards, strict=True)}

    def remember(self, name: str, values: Sequence[float] | np.ndarray) -> None:
        """Add outcomes to a stream."""
        self.streams.setdefault(name, []).extend(float(value) for value in values)


class Method(BaseModel):
    """A way for a team to answer a question: settings, prompts, play and credit in one file.

    Subclasses are frozen settings; `play` is straight-line code for one dialogue, `credit` is pure and works on records
    read back from disk.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    name: str
    """Which method."""
    roles: ClassVar[tuple[str, ...]] = ("solver",)
    trained: ClassVar[bool] = True

    @property
    def siblings(self) -> int:
        """How many candidates a trained request samples in training."""
        return 1

    @property
    def learns_from_forks(self) -> bool:
        """Whether counterfactual replies are learned from beside those of the dialogue, not in their place."""
        return False

    @abstractmethod
    def play(self, task: Task, seat: Seat) -> Play:
        """One dialogue."""

    def forks(self, episode: Episode, history: Mapping[str, Any] = NO_HISTORY) -> list[Fork]:
        """Counterfactual dialogues that credit needs beside this one, unless `history` holds what they would tell."""
        return []

    def play_fork(self, task: Task, seat: Seat, fork: Fork, parent: Episode) -> Play:
        """A fork's dialogue: `play`, which the driver replays up to the fork, unless its `kind` asks for another."""
        return self.play(task, seat)

    def credit(self, episode: Episode, forks: Sequence[Episode], history: Mapping[str, Any]) -> Credit:
        """Samples and action values of one dialogue and its forks; `history` holds the run's global statistics."""
        return Credit()

    def remember(self, history: Mapping[str, Any], streams: Mapping[str, list[float]]) -> dict[str, Any]:
        """The global history after a step whose credits left `streams`; JSON-able, saved in every checkpoint."""
        return dict(history)

    def figures(self, streams: Mapping[str, list[float]]) -> dict[str, float]:
        """Metrics of a whole step that are no means over its dialogues, from the streams of its credits."""
        return {}

    def controllers(self, agents: Sequence[str]) -> dict[str, Controller]:
        """Fresh controllers by name."""
        return {}

    def verdicts(self, episode: Episode) -> list[tuple[bool, str | None]]:
        """(whether the judged answer was right, "right", "wrong" or None as it was read) of every review played."""
        return []

    def last_solution(self, episode: Episode) -> str | None:
        """The text that the team's answer was read from: by default that of the last reply played."""
        played = [t for t in episode.turns if t.sample == 0]
        return played[-1].completion.text if played else None

    def first_answer(self, episode: Episode) -> str | None:
        """The team's answer before anybody had a second look: by default the first reply's."""
        return read_answer(episode.task, episode.turns[0].completion) if episode.turns else None
