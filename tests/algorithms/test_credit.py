"""CCPO's presets: the golden numbers to the digits printed, what the published ones do, what `effective` adds."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from counterpoint.algorithms import credit
from counterpoint.algorithms.advantage import advantages, solo_mean
from counterpoint.algorithms.counterfactual import pair_solos
from counterpoint.algorithms.credit import CreditHistory
from counterpoint.algorithms.history import published_std

JOINT = np.array([1, 1, -1, -1, 1, -1, 1, -1, 1, 1, -1, 1], dtype=np.float64).reshape(3, 4)
SOLO = np.array([-1, -1, -1, 1, 1, 1, 1, -1, 1, -1, 1, -1], dtype=np.float64).reshape(3, 4)

signs = st.sampled_from([-1.0, 1.0])
signed_groups = arrays(np.float64, st.just(6), elements=signs)


def by_group(preset, pair):
    rows = [preset(j, pair_solos(s, len(j)) if pair else solo_mean(j, s)) for j, s in zip(JOINT, SOLO, strict=True)]
    return np.concatenate(rows)


@pytest.mark.parametrize(
    ("preset", "pair", "expected"),
    [
        (credit.published_event, False, [1.2, 1.2, -1, -1, 1, -1.2, 1, -1.2, 1, 1, -1, 1]),
        (
            credit.published_continuous,
            False,
            [1.15, 1.15, -1.05, -1.05, 1.05, -1.15, 1.05, -1.15, 1.1, 1.1, -1.1, 1.1],
        ),
        (credit.published_event, True, [1.2, 1.2, -1, -1.2, 1, -1.2, 1, -1, 1, 1.2, -1.2, 1.2]),
    ],
)
def test_published_golden(preset, pair, expected):
    assert by_group(preset, pair) == pytest.approx(expected, abs=1e-12)


def moments(history):
    streams = (history.delta, history.joint, history.solo)
    return [x for s in streams for x in (s.mean, published_std(s))]


def test_published_v1_golden():
    joint = [[1, 1, 0, 0, 1, 0, 1, 1], [1, 0, 1, 1, 0, 0, 1, 0], [1] * 8]
    solo = [[0, 1, 1, 0, 0, 0, 1, 1], [0, 0, 1, 0, 1, 0, 1, 0], [1] * 8]
    thinker = [
        [1, 0, -1, 0, 1, 0, 0, 0],
        [0.8976, -0.2055, -0.2055, 0.8976, -0.9542, -0.2055, -0.2055, -0.2055],
        [-0.2055] * 8,
    ]
    solver = [
        joint[0],
        [-0.0205, -1.1606, 0.8756, -0.0205, -0.2645, -1.1606, 0.8756, -1.1606],
        [0.8781] * 8,
    ]
    after = [
        [0.125, 0.599479, 0.625, 0.484123, 0.5, 0.5],
        [0.125, 0.599479, 0.62375, 0.484284, 0.49875, 0.499844],
    ]
    history = CreditHistory()
    for t in range(3):
        j, s = np.array(joint[t], dtype=np.float64), np.array(solo[t], dtype=np.float64)
        rewards = credit.published_v1(j, s, history)
        assert rewards[0] == pytest.approx(thinker[t], abs=5e-5)
        assert rewards[1] == pytest.approx(solver[t], abs=5e-5)
        history = credit.update_history(history, j, s)
        if t < 2:
            assert moments(history) == pytest.approx(after[t], abs=5e-7)
        if t == 0:
            assert credit.solver_gate(history) == pytest.approx(0.55194, abs=5e-6)


def test_verified_fact_published_is_a_multiple_of_the_plain_advantage():
    """Centred, the thinker's credit is exactly 1.1 or 1.0 times the plain advantage; with std it is the same."""
    for bits in product([-1.0, 1.0], repeat=4):
        joint = np.array(bits)
        for solos in ([-1.0] * 4, [1.0] * 4, [1.0, 1.0, -1.0, 1.0], [1.0, -1.0, 1.0, -1.0]):
            baseline = solo_mean(joint, np.array(solos))
            plain = advantages(joint, baseline="group_mean")
            event = advantages(credit.published_event(joint, baseline), baseline="group_mean")
            assert event == pytest.approx((1.0 if baseline[0] == 0 else 1.1) * plain, abs=1e-12)
            smooth = advantages(credit.published_continuous(joint, baseline), baseline="group_mean")
            assert smooth == pytest.approx(1.1 * plain, abs=1e-12)
            if joint.std() > 0:
                settings = {"baseline": "group_mean", "scale": "group_std"}
                event = advantages(credit.published_event(joint, baseline), **settings)
                assert event == pytest.approx(advantages(joint, **settings), abs=1e-12)


