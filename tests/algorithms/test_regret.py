"""Regret matching: the checks C1 to C9 of the theory, on golden numbers and on streams (games are in test_games.py)."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from counterpoint.algorithms import regret as rm

UPDATES = {
    "rm": lambda R, r, t: rm.plain_update(R, r),
    "rm_plus": lambda R, r, t: rm.plus_update(R, r),
    "discounted": lambda R, r, t: rm.discounted_update(R, r, t=t),
}
streams = arrays(np.float64, st.tuples(st.integers(1, 30), st.integers(2, 4)), elements=st.floats(-1, 1, width=32))


def play(values, rule):
    """Feed a stream of value vectors [T, A]; yields (R before, strategy, r, R after) of every step."""
    cumulative = np.zeros(values.shape[1])
    for t, v in enumerate(values, start=1):
        probs = rm.regret_matching(cumulative)
        r = rm.instantaneous_regret(v, probs)
        after = UPDATES[rule](cumulative, r, t)
        yield cumulative, probs, r, after
        cumulative = after


def adversary(rule, steps):
    """Values 1 for the action played less, -1 for the other: always against the present strategy."""
    cumulative, regrets = np.zeros(2), []
    for t in range(1, steps + 1):
        probs = rm.regret_matching(cumulative)
        values = np.array([1.0, -1.0]) if probs[0] <= probs[1] else np.array([-1.0, 1.0])
        regrets.append(rm.instantaneous_regret(values, probs))
        cumulative = UPDATES[rule](cumulative, regrets[-1], t)
    return np.array(regrets)


def test_by_hand():
    # v = (1, -1), p = (.5, .5): mean 0, r = (1, -1). R = (1, -1): all on action 0.
    # v = (-1, 1), p = (1, 0): mean -1, r = (0, 2). RM: R = (1, 1), (.5, .5). RM+: R was (1, 0), now (1, 2): (1/3, 2/3)
    r1 = rm.instantaneous_regret(np.array([1.0, -1.0]), np.array([0.5, 0.5]))
    assert r1.tolist() == [1, -1]
    r2 = rm.instantaneous_regret(np.array([-1.0, 1.0]), rm.regret_matching(r1))
    assert r2.tolist() == [0, 2]
    assert rm.regret_matching(rm.plain_update(r1, r2)).tolist() == [0.5, 0.5]
    plus = rm.plus_update(rm.plus_update(np.zeros(2), r1), r2)
    assert plus.tolist() == [1, 2]
    assert rm.regret_matching(plus) == pytest.approx([1 / 3, 2 / 3])


def test_discounted_by_hand():
    # t = 1, alpha 1.5, beta 0: both factors 1/2: (1, -1) -> (.5, -.5). t = 2: 2^1.5 / (2^1.5 + 1) = .7387961 and 1/2
    once = rm.discounted_update(np.zeros(2), np.array([1.0, -1.0]), t=1)
    assert once.tolist() == [0.5, -0.5]
    twice = rm.discounted_update(once, np.array([0.0, -1.0]), t=2)
    assert twice == pytest.approx([0.5 * 0.7387961, -0.75], abs=1e-7)
    extreme = rm.discounted_update(np.zeros(2), np.array([1.0, -1.0]), t=3, alpha=1e6, beta=-1e6)
    assert extreme == pytest.approx([1.0, 0.0], abs=1e-300)


@given(streams)
def test_c1_orthogonality_and_c2_potential(values):
    """C1: <sigma, r> = 0. C2: ||R+||^2 grows by at most ||r||^2 (also on discounted R)."""
    for rule in UPDATES:
        for before, probs, r, after in play(values, rule):
            assert abs(probs @ r) <= 1e-12
            grown = (np.maximum(after, 0) ** 2).sum() - (np.maximum(before, 0) ** 2).sum()
            assert grown <= (r**2).sum() + 1e-9 * len(values)


@given(streams)
def test_c3_data_bound(values):
    """C3: total external regret of RM and RM+ is at most sqrt(sum ||r||^2)."""
    for rule in ("rm", "rm_plus"):
        regrets = np.array([r for _, _, r, _ in play(values, rule)])
        bound = rm.data_bound((regrets**2).sum(axis=1))
        assert regrets.sum(axis=0).max() <= bound + 1e-9 * len(values)
        gaps = np.ptp(values, axis=1).max()
        worst = rm.regret_bound(gap=float(gaps), updates=len(values), actions=values.shape[1])
        assert bound <= worst + 1e-9


@given(arrays(np.float64, st.integers(2, 6), elements=st.floats(0, 1)), st.integers(0, 2**31))
def test_norm_of_one_regret_is_at_most_root_a_minus_1(values, seed):
    """||r||^2 <= (A - 1) gap^2, and d^2 (p^2 + (1 - p)^2) for two actions."""
    probs = np.random.default_rng(seed).dirichlet(np.full(len(values), 0.3))
    r = rm.instantaneous_regret(values, probs)
    assert (r**2).sum() <= (len(values) - 1) * np.ptp(values) ** 2 + 1e-12
    if len(values) == 2:
        assert (r**2).sum() == pytest.approx(np.ptp(values) ** 2 * (probs**2).sum())


@pytest.mark.parametrize("rule", ["rm", "rm_plus"])
@pytest.mark.parametrize("steps", [1, 2, 3, 10, 100, 1000])
def test_c4_worst_case(rule, steps):
    """C4: even an adversary leaves at most gap / sqrt(T) a step for two actions; the first step attains it."""
    average = adversary(rule, steps).sum(axis=0).max() / steps
    assert average <= 2 / math.sqrt(steps)
    if steps == 1:
        assert average == 1.0


def test_bounds_as_numbers():
    """Values in [-1, 1], gap 2: .200 at T = 100, .0632 at 1 000, .0200 at 10 000; sums over states; Azuma's slack."""
    for steps, expected in [(100, 0.2), (1000, 0.0632), (10_000, 0.02)]:
        assert rm.regret_bound(gap=2, updates=steps) / steps == pytest.approx(expected, abs=5e-5)
    assert rm.regret_bound(gap=2, updates=100, actions=3) == pytest.approx(2 * math.sqrt(200))
    assert rm.states_bound(gap=2, visits=[100, 4]) == pytest.approx(2 * 10 + 2 * 2)
    assert rm.data_bound([9.0, 16.0]) == 5.0
    # 2 sqrt(2 ln(2 * 2 * 2 / .05) / 100) = 2 sqrt(2 * 5.0751738 / 100)
    assert rm.sampled_slack(gap=2, updates=100, agents=2, actions=2, delta=0.05) == pytest.approx(0.6371920, abs=1e-6)


