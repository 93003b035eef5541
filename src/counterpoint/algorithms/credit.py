"""The credit presets of CCPO (arXiv 2603.21563): published_v1, published (event or continuous) and effective.

J, joint: verified outcome with everyone; S, solo: outcome with the thinker removed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Float

from .advantage import advantages
from .history import PublishedMoments, published_std, published_update

EPSILON = 1e-6


@dataclass(frozen=True, slots=True)
class CreditHistory:
    """The three streams of the first paper."""

    delta: PublishedMoments = field(default_factory=PublishedMoments)
    joint: PublishedMoments = field(default_factory=PublishedMoments)
    solo: PublishedMoments = field(default_factory=PublishedMoments)


def outcomes(
    right: Bool[np.ndarray, " B"], truncated: Bool[np.ndarray, " B"], *, low: float = -1.0, high: float = 1.0
) -> Float[np.ndarray, " B"]:
    """`high` where right and whole, `low` elsewhere: a truncated reply is never better than a wrong one."""
    return np.where(right & ~truncated, high, low)


def update_history(
    history: CreditHistory, joint: Float[np.ndarray, " B"], solo: Float[np.ndarray, " B"], *, decay: float = 0.99
) -> CreditHistory:
    """All three streams, after the batch was credited."""
    return CreditHistory(
        published_update(history.delta, joint - solo, decay=decay),
        published_update(history.joint, joint, decay=decay),
        published_update(history.solo, solo, decay=decay),
    )


def solver_gate(history: CreditHistory, *, eta: float = 1.0) -> float:
    """g = sigmoid( clip( eta mu_Delta / (sigma_Delta + 1e-6), -20, 20 ) ): one number for the batch."""
    x = eta * history.delta.mean / (published_std(history.delta) + EPSILON)
    return 1.0 / (1.0 + math.exp(-min(max(x, -20.0), 20.0)))


def published_v1(
    joint: Float[np.ndarray, " B"],
    solo: Float[np.ndarray, " B"],
    history: CreditHistory,
    *,
    alpha: float = 1.0,
    eta: float = 1.0,
) -> tuple[Float[np.ndarray, " B"], Float[np.ndarray, " B"]]:
    """Rewards (thinker, solver) of the first paper; row k's solo is `counterfactual.pair_solos`' k-th.

    Delta = J - S;  z_x = (x - mu_x) / (sigma_x + 1e-6)
    r_thinker = tanh(alpha z_Delta);  r_solver = g z_J + (1 - g) z_S
    The first batch, without statistics: raw Delta and raw J. Group standardisation follows (`advantage.advantages`).
    A partner drawn per row adds noise, z_S rewards joint tokens for an unrelated sample, and affine z-scores vanish
    under group standardisation.
    """
    delta = joint - solo
    if history.delta.batches == 0:
        return delta, joint.copy()
    gate = solver_gate(history, eta=eta)
    thinker = np.tanh(alpha * _z(delta, history.delta))
    return thinker, np.asarray(gate * _z(joint, history.joint) + (1 - gate) * _z(solo, history.solo))


def _z(x: Float[np.ndarray, " B"], stream: PublishedMoments) -> Float[np.ndarray, " B"]:
    return np.asarray((x - stream.mean) / (published_std(stream) + EPSILON))


def published_event(
    joint: Float[np.ndarray, " G"], baseline: Float[np.ndarray, " G"], *, weight: float = 0.2
) -> Float[np.ndarray, " G"]:
    """r_thinker = J + lambda (helped - hurt);  helped = 1[J > 0 and b < 0], hurt = 1[J < 0 and b > 0];  r_solver = J.

    With b = `advantage.solo_mean`, constant in a question's group, the centred advantage is exactly 1, 1 + lambda / 2
    (or, with std normalisation, exactly 1) times the plain one: it cannot tell a helpful thought from another.
    """
    helped, hurt = (joint > 0) & (baseline < 0), (joint < 0) & (baseline > 0)
    return np.asarray(joint + weight * (helped.astype(np.float64) - hurt.astype(np.float64)))


def published_continuous(
    joint: Float[np.ndarray, " G"], baseline: Float[np.ndarray, " G"], *, weight: float = 0.2
) -> Float[np.ndarray, " G"]:
    """r_thinker = J + lambda (J - b) / 2;  r_solver = J. Centred: exactly 1 + lambda / 2 times the plain advantage."""
    return np.asarray(joint + weight * (joint - baseline) / 2)


def effective(
    joint: Float[np.ndarray, " G"], solo: Float[np.ndarray, " M"], *, weight: float, sigma: float
) -> Float[np.ndarray, " G"]:
    """Ours: A = (J - b) / sigma with b = w leave_one_out(J) + (1 - w) mean(S), one question's group.

    w = `history.blend_weight` and sigma = `history.std`, both from before the batch: b and sigma do not depend on the
    row's own sample, so the expected gradient is that of J / sigma, with no more variance than under either baseline
    alone; and groups that are all right or all wrong still carry a signal when the solver alone does otherwise.
    """
    return advantages(joint, baseline="blended", scale="history_std", solo=solo, weight=weight, history_std=sigma)
