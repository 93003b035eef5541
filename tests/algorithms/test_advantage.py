"""Baselines, scales and squashes on worked numbers; groups without signal."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from counterpoint.algorithms import advantage as adv

REWARDS = np.array([1.0, 1.0, -1.0, 1.0])  # mean .5, population std sqrt(.75) = .8660254
SOLO = np.array([1.0, -1.0, -1.0, -1.0])  # mean -.5

groups = arrays(np.float64, st.integers(2, 8), elements=st.floats(-10, 10))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"baseline": "none"}, [1, 1, -1, 1]),
        ({"baseline": "group_mean"}, [0.5, 0.5, -1.5, 0.5]),
        # the others' mean: (2 - 1) / 3 = 1/3 for right rows, 1 for the wrong one
        ({"baseline": "leave_one_out"}, [2 / 3, 2 / 3, -2, 2 / 3]),
        ({"baseline": "solo_mean", "solo": SOLO}, [1.5, 1.5, -0.5, 1.5]),
        # b = .25 (1/3) + .75 (-.5) = -.2916667; .25 (1) - .375 = -.125
        ({"baseline": "blended", "solo": SOLO, "weight": 0.25}, [1.2916667, 1.2916667, -0.875, 1.2916667]),
        ({"baseline": "group_mean", "scale": "group_std"}, [0.5773503, 0.5773503, -1.7320508, 0.5773503]),
        ({"baseline": "group_mean", "scale": "history_std", "history_std": 2.0}, [0.25, 0.25, -0.75, 0.25]),
        # tanh(.5) = .4621172, tanh(1.5) = .9051483
        ({"baseline": "group_mean", "squash": "tanh"}, [0.4621172, 0.4621172, -0.9051483, 0.4621172]),
    ],
)
def test_golden(settings, expected):
    assert adv.advantages(REWARDS, **settings) == pytest.approx(expected, abs=1e-7)


def test_tracer_skips_groups_without_signal():
    """TRACER: population std under .05 is skipped. [1, .9]: mean .95, std .05 stays; [1, .95]: std .025 is skipped."""
    rewards = np.array([[1.0, 1.0], [1.0, 0.9], [1.0, 0.95], [1.0, -1.0]])
    assert adv.zero_signal(rewards, min_std=0.0499).tolist() == [True, False, True, False]
    settings = {"baseline": "group_mean", "scale": "group_std", "min_std": 0.05}
    assert adv.advantages(rewards[0], **settings).tolist() == [0, 0]
    assert adv.advantages(rewards[2], **settings).tolist() == [0, 0]
    assert adv.advantages(rewards[3], **settings).tolist() == [1, -1]
    assert np.array_equal(adv.advantages(np.ones(4), baseline="group_mean", scale="group_std"), np.zeros(4))


@given(groups)
def test_g8_standardised_exactly_once(rewards):
    """G8: mean 0 and population std 1; doing it again changes nothing."""
    if rewards.std() < 1e-3:
        return
    once = adv.advantages(rewards, baseline="group_mean", scale="group_std")
    assert once.mean() == pytest.approx(0, abs=1e-9)
    assert once.std() == pytest.approx(1, abs=1e-9)


@given(groups, st.floats(-5, 5))
def test_a_constant_per_question_cancels_in_group_baselines(rewards, shift):
    for baseline in ("group_mean", "leave_one_out"):
        moved = adv.advantages(rewards + shift, baseline=baseline)
        assert moved == pytest.approx(adv.advantages(rewards, baseline=baseline), abs=1e-9)


@given(groups)
def test_leave_one_out_is_a_stretched_group_mean(rewards):
    """r - loo = G / (G - 1) (r - mean): same direction, unbiased length."""
    size = len(rewards)
    stretched = adv.advantages(rewards, baseline="group_mean") * size / (size - 1)
    assert adv.advantages(rewards, baseline="leave_one_out") == pytest.approx(stretched, abs=1e-8)


@given(groups)
def test_tanh_stays_in_bounds_and_keeps_the_order(rewards):
    plain = adv.advantages(rewards, baseline="none")
    squashed = adv.advantages(rewards, baseline="none", squash="tanh")
    assert (np.abs(squashed) <= 1).all()
    assert (np.diff(squashed[np.argsort(plain)]) >= 0).all()


def test_solo_baseline_lives_in_uniform_groups():
    """All right, but the solver fails alone: rewarded. All wrong though the solver alone is right: punished."""
    right, wrong = np.ones(3), -np.ones(3)
    blend = {"baseline": "blended", "weight": 0.5}
    assert adv.advantages(right, **blend, solo=-np.ones(3)).tolist() == [1, 1, 1]
    assert adv.advantages(wrong, **blend, solo=np.ones(3)).tolist() == [-1, -1, -1]
    assert adv.advantages(right, baseline="group_mean").tolist() == [0, 0, 0]


def test_batch_standardise():
    # 0, 2, 4: mean 2, std sqrt(8/3) = 1.6329932
    assert adv.batch_standardise(np.array([0.0, 2.0, 4.0])) == pytest.approx([-1.2247449, 0, 1.2247449], abs=1e-6)
    assert adv.batch_standardise(np.full(3, 0.25)).tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"baseline": "solo_mean"}, "needs solo outcomes"),
        ({"baseline": "solo_mean", "solo": np.array([])}, "at least 1 solo"),
        ({"baseline": "none", "scale": "history_std"}, "positive history_std"),
    ],
)
def test_missing_inputs_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        adv.advantages(REWARDS, **settings)


def test_singletons_have_no_leave_one_out():
    with pytest.raises(ValueError, match="at least 2, got 1"):
        adv.leave_one_out(np.array([1.0]))
