"""The regret-matching controller: one matcher for each state (TRACER, arXiv 2605.28699).

The equations are in algorithms/regret.py. Differs from the paper: by default regrets are summed over a step with the
strategies frozen inside it, so order and sharding do not matter (`update: turn` is the published way); states never
seen play a declared default and are counted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from jaxtyping import Float
from pydantic import Field

from ..algorithms import regret as rm
from ..records import ActionValues
from .base import Controller, ControllerSettings, FrozenController, by_state, exact_sum, speak_probs


class RegretSettings(ControllerSettings):
    """Settings of the regret-matching controller."""

    rule: Literal["rm", "rm_plus", "discounted"] = "rm"
    """Regret matching; RM+ (cuts negative regret, follows changes sooner); or discounted regret (follows soonest)."""
    averaging: Literal["uniform", "linear", "power"] = "uniform"
    """Weight of update t in the average strategy: 1, t, or t to the power `gamma`."""
    update: Literal["batch", "turn"] = "batch"
    """batch: sum a step's regrets under frozen strategies. turn: one after another (published; order matters)."""
    initial: float = Field(default=0.5, ge=0, le=1)
    """While learning: probability of action 1 (speak) where no regret is positive, new states included."""
    unseen: float = Field(default=1.0, ge=0, le=1)
    """In evaluation: probability of action 1 (speak) in states never seen in training."""
    alpha: float = 1.5
    """Discounted only: positive regret is multiplied by t^alpha / (t^alpha + 1)."""
    beta: float = 0.0
    """Discounted only: negative regret is multiplied by t^beta / (t^beta + 1)."""
    gamma: float = Field(default=2.0, ge=0)
    """Averaging "power" only."""


@dataclass(slots=True)
class _Matcher:
    """What one state has accumulated."""

    cumulative: list[float]  # [A] R, as the rule has it
    regret: list[float]  # [A] plain sum of instantaneous regrets, whatever the rule
    strategy_sum: list[float]  # [A]
    updates: int = 0
    visits: int = 0
    square_visits: int = 0  # sum over updates of (visits in it)^2
    square_norms: float = 0.0  # sum over updates of ||r||^2
    max_gap: float = 0.0


class RegretController:
    """Regret matching on the values of all actions, one matcher a state."""

    settings_type: ClassVar[type[RegretSettings]] = RegretSettings

    def __init__(self, settings: RegretSettings | None = None) -> None:
        self.settings = settings or RegretSettings()
        self._matchers: dict[str, _Matcher] = {}
        self._initial = speak_probs(self.settings.initial, self.settings.n_actions)

    def probs(self, state: str) -> Float[np.ndarray, " A"]:
        matcher = self._matchers.get(state)
        if matcher is None:
            return self._initial.copy()
        return rm.regret_matching(np.array(matcher.cumulative), default=self._initial)

    def update(self, values: Sequence[ActionValues]) -> None:
        for state, vectors in by_state(values, self.settings.n_actions).items():
            if self.settings.update == "batch":
                self._learn(state, vectors)
            else:
                for vector in vectors:
                    self._learn(state, [vector])

    def _learn(self, state: str, vectors: list[Float[np.ndarray, " A"]]) -> None:
        """One update of one state from decisions that were all made with its present strategy."""
        zeros = [0.0] * self.settings.n_actions
        matcher = self._matchers.setdefault(state, _Matcher(zeros, zeros, zeros))
        probs = self.probs(state)
        total = exact_sum(rm.instantaneous_regret(vector, probs) for vector in vectors)
        matcher.updates += 1
        matcher.visits += len(vectors)
        matcher.square_visits += len(vectors) ** 2
        matcher.square_norms += math.fsum(x * x for x in total)
        matcher.max_gap = max(matcher.max_gap, *(float(np.ptp(vector)) for vector in vectors))
        weight = len(vectors) * self._weight(matcher.updates)
        matcher.strategy_sum = rm.accumulate(np.array(matcher.strategy_sum), probs, weight=weight).tolist()
        matcher.regret = rm.plain_update(np.array(matcher.regret), total).tolist()
        matcher.cumulative = self._apply_rule(np.array(matcher.cumulative), total, matcher.updates).tolist()

    def _apply_rule(
        self, cumulative: Float[np.ndarray, " A"], regret: Float[np.ndarray, " A"], t: int
    ) -> Float[np.ndarray, " A"]:
        match self.settings.rule:
            case "rm":
                return rm.plain_update(cumulative, regret)
            case "rm_plus":
                return rm.plus_update(cumulative, regret)
            case "discounted":
                return rm.discounted_update(cumulative, regret, t=t, alpha=self.settings.alpha, beta=self.settings.beta)

    def _weight(self, t: int) -> float:
        match self.settings.averaging:
            case "uniform":
                return rm.uniform_weight(t)
            case "linear":
                return rm.linear_weight(t)
            case "power":
                return rm.power_weight(t, gamma=self.settings.gamma)

    def average(self) -> Controller:
        """The average strategy of every state seen; other states play `unseen`."""
        table = {state: rm.average_strategy(np.array(m.strategy_sum)) for state, m in self._matchers.items()}
        unseen = speak_probs(self.settings.unseen, self.settings.n_actions)
        return FrozenController(table, unseen, {state: m.visits for state, m in self._matchers.items()})

    def report(self) -> dict[str, dict[str, Any]]:
        """For each state: visits, strategies, average external regret, its worst-case bound and their ratio `gauge`.

        A gauge above 1 is a bug for the rules rm and rm_plus, as long as the values fed are expectations, not samples.
        """
        return {state: self._report(state, matcher) for state, matcher in sorted(self._matchers.items())}

    def _report(self, state: str, matcher: _Matcher) -> dict[str, Any]:
        bound = rm.regret_bound(gap=matcher.max_gap, updates=matcher.square_visits, actions=self.settings.n_actions)
        regret = max(matcher.regret)
        return {
            "visits": matcher.visits,
            "strategy": self.probs(state).tolist(),
            "average_strategy": rm.average_strategy(np.array(matcher.strategy_sum)).tolist(),
            "average_regret": regret / matcher.visits,
            "bound": bound / matcher.visits,
            "data_bound": rm.data_bound([matcher.square_norms]) / matcher.visits,
            "gauge": regret / bound if bound > 0 else 0.0,
        }

    def state_dict(self) -> dict[str, Any]:
        return {"matchers": {state: asdict(matcher) for state, matcher in sorted(self._matchers.items())}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._matchers = {name: _Matcher(**matcher) for name, matcher in state["matchers"].items()}