def test_verified_fact_published_v1_adds_noise():
    """Simulated questions (difficulty from an arcsine law, solo .1 harder), groups of 4, after GRPO standardisation:

    the thinker's advantage correlates about .8 with the plain one; groups all right or all wrong get |A| of about .3
    (plain: 0); and of the right joint answers more than one in ten is pushed down by its unrelated solo partner.
    """
    rng, history = np.random.default_rng(0), CreditHistory()
    pairs, uniform, pushed_down = [], [], []
    settings = {"baseline": "group_mean", "scale": "group_std"}
    for step in range(12):
        easy = rng.beta(0.5, 0.5, 64)[:, None]
        joint = (rng.random((64, 4)) < easy).astype(np.float64)
        solo = (rng.random((64, 4)) < easy - 0.1).astype(np.float64)
        thinker, solver = credit.published_v1(joint.ravel(), solo.ravel(), history)
        history = credit.update_history(history, joint.ravel(), solo.ravel())
        if step == 0:
            continue
        for j, t, s in zip(joint, thinker.reshape(64, 4), solver.reshape(64, 4), strict=True):
            a = advantages(t, **settings)
            pushed_down.extend(advantages(s, **settings)[j == 1] < 0)
            if j.std() > 0:
                pairs.extend(zip(a, advantages(j, **settings), strict=True))
            else:
                uniform.extend(np.abs(a))
    assert np.corrcoef(np.array(pairs).T)[0, 1] == pytest.approx(0.8, abs=0.05)
    assert np.mean(uniform) == pytest.approx(0.31, abs=0.06)
    assert 0.1 < np.mean(pushed_down) < 0.25


@given(signed_groups, signed_groups)
def test_tanh_bounds_published_v1(joint, solo):
    history = credit.update_history(CreditHistory(), joint, solo)
    thinker, _ = credit.published_v1(joint[::-1].copy(), solo, history)
    assert (np.abs(thinker) <= 1).all()
    assert 0 < credit.solver_gate(history, eta=1e9) < 1


def presets(joint, solo):
    """The thinker's credit under every preset, one question."""
    history = credit.update_history(CreditHistory(), np.array([1.0, -1.0, 1.0]), np.array([1.0, 1.0, -1.0]))
    level = np.full_like(joint, solo.mean())
    return {
        "published_v1": credit.published_v1(joint, level, history)[0],
        "published_event": credit.published_event(joint, level),
        "published_continuous": credit.published_continuous(joint, level),
        "effective": credit.effective(joint, solo, weight=0.5, sigma=1.0),
    }


@given(arrays(np.bool_, 6), arrays(np.bool_, 6), signed_groups)
def test_truncated_is_never_better_than_wrong(right, truncated, solo):
    """H6: in every preset a truncated row gets what a wrong one gets, less than a right one; on 0/1 scores too."""
    outcome = credit.outcomes(right, truncated)
    assert credit.outcomes(right, truncated, low=0.0).tolist() == (right & ~truncated).tolist()
    for values in presets(outcome, solo).values():
        low = values[outcome == -1]
        if truncated.any():
            assert values[truncated].max() <= low.min() + 1e-12
            assert values[truncated].max() <= values.max()
        if (outcome == 1).any() and len(low):
            assert values[outcome == 1].min() > low.max()


@given(signed_groups, signed_groups, st.permutations(range(6)))
def test_relabelling_rows_permutes_credit(joint, solo, order):
    before, after = presets(joint, solo), presets(joint[order], solo[::-1].copy())
    for name, values in before.items():
        assert after[name] == pytest.approx(values[order], abs=1e-12)


def test_a_constant_per_question_changes_what_it_should_and_nothing_else():
    """Making one question easier for everybody (J and S up by c) leaves Delta-based credit; making only the solo easier
    lowers `effective` by (1 - w) c / sigma for all rows alike, and leaves the group-centred advantage."""
    joint, solo = JOINT[0], SOLO[0]
    one = credit.effective(joint, solo, weight=0.25, sigma=2.0)
    assert credit.effective(joint + 0.3, solo + 0.3, weight=0.25, sigma=2.0) == pytest.approx(one, abs=1e-12)
    lowered = credit.effective(joint, solo + 0.4, weight=0.25, sigma=2.0)
    assert one - lowered == pytest.approx([0.75 * 0.4 / 2] * 4, abs=1e-12)
    centred = [advantages(x, baseline="group_mean") for x in (one, lowered)]
    assert centred[0] == pytest.approx(centred[1], abs=1e-12)


