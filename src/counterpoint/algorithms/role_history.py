"""The run's statistics of one role's outcomes, as plain numbers that a checkpoint keeps: what `effective` needs.

state = {"moments": {...}, "blend": {...}} of history.Moments and history.Blend; an empty state knows nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

import numpy as np
from jaxtyping import Float

from .history import Blend, Moments, blend_update, blend_weight, std, update

State = Mapping[str, Mapping[str, float]]


def weight_and_sigma(state: State) -> tuple[float, float]:
    """(w, sigma): the blend of least variance and the standard deviation so far; (1/2, 1) before the first batch."""
    return blend_weight(Blend(**state.get("blend", {}))), std(Moments(**state.get("moments", {})))


def updated(
    state: State,
    rewards: Float[np.ndarray, " B"],
    left_out: Float[np.ndarray, " B"],
    solo: Float[np.ndarray, " B"],
    *,
    decay: float = 0.99,
) -> dict[str, dict[str, float]]:
    """The state after a batch: its rewards, and the two baselines of each row."""
    moments = update(Moments(**state.get("moments", {})), rewards, decay=decay)
    blend = blend_update(Blend(**state.get("blend", {})), rewards, left_out, solo, decay=decay)
    return {"moments": asdict(moments), "blend": asdict(blend)}
