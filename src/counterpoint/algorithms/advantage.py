"""Advantages of one group of siblings: baseline x scale x squash, each a function; and which groups carry no signal.

A group is G samples of one context. A baseline that does not depend on the sample's own reward (leave-one-out, solo
mean, their blend) leaves the expected gradient as it is and changes only its variance.
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from jaxtyping import Bool, Float

Baseline = Literal["none", "group_mean", "leave_one_out", "solo_mean", "blended"]
Scale = Literal["none", "group_std", "history_std"]
Squash = Literal["none", "tanh"]


def group_mean(rewards: Float[np.ndarray, " G"]) -> Float[np.ndarray, " G"]:
    """b_i = (1/G) sum_j r_j  (GRPO, arXiv 2402.03300). Holds r_i itself: shrinks the gradient by (G-1)/G."""
    return np.full_like(rewards, rewards.mean())


def leave_one_out(rewards: Float[np.ndarray, " G"]) -> Float[np.ndarray, " G"]:
    """b_i = (1/(G-1)) sum_{j != i} r_j  (RLOO, arXiv 2402.14740). Needs two siblings."""
    if len(rewards) < 2:
        raise ValueError(f"leave_one_out needs a group of at least 2, got {len(rewards)}")
    return np.asarray((rewards.sum() - rewards) / (len(rewards) - 1))


def solo_mean(rewards: Float[np.ndarray, " G"], solo: Float[np.ndarray, " M"]) -> Float[np.ndarray, " G"]:
    """b_i = (1/M) sum_m S_m: the mean outcome with the agent removed (CCPO, arXiv 2603.21563)."""
    if len(solo) == 0:
        raise ValueError("solo_mean needs at least 1 solo outcome, got none")
    return np.full_like(rewards, solo.mean())


def blended(
    rewards: Float[np.ndarray, " G"], solo: Float[np.ndarray, " M"], *, weight: float
) -> Float[np.ndarray, " G"]:
    """b_i = w leave_one_out_i + (1 - w) solo_mean; `history.blend_weight` gives the w of least variance."""
    return weight * leave_one_out(rewards) + (1 - weight) * solo_mean(rewards, solo)


def group_std(rewards: Float[np.ndarray, " G"]) -> float:
    """sigma = sqrt( (1/G) sum_j (r_j - mean)^2 ): the population standard deviation."""
    return float(rewards.std())


def zero_signal(rewards: Float[np.ndarray, "Q G"], *, min_std: float) -> Bool[np.ndarray, " Q"]:
    """True for groups whose population std is under `min_std` (TRACER: 0.05): skip and count them."""
    return np.asarray(rewards.std(axis=1) < min_std)


def batch_standardise(advantages: Float[np.ndarray, " B"], *, epsilon: float = 1e-8) -> Float[np.ndarray, " B"]:
    """(A - mean) / (std + epsilon) over the whole batch (REINFORCE++, arXiv 2501.03262)."""
    return np.asarray((advantages - advantages.mean()) / (advantages.std() + epsilon))


def advantages(
    rewards: Float[np.ndarray, " G"],
    *,
    baseline: Baseline,
    scale: Scale = "none",
    squash: Squash = "none",
    solo: Float[np.ndarray, " M"] | None = None,
    weight: float = 0.5,
    history_std: float | None = None,
    min_std: float = 0.0,
) -> Float[np.ndarray, " G"]:
    """A_i = squash( (r_i - b_i) / sigma ), one group.

    All zero when scale is "group_std" and the group's std is under `min_std` or 0. `solo` is needed by the baselines
    "solo_mean" and "blended", `weight` by "blended", `history_std` by the scale of that name.
    """
    centred = rewards - _baseline(rewards, baseline, solo, weight)
    scaled = centred / _sigma(rewards, scale, history_std, min_std)
    return np.asarray(np.tanh(scaled) if squash == "tanh" else scaled)


def _baseline(
    rewards: Float[np.ndarray, " G"], baseline: Baseline, solo: Float[np.ndarray, " M"] | None, weight: float
) -> Float[np.ndarray, " G"]:
    if baseline in ("solo_mean", "blended") and solo is None:
        raise ValueError(f"baseline {baseline!r} needs solo outcomes, got none")
    match baseline:
        case "none":
            return np.zeros_like(rewards)
        case "group_mean":
            return group_mean(rewards)
        case "leave_one_out":
            return leave_one_out(rewards)
        case "solo_mean":
            return solo_mean(rewards, np.asarray(solo))
        case "blended":
            return blended(rewards, np.asarray(solo), weight=weight)
    raise ValueError(f"baseline is one of {get_args(Baseline)}, got {baseline!r}")


def _sigma(rewards: Float[np.ndarray, " G"], scale: Scale, history_std: float | None, min_std: float) -> float:
    match scale:
        case "none":
            return 1.0
        case "group_std":
            sigma = group_std(rewards)
            return sigma if sigma > 0 and sigma >= min_std else np.inf  # infinite: the group is skipped
        case "history_std":
            if history_std is None or not history_std > 0:
                raise ValueError(f"scale 'history_std' needs a positive history_std, got {history_std}")
            return history_std
    raise ValueError(f"scale is one of {get_args(Scale)}, got {scale!r}")
