"""Epsilon-greedy on the mean value of each action in each state (Sutton and Barto 2018, sec. 2.2): a baseline.

q_s(a) = mean of the values seen;   p(a) = (1 - epsilon) 1[a in argmax q_s] / |argmax q_s| + epsilon / A
It has no regret guarantee: against values that move with its own play it can chase its tail.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float
from pydantic import Field

from ..records import ActionValues
from .base import Controller, ControllerSettings, FrozenController, by_state, exact_sum, speak_probs


class BanditSettings(ControllerSettings):
    """Settings of the epsilon-greedy controller."""

    epsilon: float = Field(default=0.1, ge=0, le=1)
    """Share of decisions taken uniformly at random while learning."""
    decay: float = Field(default=1.0, gt=0, le=1)
    """Weight of the past at each update; 1 is the plain mean, less follows changing values."""
    initial: float = Field(default=0.5, ge=0, le=1)
    """While learning: probability of action 1 (speak) in states not seen yet."""
    unseen: float = Field(default=1.0, ge=0, le=1)
    """In evaluation: probability of action 1 (speak) in states never seen in training."""


class BanditController:
    """Sums and counts of values, per state."""

    settings_type: ClassVar[type[BanditSettings]] = BanditSettings

    def __init__(self, settings: BanditSettings | None = None) -> None:
        self.settings = settings or BanditSettings()
        self._sums: dict[str, list[float]] = {}  # [A], decayed
        self._weights: dict[str, float] = {}  # decayed number of value vectors
        self._visits: dict[str, int] = {}

    def probs(self, state: str) -> Float[np.ndarray, " A"]:
        if state not in self._sums:
            return speak_probs(self.settings.initial, self.settings.n_actions)
        explore = np.full(self.settings.n_actions, 1.0 / self.settings.n_actions)
        return np.asarray((1 - self.settings.epsilon) * self._best(state) + self.settings.epsilon * explore)

    def _best(self, state: str) -> Float[np.ndarray, " A"]:
        sums = np.array(self._sums[state])
        best = (sums == sums.max()).astype(np.float64)
        return np.asarray(best / best.sum())

    def update(self, values: Sequence[ActionValues]) -> None:
        for state, vectors in by_state(values, self.settings.n_actions).items():
            old = self.settings.decay * np.array(self._sums.get(state, [0.0] * self.settings.n_actions))
            self._sums[state] = exact_sum([old, *vectors]).tolist()
            self._weights[state] = math.fsum([self.settings.decay * self._weights.get(state, 0.0), len(vectors)])
            self._visits[state] = self._visits.get(state, 0) + len(vectors)

    def average(self) -> Controller:
        """Greedy on the mean values, without exploration (a bandit's average play would keep its early mistakes)."""
        unseen = speak_probs(self.settings.unseen, self.settings.n_actions)
        return FrozenController({state: self._best(state) for state in self._sums}, unseen, self._visits)

    def report(self) -> dict[str, dict[str, Any]]:
        return {
            state: {
                "visits": self._visits[state],
                "strategy": self.probs(state).tolist(),
                "average_strategy": self._best(state).tolist(),
                "mean_values": (np.array(sums) / self._weights[state]).tolist(),
            }
            for state, sums in sorted(self._sums.items())
        }

    def state_dict(self) -> dict[str, Any]:
        return {
            state: {"sums": sums, "weight": self._weights[state], "visits": self._visits[state]}
            for state, sums in sorted(self._sums.items())
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._sums = {name: list(entry["sums"]) for name, entry in state.items()}
        self._weights = {name: float(entry["weight"]) for name, entry in state.items()}
        self._visits = {name: int(entry["visits"]) for name, entry in state.items()}
