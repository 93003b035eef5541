"""Running statistics of a stream over the whole run: frozen states and pure updates (CCPO's global history).

Normalise a batch with the state from before it, then update: so no sample moves its own baseline. States are plain
numbers; dataclasses.asdict and the constructor round-trip them exactly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

MIN_VARIANCE = 1e-6


@dataclass(frozen=True, slots=True)
class PublishedMoments:
    """Mean and within-batch variance, as published."""

    mean: float = 0.0
    variance: float = 0.0
    batches: int = 0


def published_update(
    state: PublishedMoments, batch: Float[np.ndarray, " B"], *, decay: float = 0.99
) -> PublishedMoments:
    """mu <- decay mu + (1 - decay) mean(x);  var <- decay var + (1 - decay) var(x);  the first batch seeds both.

    (CCPO, arXiv 2603.21563, global-history-aware normalisation.) var(x) is the population variance inside the batch, so
    a drifting mean does not show in it. An empty batch changes nothing.
    """
    if len(batch) == 0:
        return state
    mean, variance = float(batch.mean()), float(batch.var())
    if state.batches == 0:
        return PublishedMoments(mean, variance, 1)
    return PublishedMoments(
        decay * state.mean + (1 - decay) * mean,
        decay * state.variance + (1 - decay) * variance,
        state.batches + 1,
    )


def published_std(state: PublishedMoments) -> float:
    """sigma = sqrt(var) if var > 1e-6 else 1."""
    return _std(state.variance)


@dataclass(frozen=True, slots=True)
class Moments:
    """EMAs of E[x] and E[x^2], biased towards 0 until corrected."""

    first: float = 0.0
    second: float = 0.0
    weight: float = 0.0  # 1 - decay^batches: what the EMAs are divided by


def update(state: Moments, batch: Float[np.ndarray, " B"], *, decay: float = 0.99) -> Moments:
    """m1 <- decay m1 + (1 - decay) mean(x);  m2 <- decay m2 + (1 - decay) mean(x^2);  w <- decay w + (1 - decay).

    An empty batch changes nothing.
    """
    if len(batch) == 0:
        return state
    return Moments(
        decay * state.first + (1 - decay) * float(batch.mean()),
        decay * state.second + (1 - decay) * float(np.square(batch).mean()),
        decay * state.weight + (1 - decay),
    )


def mean(state: Moments) -> float:
    """mu = m1 / w (bias correction as in Adam, arXiv 1412.6980, sec. 3); 0 before the first batch."""
    return state.first / state.weight if state.weight > 0 else 0.0


def std(state: Moments) -> float:
    """sigma = sqrt( m2 / w - mu^2 ): *total* variance, so a drifting mean shows; 1 when it is under 1e-6."""
    if state.weight == 0:
        return 1.0
    return _std(state.second / state.weight - mean(state) ** 2)


def _std(variance: float) -> float:
    return math.sqrt(variance) if variance > MIN_VARIANCE else 1.0


@dataclass(frozen=True, slots=True)
class Blend:
    """What the weight between two baselines of a reward R is fitted from."""

    cross: float = 0.0  # EMA of (R - solo)(leave_one_out - solo)
    square: float = 0.0  # EMA of (leave_one_out - solo)^2
    weight: float = 0.0


def blend_update(
    state: Blend,
    rewards: Float[np.ndarray, " B"],
    left_out: Float[np.ndarray, " B"],
    solo: Float[np.ndarray, " B"],
    *,
    decay: float = 0.99,
) -> Blend:
    """EMAs over batches of the two moments in the normal equation of `blend_weight`, rows of all questions together."""
    if len(rewards) == 0:
        return state
    gap = left_out - solo
    return Blend(
        decay * state.cross + (1 - decay) * float(((rewards - solo) * gap).mean()),
        decay * state.square + (1 - decay) * float(np.square(gap).mean()),
        decay * state.weight + (1 - decay),
    )


def blend_weight(state: Blend, *, initial: float = 0.5) -> float:
    """The w in [0, 1] that minimises E[(R - b)^2] for b = w leave_one_out + (1 - w) solo_mean.

    w = E[(R - solo)(loo - solo)] / E[(loo - solo)^2], cut to [0, 1]: a quadratic's minimum over an interval that holds
    both ends, so never worse than either baseline alone. `initial` before the first batch and while both always agree.
    """
    if state.square <= MIN_VARIANCE * state.weight:
        return initial
    return min(max(state.cross / state.square, 0.0), 1.0)
