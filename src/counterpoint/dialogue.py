"""What a method is, and what one dialogue may ask of its driver."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from pydantic import BaseModel, ConfigDict

from counterpoint.controllers.base import Controller
from counterpoint.records import ActionValues, Completion, Episode, Fork, Request, Sample, Task
from counterpoint.tasks.grading import extract

Replies = list[list[Completion]]
Play = Generator[list[Request], Replies, str | None]
"""Yields requests, receives as many lists of completions, returns the team's answer."""


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
        """False in a fork that removes `agent`."""
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

    def observe(self, name: str, value: float) -> None:
        """Add one observation of a metric."""
        self.metrics.setdefault(name, []).append(float(value))


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
    def requests(self) -> int:
        """At most how many requests one dialogue makes."""
        return 1

    @abstractmethod
    def play(self, task: Task, seat: Seat) -> Play:
        """One dialogue."""

    def forks(self, episode: Episode) -> list[Fork]:
        """Counterfactual dialogues that credit needs beside this one."""
        return []

    def credit(self, episode: Episode, forks: Sequence[Episode], history: Mapping[str, Any]) -> Credit:
        """Samples and action values of one dialogue and its forks; `history` holds the run's global statistics."""
        return Credit()

    def remember(self, history: Mapping[str, Any], streams: Mapping[str, list[float]]) -> dict[str, Any]:
        """The global history after a step whose credits left `streams`; JSON-able, saved in every checkpoint."""
        return dict(history)

    def controllers(self, agents: Sequence[str]) -> dict[str, Controller]:
        """Fresh controllers by name."""
        return {}

    def first_answer(self, episode: Episode) -> str | None:
        """The team's answer before anybody had a second look: by default the first reply's."""
        return extract(episode.task.kind, episode.turns[0].completion.text) if episode.turns else None
