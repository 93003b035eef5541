"""A controller that never learns: speak with a constant probability in every state (1: always, 0: never)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float
from pydantic import Field

from ..records import ActionValues
from .base import Controller, ControllerSettings, speak_probs


class FixedSettings(ControllerSettings):
    """Settings of the constant controller."""

    p_speak: float = Field(default=1.0, ge=0, le=1)
    """Probability of action 1 (speak); other actions share the rest evenly."""


class FixedController:
    """The same distribution everywhere, before and after every update."""

    settings_type: ClassVar[type[FixedSettings]] = FixedSettings

    def __init__(self, settings: FixedSettings | None = None) -> None:
        self.settings = settings or FixedSettings()

    def probs(self, state: str) -> Float[np.ndarray, " A"]:
        return speak_probs(self.settings.p_speak, self.settings.n_actions)

    def update(self, values: Sequence[ActionValues]) -> None:
        """Does nothing: the strategy is constant."""

    def average(self) -> Controller:
        return self

    def report(self) -> dict[str, dict[str, Any]]:
        """Empty: no state is told from another."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Does nothing: there is nothing to restore."""