def test_c6_sampled_values():
    """C6: with single samples for values, realised and expected regret differ by less than Azuma's slack."""
    rng, steps, misses = np.random.default_rng(1), 200, 0
    for _ in range(100):
        cumulative, expected = np.zeros(2), np.zeros(2)
        for _ in range(steps):
            probs = rm.regret_matching(cumulative)
            cumulative += rm.instantaneous_regret(np.where(rng.random(2) < [0.6, 0.5], 1.0, -1.0), probs)
            expected += rm.instantaneous_regret(np.array([0.2, 0.0]), probs)
        slack = rm.sampled_slack(gap=2, updates=steps, agents=1, actions=2, delta=0.05)
        misses += bool(np.abs((cumulative - expected) / steps).max() > slack)
    assert misses <= 5


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        (rm.uniform_weight, (1 * 0.5 + 1 * 1 + 1 * 0.25) / 3),
        (rm.linear_weight, (1 * 0.5 + 2 * 1 + 3 * 0.25) / 6),
        (lambda t: rm.power_weight(t, gamma=2.0), (1 * 0.5 + 4 * 1 + 9 * 0.25) / 14),
    ],
)
def test_c7_average_strategy_over_three_steps(weights, expected):
    """C7: p_1 = .5, 1, .25 for action 0, weighted as declared."""
    total = np.zeros(2)
    for t, p in enumerate([0.5, 1.0, 0.25], start=1):
        total = rm.accumulate(total, np.array([p, 1 - p]), weight=weights(t))
    assert rm.average_strategy(total) == pytest.approx([expected, 1 - expected], abs=1e-12)


def test_power_weights_are_dcfr_s_decay():
    """t^gamma is the product form (t / (t + 1))^gamma of the paper, up to one factor."""
    decayed = np.zeros(2)
    powered = np.zeros(2)
    for t, p in enumerate([0.5, 1.0, 0.25, 0.7], start=1):
        probs = np.array([p, 1 - p])
        decayed = (decayed + probs) * (t / (t + 1)) ** 2
        powered = rm.accumulate(powered, probs, weight=rm.power_weight(t, gamma=2.0))
    assert rm.average_strategy(decayed) == pytest.approx(rm.average_strategy(powered), abs=1e-12)


