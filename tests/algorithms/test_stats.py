"""Intervals and tests against hand-computed values, scipy and simulated coverage."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from counterpoint.algorithms import stats
from counterpoint.algorithms.vote import plurality_value


@pytest.mark.parametrize(("successes", "trials"), [(0, 10), (1, 10), (5, 10), (10, 10), (871, 1319), (1, 1)])
@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.99])
def test_wilson_against_scipy(successes, trials, confidence):
    expected = binomtest(successes, trials).proportion_ci(confidence, method="wilson")
    assert stats.wilson(successes, trials, confidence=confidence) == pytest.approx(tuple(expected), abs=1e-12)


def test_wilson_by_hand():
    # 5 of 10: z^2 = 3.841459; centre .5; half = 1.959964 sqrt(.025 + 3.841459/400) / 1.3841459 = .263407
    low, high = stats.wilson(5, 10)
    assert (low, high) == pytest.approx((0.236593, 0.763407), abs=1e-6)
    assert stats.wilson(0, 0) == (0.0, 1.0)
    assert stats.wilson(0, 7)[0] == 0.0
    assert stats.wilson(7, 7)[1] == 1.0
    with pytest.raises(ValueError, match="got 3 of 2"):
        stats.wilson(3, 2)


def test_wilson_coverage_exact():
    """Exact coverage by enumeration, n = 100: near 95 % on average over p, never far below."""
    trials, grid = 100, np.linspace(0.02, 0.98, 97)
    intervals = np.array([stats.wilson(k, trials) for k in range(trials + 1)])
    logs = np.cumsum(np.log(np.arange(1, trials + 1)))
    choose = np.array(
        [logs[-1] - (logs[k - 1] if k else 0) - (logs[trials - k - 1] if k < trials else 0) for k in range(101)]
    )
    k = np.arange(trials + 1)
    coverage = []
    for p in grid:
        mass = np.exp(choose + k * np.log(p) + (trials - k) * np.log(1 - p))
        coverage.append(mass[(intervals[:, 0] <= p) & (p <= intervals[:, 1])].sum())
    assert np.mean(coverage) == pytest.approx(0.95, abs=0.005)
    assert min(coverage) > 0.90


def coverage(runs, seeds, problems, *, seed_effect=0.0, seed=0):
    """Share of 95 % intervals holding the true difference .05, problems and seeds both drawn anew."""
    rng, hits = np.random.default_rng(seed), 0
    for _ in range(runs):
        gain = 0.05 + 0.3 * rng.standard_normal(problems)  # what the better method gains on each problem
        noise = 0.5 * rng.standard_normal((seeds, problems)) + seed_effect * rng.standard_normal((seeds, 1))
        _, low, high = stats.paired_bootstrap(gain + noise, rng, resamples=400)
        hits += low <= 0.05 <= high
    return hits / runs


def test_bootstrap_coverage():
    """200 runs: a 95 % rate is within .95 +/- .05 (three standard errors of .0154); with seeds crossed, not below."""
    assert coverage(200, 1, 80) == pytest.approx(0.95, abs=0.05)
    assert coverage(200, 3, 80, seed_effect=0.05) > 0.9


@pytest.mark.slow
def test_bootstrap_coverage_long():
    """One seed, no seed effect: nominal. Crossed: at least nominal without a seed effect, about nominal with one."""
    assert coverage(3000, 1, 200, seed=1) == pytest.approx(0.95, abs=0.015)
    for seeds, problems in [(3, 200), (5, 100)]:
        assert 0.95 <= coverage(3000, seeds, problems, seed=1) <= 0.999
        assert 0.92 <= coverage(3000, seeds, problems, seed_effect=0.05, seed=1) <= 0.98
    assert coverage(1000, 1, 200, seed_effect=0.05, seed=1) < 0.9  # what one seed cannot see


def test_bootstrap_by_hand_and_keyed():
    mean, low, high = stats.paired_bootstrap(np.full((2, 5), 0.25), np.random.default_rng(0))
    assert (mean, low, high) == (0.25, 0.25, 0.25)
    # 100 problems, +1 on 60, 0 on 40: standard error sqrt(.24 / 100) = .049; 1.96 of them = .096
    differences = np.repeat([1.0, 0.0], [60, 40])[None, :]
    one = stats.paired_bootstrap(differences, np.random.default_rng(1))
    assert one == stats.paired_bootstrap(differences, np.random.default_rng(1))
    assert one == pytest.approx((0.6, 0.504, 0.696), abs=0.012)
    with pytest.raises(ValueError, match="at least one seed"):
        stats.paired_bootstrap(np.zeros((0, 4)), np.random.default_rng(0))


def test_bootstrap_with_few_distinct_problems_widens_for_seeds():
    """Seeds that disagree widen the interval; averaging them away would not."""
    rng = np.random.default_rng(2)
    base = np.repeat([1.0, 0.0], [60, 40])
    shifted = np.stack([base - 0.4, base, base + 0.4])
    _, low, high = stats.paired_bootstrap(shifted, rng)
    _, low_mean, high_mean = stats.paired_bootstrap(shifted.mean(axis=0, keepdims=True), rng)
    assert high - low > 2 * (high_mean - low_mean)


def test_several_sets_count_the_same_and_one_set_is_the_plain_bootstrap():
    values = np.array([[1.0, 0, 1, 0], [1, 1, 0, 0]])
    plain = stats.paired_bootstrap(values, np.random.default_rng(5))
    assert stats.stratified_bootstrap([values], np.random.default_rng(5)) == plain
    large = np.ones((2, 100))
    mean, low, high = stats.stratified_bootstrap([large, np.zeros((2, 1))], np.random.default_rng(5))
    assert mean == pytest.approx(0.5)
    assert (low, high) == pytest.approx((0.5, 0.5))
    with pytest.raises(ValueError, match="one number of seeds"):
        stats.stratified_bootstrap([values, np.ones((3, 4))], np.random.default_rng(5))
    with pytest.raises(ValueError, match="at least one"):
        stats.stratified_bootstrap([values, np.ones((2, 0))], np.random.default_rng(5))


@given(st.integers(0, 60), st.integers(0, 60))
def test_mcnemar_against_scipy(b, c):
    expected = binomtest(b, b + c).pvalue if b + c else 1.0
    assert stats.mcnemar(b, c) == pytest.approx(expected, abs=1e-12)


def test_mcnemar_by_hand():
    # 1 against 9: 2 (1 + 10) / 1024
    assert stats.mcnemar(1, 9) == stats.mcnemar(9, 1) == 22 / 1024
    assert stats.mcnemar(0, 0) == 1.0


@given(st.integers(1, 8), st.data())
def test_r6_pass_at_k_by_enumeration(samples, data):
    """R6: the share of k-subsets that hold a right sample."""
    correct, k = data.draw(st.integers(0, samples)), data.draw(st.integers(1, samples))
    subsets = list(combinations(range(samples), k))
    share = sum(any(i < correct for i in subset) for subset in subsets) / len(subsets)
    assert stats.pass_at_k(samples, correct, k=k) == pytest.approx(share, abs=1e-12)


def test_pass_at_k_by_hand():
    # n = 5, c = 2, k = 2: 1 - C(3,2)/C(5,2) = 1 - 3/10
    assert stats.pass_at_k(5, 2, k=2) == pytest.approx(0.7)
    assert stats.pass_at_k(5, 2, k=1) == pytest.approx(0.4)
    with pytest.raises(ValueError, match="got k = 6 of 5"):
        stats.pass_at_k(5, 2, k=6)


@given(st.lists(st.integers(1, 3), max_size=4), st.integers(0, 2), st.data())
def test_r6_maj_at_k_by_enumeration(counts, abstained, data):
    """R6: the mean plurality value over all k-subsets, ties in expectation, abstainers casting no vote."""
    labels = np.array(
        [label for label, count in enumerate(counts) for _ in range(count)] + [-1] * abstained, dtype=np.int64
    )
    if len(labels) == 0:
        return
    right = data.draw(st.lists(st.booleans(), min_size=len(counts), max_size=len(counts)))
    flags = np.array([label >= 0 and right[label] for label in labels])
    k = data.draw(st.integers(1, len(labels)))
    subsets = [np.array(subset) for subset in combinations(range(len(labels)), k)][:400]
    if len(subsets) == 400:
        return
    mean = np.mean([plurality_value(labels[subset], flags[subset]) for subset in subsets])
    assert stats.maj_at_k(counts, right, k=k, abstained=abstained) == pytest.approx(mean, abs=1e-12)


def test_maj_at_k_by_hand():
    # 2 right, 1 wrong; k = 2: {c,c} 1, {c,w} twice 1/2: (1 + 1/2 + 1/2) / 3
    assert stats.maj_at_k([2, 1], [True, False], k=2) == pytest.approx(2 / 3)
    assert stats.maj_at_k([2, 1], [True, False], k=3) == 1.0
    assert stats.maj_at_k([2, 1], [True, False], k=1) == pytest.approx(stats.pass_at_k(3, 2, k=1))
    assert stats.maj_at_k([40, 30, 30], [True, False, False], k=64) > 0.75
    with pytest.raises(ValueError, match="got k = 4 of 3"):
        stats.maj_at_k([2, 1], [True, False], k=4)


def test_balanced_accuracy_by_hand():
    assert stats.balanced_accuracy((9, 1, 0), (3, 1, 0)) == (0.9 + 0.25) / 2
    assert stats.balanced_accuracy((5, 0, 5), (0, 2, 0)) == 0.75  # unreadable is a miss
    assert stats.balanced_accuracy((7, 0, 0), (3, 0, 0)) == 0.5  # always "right"
    assert stats.balanced_accuracy((0, 0, 0), (1, 1, 0)) is None
    assert stats.balanced_accuracy((1, 1, 0), (0, 0, 0)) is None


def test_sample_size_by_hand():
    # d = .02, psi = .1: (1.959964 sqrt(.1) + .841621 sqrt(.0996))^2 / .0004 = (.619795 + .265611)^2 / .0004 = 1959.9
    assert stats.paired_sample_size(0.02, 0.1) == 1960
    assert stats.paired_sample_size(-0.02, 0.1) == 1960
    assert stats.paired_sample_size(0.02, 0.2) == pytest.approx(2 * 1960, rel=0.01)
    with pytest.raises(ValueError, match="discordance"):
        stats.paired_sample_size(0.2, 0.1)


def test_sample_size_has_the_power_it_promises():
    """Simulated McNemar tests at the size for d = .1, psi = .3: about 80 % reject (the exact test is weaker)."""
    size, rng = stats.paired_sample_size(0.1, 0.3), np.random.default_rng(0)
    cells = rng.multinomial(size, [0.2, 0.1, 0.7], size=400)
    power = np.mean([stats.mcnemar(int(b), int(c)) < 0.05 for b, c, _ in cells])
    assert 0.7 < power < 0.86


def test_pareto_front():
    #  (1, .5) (2, .7) (2, .6) beaten by the second, (3, .7) beaten by the second, (4, .9)
    cost, accuracy = np.array([1.0, 2, 2, 3, 4]), np.array([0.5, 0.7, 0.6, 0.7, 0.9])
    assert stats.pareto_front(cost, accuracy).tolist() == [True, True, False, False, True]
    assert stats.pareto_front(np.ones(2), np.ones(2)).tolist() == [True, True]  # equal points keep each other company
