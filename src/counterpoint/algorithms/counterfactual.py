"""Counterfactual credit: what an outcome owes to one agent, by comparison with the outcome without it.

Voting (CCPO, arXiv 2603.21563, abstract and fig. 2; the papers' repository has no voting code): answers are classes
(`vote.classes`), R(S) is the plurality's value among the voters S (`vote.plurality_value`).
"""

from __future__ import annotations

from itertools import combinations
from math import factorial

import numpy as np
from jaxtyping import Bool, Float, Int

from .vote import plurality_value

SHAPLEY_LIMIT = 8


def joint_minus_solo(joint: Float[np.ndarray, " G"], solo: Float[np.ndarray, " M"]) -> Float[np.ndarray, " G"]:
    """Delta_k = J_k - mean(S): every joint outcome against all solo outcomes of the question."""
    return np.asarray(joint - solo.mean())


def paired_joint_minus_solo(joint: Float[np.ndarray, " G"], solo: Float[np.ndarray, " M"]) -> Float[np.ndarray, " G"]:
    """Delta_k = J_k - S_k, the k-th joint with the k-th solo; their mean where there is none (CCPO, first paper).

    Same expectation as `joint_minus_solo`, more noise.
    """
    return np.asarray(joint - pair_solos(solo, len(joint)))


def pair_solos(solo: Float[np.ndarray, " M"], size: int) -> Float[np.ndarray, " G"]:
    """The solo outcome paired with each of `size` joint ones; the mean of the solos for those beyond the last."""
    paired = np.full(size, solo.mean())
    shared = min(size, len(solo))
    paired[:shared] = solo[:shared]
    return paired


def leave_one_out_vote(labels: Int[np.ndarray, " N"], right: Bool[np.ndarray, " N"]) -> Float[np.ndarray, " N"]:
    """Delta_k = R(all) - R(all without k): needs no extra generation."""
    everyone = set(range(len(labels)))
    total = _value(everyone, labels, right)
    return np.array([total - _value(everyone - {k}, labels, right) for k in range(len(labels))])


def shapley_vote(labels: Int[np.ndarray, " N"], right: Bool[np.ndarray, " N"]) -> Float[np.ndarray, " N"]:
    """phi_k = sum over S without k of |S|! (N - |S| - 1)! / N!  [ R(S + k) - R(S) ]  (Shapley 1953), exact, N <= 8.

    The values add up to R(all).
    """
    n = len(labels)
    if n > SHAPLEY_LIMIT:
        raise ValueError(f"shapley_vote is exact for at most {SHAPLEY_LIMIT} voters, got {n}")
    values = {
        members: _value(set(members), labels, right)
        for size in range(n + 1)
        for members in combinations(range(n), size)
    }
    phi = np.zeros(n)
    for members, value in values.items():
        weight = factorial(len(members)) * factorial(n - len(members) - 1) / factorial(n) if len(members) < n else 0.0
        for k in set(range(n)) - set(members):
            phi[k] += weight * (values[tuple(sorted((*members, k)))] - value)
    return phi


def mixed_credit(
    right: Bool[np.ndarray, " N"], delta: Float[np.ndarray, " N"], *, beta: float
) -> Float[np.ndarray, " N"]:
    """r_k = (1 - beta) 1[agent k right] + beta Delta_k."""
    return np.asarray((1 - beta) * right + beta * delta)


def shared_credit(team_value: float, delta: Float[np.ndarray, " N"], *, weight: float) -> Float[np.ndarray, " N"]:
    """r_k = R_joint + lambda Delta_k, with lambda = `weight`."""
    return np.asarray(team_value + weight * delta)


def _value(members: set[int], labels: Int[np.ndarray, " N"], right: Bool[np.ndarray, " N"]) -> float:
    index = np.array(sorted(members), dtype=np.int64)
    return plurality_value(labels[index], right[index])
