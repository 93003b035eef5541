"""Counterfactual credit: the golden votes, relabelling, Shapley's axioms, and gradients by exact enumeration."""

from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.algorithms.counterfactual import (
    joint_minus_solo,
    leave_one_out_vote,
    mixed_credit,
    paired_joint_minus_solo,
    shapley_vote,
    shared_credit,
)
from counterpoint.algorithms.vote import plurality_value

# voters in classes 0..3, -1 abstains; class 0 is right
ballots = st.lists(st.integers(-1, 3), min_size=1, max_size=6).map(np.array)


def votes(text):
    """ "c": right; "w": wrong, all alike; digits: wrong, each its own; "-": abstains."""
    labels = np.array([{"c": 0, "w": 1, "-": -1}.get(letter, letter) for letter in text], dtype=np.int64)
    return np.where(labels > 1, labels + 10, labels), labels == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ccc", [0, 0, 0]),
        ("ccw", [1 / 2, 1 / 2, 0]),  # without a c: one c, one w, a tie
        ("cww", [0, -1 / 2, -1 / 2]),
        ("c23", [1 / 3, -1 / 6, -1 / 6]),  # all: 1/3; without c: 0; without a w: 1/2
        ("www", [0, 0, 0]),
        ("c", [1]),
        ("c-", [1, 0]),
    ],
)
def test_leave_one_out_golden(text, expected):
    assert leave_one_out_vote(*votes(text)) == pytest.approx(expected, abs=1e-15)


def test_shapley_by_hand():
    # cw: orders c,w: c +1, w -1/2; w,c: w 0, c +1/2. Means: c 3/4, w -1/4; R(all) = 1/2
    assert shapley_vote(*votes("cw")).tolist() == [0.75, -0.25]
    assert shapley_vote(*votes("ccc")) == pytest.approx([1 / 3] * 3)
    with pytest.raises(ValueError, match="at most 8 voters, got 9"):
        shapley_vote(*votes("c" * 9))


def shapley_by_orders(labels, right):
    """The mean marginal contribution over all orders of arrival."""
    total, orders = np.zeros(len(labels)), list(permutations(range(len(labels))))
    for order in orders:
        before = 0.0
        for i, k in enumerate(order):
            present = np.array(order[: i + 1])
            after = plurality_value(labels[present], right[present])
            total[k] += after - before
            before = after
    return total / len(orders)


@given(ballots)
def test_shapley_axioms(labels):
    """Efficiency (adds up to the team value), symmetry, null player; and the definition by orders of arrival."""
    right = labels == 0
    phi = shapley_vote(labels, right)
    assert phi.sum() == pytest.approx(plurality_value(labels, right), abs=1e-12)
    for label in set(labels.tolist()):
        assert np.ptp(phi[labels == label]) < 1e-12
    assert np.abs(phi[labels == -1]).max(initial=0) < 1e-12
    if len(labels) <= 5:
        assert phi == pytest.approx(shapley_by_orders(labels, right), abs=1e-12)


@given(ballots, st.randoms())
def test_relabelling_permutes_credit(labels, random):
    order = list(range(len(labels)))
    random.shuffle(order)
    right = labels == 0
    renamed = (labels * 7 + 3)[order]  # other class numbers, other places
    renamed[labels[order] == -1] = -1
    for credit in (leave_one_out_vote, shapley_vote):
        assert credit(renamed, right[order]) == pytest.approx(credit(labels, right)[order], abs=1e-12)


@given(ballots)
def test_leave_one_out_bounds(labels):
    """|Delta| <= 1; an abstainer has 0; a right vote never hurts, a wrong one never helps."""
    right = labels == 0
    delta = leave_one_out_vote(labels, right)
    assert (np.abs(delta) <= 1).all()
    assert (delta[labels == -1] == 0).all()
    assert (delta[right] >= 0).all()
    assert (delta[~right] <= 0).all()


def test_joint_minus_solo():
    joint, solo = np.array([1.0, 1.0, -1.0]), np.array([1.0, -1.0])
    assert joint_minus_solo(joint, solo).tolist() == [1, 1, -1]
    assert paired_joint_minus_solo(joint, solo).tolist() == [0, 2, -1]  # the third meets the mean, 0
    assert paired_joint_minus_solo(joint, np.array([1.0, -1.0, -1.0, 5.0])).tolist() == [0, 2, 0]


@given(st.floats(-3, 3))
def test_a_constant_per_question_cancels_in_delta(shift):
    joint, solo = np.array([1.0, 1.0, -1.0]), np.array([1.0, -1.0])
    for credit in (joint_minus_solo, paired_joint_minus_solo):
        assert credit(joint + shift, solo + shift) == pytest.approx(credit(joint, solo), abs=1e-12)


def test_mixtures():
    labels, right = votes("ccw")
    delta = leave_one_out_vote(labels, right)
    assert mixed_credit(right, delta, beta=0.0).tolist() == [1, 1, 0]
    assert mixed_credit(right, delta, beta=1.0).tolist() == [0.5, 0.5, 0]
    assert mixed_credit(right, delta, beta=0.5).tolist() == [0.75, 0.75, 0]
    assert shared_credit(1.0, delta, weight=0.2).tolist() == [1.1, 1.1, 1.0]


def test_the_vote_without_k_is_a_baseline():
    """Delta_k has the same expected policy gradient as the shared outcome, with less variance: exact enumeration.

    Three agents draw one of three answers (0 is right) from softmax policies of their own.
    """
    rng = np.random.default_rng(0)
    policies = [np.exp(x) / np.exp(x).sum() for x in rng.normal(size=(3, 3))]
    mean = {"shared": np.zeros((3, 3)), "delta": np.zeros((3, 3))}
    square = dict.fromkeys(mean, 0.0)
    for answers in product(range(3), repeat=3):
        probability = np.prod([policies[k][a] for k, a in enumerate(answers)])
        labels = np.array(answers)
        right = labels == 0
        shared = np.full(3, plurality_value(labels, right))
        for name, credit in (("shared", shared), ("delta", leave_one_out_vote(labels, right))):
            score = np.array([np.eye(3)[a] - policies[k] for k, a in enumerate(answers)])  # grad log softmax
            gradient = credit[:, None] * score
            mean[name] += probability * gradient
            square[name] += probability * (gradient**2).sum()
    assert mean["delta"] == pytest.approx(mean["shared"], abs=1e-14)
    assert square["delta"] < square["shared"]
