"""SEPO: after the outcome is verified, each role rates the split of credit or blame; ratings tilt the reward.

t = the thinker's rating of the thinker's share, v = the solver's rating of it, both in [0, 1] (CCPO's companion).
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float


def shares(
    thinker_rating: Float[np.ndarray, " G"], solver_rating: Float[np.ndarray, " G"], *, eta: float = 0.3
) -> Float[np.ndarray, " G"]:
    """The thinker's share w_1; the solver's is 1 - w_1.

    s_1 = eta t + (1 - eta) v;  s_2 = eta (1 - v) + (1 - eta)(1 - t);  w_1 = s_1 / (s_1 + s_2)
    `eta` weighs the rating of oneself, 1 - eta the peer's. 1/2 where both sums are 0.
    """
    s1 = eta * thinker_rating + (1 - eta) * solver_rating
    s2 = eta * (1 - solver_rating) + (1 - eta) * (1 - thinker_rating)
    total = s1 + s2
    return np.where(total > 0, s1 / np.where(total > 0, total, 1.0), 0.5)


def centred_bonus(share: Float[np.ndarray, " G"], readable: Bool[np.ndarray, " G"]) -> Float[np.ndarray, " G"]:
    """bonus_1 = w_1 - mean of w_1 over the group's readable rows; 0 where unreadable. bonus_2 = -bonus_1."""
    if not readable.any():
        return np.zeros_like(share)
    return np.where(readable, share - share[readable].mean(), 0.0)


def plain_bonus(share: Float[np.ndarray, " G"], readable: Bool[np.ndarray, " G"]) -> Float[np.ndarray, " G"]:
    """bonus_1 = w_1 - 1/2; 0 where a rating is unreadable."""
    return np.where(readable, share - 0.5, 0.0)


def rewards(
    outcome: Float[np.ndarray, " G"], bonus: Float[np.ndarray, " G"], *, weight: float = 0.2
) -> Float[np.ndarray, " G"]:
    """r_i = 1 + weight bonus_i where right (outcome 1), -1 - weight bonus_i where wrong (outcome -1).

    Credit for a right answer, blame for a wrong one: a larger share of the blame costs more. Then centred, without std.
    """
    return np.asarray(outcome * (1 + weight * bonus))