def test_effective_by_hand():
    # J = (1, 1, -1, -1): leave-one-out means -1/3, -1/3, 1/3, 1/3; solo mean -.5; w = .4, sigma = .5
    # b = .4(-1/3) - .3 = -.4333333 and -.1666667; A = 2.8666667 and -1.6666667
    values = credit.effective(JOINT[0], SOLO[0], weight=0.4, sigma=0.5)
    assert values == pytest.approx([2.8666667, 2.8666667, -1.6666667, -1.6666667], abs=1e-7)


def test_effective_lives_in_uniform_groups():
    assert (credit.effective(np.ones(4), -np.ones(4), weight=0.5, sigma=1.0) == 1).all()
    assert (credit.effective(-np.ones(4), np.ones(4), weight=0.5, sigma=1.0) == -1).all()
    assert (credit.effective(np.ones(4), np.ones(4), weight=0.5, sigma=1.0) == 0).all()


def expected_gradient(advantage):
    """E[(1/G) sum_i A_i grad log pi(a_i)] and E||.||^2, exactly: actions worth (1, -1, .5), G = 2, 2 solos."""
    policy = np.exp([0.3, -0.2, 0.1]) / np.exp([0.3, -0.2, 0.1]).sum()
    worth, p_solo = np.array([1.0, -1.0, 0.5]), 0.3
    mean, square = np.zeros(3), 0.0
    for actions in product(range(3), repeat=2):
        for solo in product([1.0, -1.0], repeat=2):
            probability = policy[list(actions)].prod() * np.prod([p_solo if s > 0 else 1 - p_solo for s in solo])
            scores = np.eye(3)[list(actions)] - policy
            gradient = (advantage(worth[list(actions)], np.array(solo))[:, None] * scores).mean(axis=0)
            mean += probability * gradient
            square += probability * (gradient**2).sum()
    return mean, square


def test_expected_gradients_by_exact_enumeration():
    """Leave-one-out, solo mean, their blend and `effective` (up to 1 / sigma) have the plain expected gradient.

    The group mean shrinks it by (G - 1)/G; the published bonus stretches it; tanh and the per-row event bend it.
    """
    plain, noise = expected_gradient(lambda j, s: j)
    for settings in ({"baseline": "leave_one_out"}, {"baseline": "solo_mean"}, {"baseline": "blended", "weight": 0.7}):
        mean, _ = expected_gradient(lambda j, s, f=settings: advantages(j, solo=s, **f))
        assert mean == pytest.approx(plain, abs=1e-14)
    mean, square = expected_gradient(lambda j, s: credit.effective(j, s, weight=0.5, sigma=2.0))
    assert 2 * mean == pytest.approx(plain, abs=1e-14)
    assert np.isfinite(square)
    assert square > 0
    mean, _ = expected_gradient(lambda j, s: advantages(j, baseline="group_mean"))
    assert mean == pytest.approx(plain / 2, abs=1e-14)
    mean, _ = expected_gradient(lambda j, s: credit.published_continuous(j, solo_mean(j, s)))
    assert mean == pytest.approx(1.1 * plain, abs=1e-14)
    bent, _ = expected_gradient(lambda j, s: advantages(j, baseline="solo_mean", squash="tanh", solo=s))
    assert np.abs(bent / np.linalg.norm(bent) - plain / np.linalg.norm(plain)).max() > 1e-3
    assert noise > 0


def test_h7_an_ignored_thought_earns_nothing_on_average():
    """H7: when the solver ignores the thought, joint and solo are alike, and the thinker's expected credit is 0."""
    total = 0.0
    for bits in product([0, 1], repeat=4):  # two joint, two solo, each right with probability .3
        probability = np.prod([0.3 if bit else 0.7 for bit in bits])
        outcome = np.where(bits, 1.0, -1.0)
        total += probability * credit.effective(outcome[:2], outcome[2:], weight=0.4, sigma=1.0).mean()
    assert total == pytest.approx(0, abs=1e-15)
