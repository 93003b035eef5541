"""The contract of a controller, what all of them share, and the frozen controller that evaluation uses.

A controller decides when an agent speaks: it maps a state (a string) to a distribution over A actions; with two,
action 0 is skip and action 1 is speak. It draws nothing itself: callers draw from `probs` with keyed randomness.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float
from pydantic import BaseModel, ConfigDict, Field

from ..records import ActionValues

SPEAK = 1


@runtime_checkable
class Controller(Protocol):
    """What the driver, the trainer and the checkpoint need."""

    def probs(self, state: str) -> Float[np.ndarray, " A"]:
        """The distribution over actions in `state`. Frozen between updates."""
        ...

    def update(self, values: Sequence[ActionValues]) -> None:
        """Learn from one step's values: independent of their order, so of how the step was sharded."""
        ...

    def average(self) -> Controller:
        """The frozen controller to evaluate with."""
        ...

    def report(self) -> dict[str, dict[str, Any]]:
        """{state: visits, strategy and what else this controller knows}; JSON-able."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Everything learned, JSON-able; a round trip through JSON is bit-exact."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue exactly where `state_dict` was taken."""
        ...


class ControllerSettings(BaseModel):
    """What every controller can be told."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    n_actions: int = Field(default=2, ge=2)
    """Number of actions; with 2, action 0 is skip and action 1 is speak."""


def speak_probs(p_speak: float, n_actions: int) -> Float[np.ndarray, " A"]:
    """Probability `p_speak` on action 1, the rest shared evenly by the others."""
    probs = np.full(n_actions, (1.0 - p_speak) / (n_actions - 1))
    probs[SPEAK] = p_speak
    return probs


def greedy(probs: Float[np.ndarray, " A"]) -> int:
    """The most probable action; action 1 (speak) wins a tie it is in, else the lowest index does."""
    best = probs.max()
    return SPEAK if probs[SPEAK] == best else int(probs.argmax())


def draw(probs: Float[np.ndarray, " A"], u: float) -> int:
    """The action at `u` in [0, 1) of the cumulative distribution; never one of probability 0."""
    possible = np.flatnonzero(probs)
    index = int(np.searchsorted(np.cumsum(probs[possible]), u, side="right"))
    return int(possible[min(index, len(possible) - 1)])


def by_state(values: Sequence[ActionValues], n_actions: int) -> dict[str, list[Float[np.ndarray, " A"]]]:
    """The value vectors of each state, states sorted, vectors in the order given. Refuses a wrong width and nan."""
    groups: dict[str, list[Float[np.ndarray, " A"]]] = {}
    for item in values:
        vector = np.asarray(item.values, dtype=np.float64)
        if vector.shape != (n_actions,) or not np.isfinite(vector).all():
            raise ValueError(f"state {item.state!r}: needs {n_actions} finite values, got {item.values}")
        groups.setdefault(item.state, []).append(vector)
    return dict(sorted(groups.items()))


def exact_sum(vectors: Iterable[Float[np.ndarray, " A"]]) -> Float[np.ndarray, " A"]:
    """The correctly rounded sum of vectors: bit-equal for every order (math.fsum)."""
    return np.array([math.fsum(column) for column in zip(*vectors, strict=True)])


class FrozenController:
    """A table of strategies that no longer learns. States it never saw get `unseen`; evaluate.py counts these decisions."""

    def __init__(
        self, table: Mapping[str, Float[np.ndarray, " A"]], unseen: Float[np.ndarray, " A"], visits: Mapping[str, float]
    ) -> None:
        self._table = {state: np.array(probs, dtype=np.float64) for state, probs in table.items()}
        self._unseen = np.array(unseen, dtype=np.float64)
        self._visits = dict(visits)

    def probs(self, state: str) -> Float[np.ndarray, " A"]:
        return self._table.get(state, self._unseen).copy()

    def update(self, values: Sequence[ActionValues]) -> None:
        """Does nothing: it is frozen."""

    def average(self) -> Controller:
        return self

    def report(self) -> dict[str, dict[str, Any]]:
        return {
            state: {"visits": self._visits.get(state, 0), "strategy": probs.tolist()}
            for state, probs in sorted(self._table.items())
        }

    def state_dict(self) -> dict[str, Any]:
        return {
            "table": {state: probs.tolist() for state, probs in sorted(self._table.items())},
            "unseen": self._unseen.tolist(),
            "visits": dict(sorted(self._visits.items())),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._table = {name: np.array(probs, dtype=np.float64) for name, probs in state["table"].items()}
        self._unseen = np.array(state["unseen"], dtype=np.float64)
        self._visits = dict(state["visits"])