@given(streams, st.floats(-3, 3), st.floats(0.1, 10))
def test_c8_invariances(values, shift, scale):
    """C8: a payoff shift changes nothing; a positive factor scales R and keeps sigma; swapping actions swaps sigma."""
    rng = np.random.default_rng(len(values))
    for v in values:
        probs = rng.dirichlet(np.ones(len(v)))
        r = rm.instantaneous_regret(v, probs)
        assert rm.instantaneous_regret(v + shift, probs) == pytest.approx(r, abs=1e-12)
        assert rm.instantaneous_regret(v * scale, probs) == pytest.approx(r * scale, abs=1e-12)
        assert rm.regret_matching(r * scale) == pytest.approx(rm.regret_matching(r), abs=1e-12)
        swapped = rm.instantaneous_regret(v[::-1].copy(), probs[::-1].copy())
        assert rm.regret_matching(swapped)[::-1] == pytest.approx(rm.regret_matching(r), abs=1e-12)


def test_c9_masks():
    """C9: a forbidden action has probability exactly 0 and no regret, whatever its value."""
    mask = np.array([True, False, True])
    probs = rm.regret_matching(np.array([1.0, 5.0, 3.0]), mask=mask)
    assert probs.tolist() == [0.25, 0.0, 0.75]
    r = rm.instantaneous_regret(np.array([1.0, math.inf, 0.0]), probs, mask=mask)
    assert r.tolist() == [0.75, 0.0, -0.25]
    assert rm.regret_matching(np.array([-1.0, 5.0, -3.0]), mask=mask).tolist() == [0.5, 0.0, 0.5]
    with pytest.raises(ValueError, match="at least one allowed"):
        rm.regret_matching(np.zeros(2), mask=np.zeros(2, dtype=bool))


def test_c10_declared_default():
    """C10: without positive regret the declared default is played, restricted to what is allowed."""
    default = np.array([0.2, 0.8])
    assert rm.regret_matching(np.zeros(2), default=default).tolist() == [0.2, 0.8]
    assert rm.regret_matching(np.array([-1.0, 0.0]), default=default).tolist() == [0.2, 0.8]
    assert rm.regret_matching(np.zeros(2)).tolist() == [0.5, 0.5]
    assert rm.regret_matching(np.zeros(2), default=default, mask=np.array([True, False])).tolist() == [1, 0]
    assert rm.regret_matching(np.zeros(2), default=np.array([0.0, 1.0]), mask=np.array([True, False])).tolist() == [
        1,
        0,
    ]
    assert rm.average_strategy(np.zeros(2), default=default).tolist() == [0.2, 0.8]
    assert rm.average_strategy(np.zeros(4)).tolist() == [0.25] * 4


@given(arrays(np.float64, st.integers(2, 5), elements=st.floats(-1e300, 1e300)))
def test_strategies_are_distributions_at_any_magnitude(cumulative):
    probs = rm.regret_matching(cumulative)
    assert (probs >= 0).all()
    assert probs.sum() == pytest.approx(1, abs=1e-12)
    assert rm.regret_matching(np.array([5e-324, 0.0])).tolist() == [1, 0]


def test_variants_follow_a_switch():
    """The better action changes at T/2 of 1 000 steps: RM must first unwind its regret, the others need not.

    External regret stays within the bound for RM and RM+; tracking regret tells them apart.
    """
    values = np.vstack([np.tile([1.0, -1.0], (500, 1)), np.tile([-1.0, 1.0], (500, 1))])
    after, tracking = {}, {}
    for rule in UPDATES:
        strategies = np.array([probs for _, probs, _, _ in play(values, rule)])
        after[rule] = strategies[500:, 1].mean()
        tracking[rule] = rm.tracking_regret(values, strategies)
        assert rm.external_regret(values, strategies) <= rm.regret_bound(gap=2, updates=1000)
    assert after["rm"] < 0.02
    assert after["rm_plus"] > 0.9
    assert after["discounted"] > 0.9
    assert tracking["rm"] > 900 > 100 > max(tracking["rm_plus"], tracking["discounted"])


def test_regret_of_a_stream_by_hand():
    # v = (1, -1), (-1, 1), (1, -1), always uniform (value 0): best fixed action 1 - 1 + 1 = 1; best of each step 3
    values = np.array([[1.0, -1.0], [-1.0, 1.0], [1.0, -1.0]])
    assert rm.external_regret(values, np.full((3, 2), 0.5)) == 1
    assert rm.tracking_regret(values, np.full((3, 2), 0.5)) == 3
