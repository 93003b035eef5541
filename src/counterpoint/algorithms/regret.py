"""Regret matching and its variants for one information state, and the bounds they obey.

Notation: v values, p strategy, r instantaneous regret, R cumulative regret, all [A]; gap = max_a v(a) - min_a v(a).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float


def instantaneous_regret(
    values: Float[np.ndarray, " A"], probs: Float[np.ndarray, " A"], *, mask: Bool[np.ndarray, " A"] | None = None
) -> Float[np.ndarray, " A"]:
    """r(a) = v(a) - sum_b p(b) v(b)  (Hart and Mas-Colell 2000). Actions outside `mask` have no regret: exactly 0."""
    if mask is not None:
        values, probs = np.where(mask, values, 0.0), np.where(mask, probs, 0.0)
    regret = values - float(probs @ values)
    return regret if mask is None else np.where(mask, regret, 0.0)


def regret_matching(
    cumulative: Float[np.ndarray, " A"],
    *,
    default: Float[np.ndarray, " A"] | None = None,
    mask: Bool[np.ndarray, " A"] | None = None,
) -> Float[np.ndarray, " A"]:
    """p(a) = max(R(a), 0) / sum_b max(R(b), 0)  (Hart and Mas-Colell 2000).

    With no positive regret: `default` (uniform if not given). Actions outside `mask` get probability exactly 0.
    """
    allowed = np.ones(len(cumulative), dtype=bool) if mask is None else mask
    if not allowed.any():
        raise ValueError("regret_matching needs at least one allowed action, got none")
    positive = np.where(allowed, np.maximum(cumulative, 0.0), 0.0)
    if not positive.any():
        positive = np.where(allowed, 1.0 if default is None else default, 0.0)
    if not positive.any():  # the default lies on forbidden actions only
        positive = allowed.astype(np.float64)
    positive = positive / positive.max()  # keeps the sum normal when the regrets are tiny or huge
    return np.asarray(positive / positive.sum())


def plain_update(cumulative: Float[np.ndarray, " A"], regret: Float[np.ndarray, " A"]) -> Float[np.ndarray, " A"]:
    """R <- R + r: regret matching (RM)."""
    return np.asarray(cumulative + regret)


def plus_update(cumulative: Float[np.ndarray, " A"], regret: Float[np.ndarray, " A"]) -> Float[np.ndarray, " A"]:
    """R <- max(R + r, 0): regret matching plus, RM+ (Tammelin 2014, arXiv 1407.5042)."""
    return np.asarray(np.maximum(cumulative + regret, 0.0))


def discounted_update(
    cumulative: Float[np.ndarray, " A"],
    regret: Float[np.ndarray, " A"],
    *,
    t: int,
    alpha: float = 1.5,
    beta: float = 0.0,
) -> Float[np.ndarray, " A"]:
    """Discounted regret, DCFR (Brown and Sandholm 2019, arXiv 1809.04040, sec. 4); t = 1, 2, ... counts updates.

    R <- R + r, then positive entries times t^alpha / (t^alpha + 1), negative ones times t^beta / (t^beta + 1)
    """
    total = cumulative + regret
    return np.asarray(total * np.where(total > 0, _shrink(t, alpha), _shrink(t, beta)))


def _shrink(t: int, power: float) -> float:
    """t^power / (t^power + 1) = sigmoid(power log t), finite for large powers of either sign."""
    return 1.0 / (1.0 + math.exp(-min(max(power * math.log(t), -700.0), 700.0)))


def uniform_weight(t: int) -> float:
    """w_t = 1."""
    del t
    return 1.0


def linear_weight(t: int) -> float:
    """w_t = t (CFR+: Tammelin 2014)."""
    return float(t)


def power_weight(t: int, *, gamma: float) -> float:
    """w_t = t^gamma (DCFR; gamma 0 is uniform, 1 linear)."""
    return float(float(t) ** gamma)


def accumulate(
    strategy_sum: Float[np.ndarray, " A"], probs: Float[np.ndarray, " A"], *, weight: float
) -> Float[np.ndarray, " A"]:
    """C <- C + w_t p_t."""
    return np.asarray(strategy_sum + weight * probs)


def average_strategy(
    strategy_sum: Float[np.ndarray, " A"], *, default: Float[np.ndarray, " A"] | None = None
) -> Float[np.ndarray, " A"]:
    """sum_t w_t p_t / sum_t w_t; `default` (uniform if not given) when nothing was accumulated."""
    total = strategy_sum.sum()
    if total > 0:
        return np.asarray(strategy_sum / total)
    return np.full(len(strategy_sum), 1.0 / len(strategy_sum)) if default is None else default.copy()


def external_regret(values: Float[np.ndarray, "T A"], strategies: Float[np.ndarray, "T A"]) -> float:
    """max_a sum_t [ v_t(a) - <p_t, v_t> ]: against the best fixed action."""
    return float(values.sum(axis=0).max() - np.sum(values * strategies))


def tracking_regret(values: Float[np.ndarray, "T A"], strategies: Float[np.ndarray, "T A"]) -> float:
    """sum_t [ max_a v_t(a) - <p_t, v_t> ]: against each step's best action. No bound; shows who follows change."""
    return float(values.max(axis=1).sum() - np.sum(values * strategies))


def regret_bound(*, gap: float, updates: float, actions: int = 2) -> float:
    """max_a R_T(a) <= gap sqrt((A - 1) T): total regret of RM and RM+ after T updates with gaps of at most `gap`.

    ||r||^2 is largest, (A - 1) gap^2, for a strategy pure on the one action that differs; so two actions have
    gap sqrt(T), while the classical gap sqrt(A T) (Cesa-Bianchi and Lugosi 2006, sec. 2.1) is looser. When update k
    sums the regrets of n_k decisions, pass updates = sum_k n_k^2.
    """
    return float(gap * np.sqrt((actions - 1) * updates))


def data_bound(squared_norms: Sequence[float] | Float[np.ndarray, " T"]) -> float:
    """max_a R_T(a) <= sqrt( sum_t ||r_t||^2 ): total regret, from what was seen (RM and RM+)."""
    return float(np.sqrt(np.sum(np.asarray(squared_norms, dtype=np.float64))))


def states_bound(*, gap: float, visits: Sequence[int], actions: int = 2) -> float:
    """sum_s gap sqrt((A - 1) T_s): regret bounds hold for each information state, so they add up over states."""
    return float(sum(regret_bound(gap=gap, updates=count, actions=actions) for count in visits))


def sampled_slack(*, gap: float, updates: int, agents: int, actions: int, delta: float) -> float:
    """Azuma: gap sqrt( 2 ln(2 N A / delta) / T ), what average regret may gain when values are single samples.

    Holds for all N agents and A actions at once with probability at least 1 - delta.
    """
    return float(gap * np.sqrt(2 * np.log(2 * agents * actions / delta) / updates))
