"""SEPO: the golden group, the symmetry of the bonuses, unreadable ratings."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from counterpoint.algorithms import sepo
from counterpoint.algorithms.advantage import advantages

T = np.array([0.7, 0.5, 0.9, 0.2])
V = np.array([0.6, 0.5, 0.1, 0.3])
R = np.array([1.0, 1.0, -1.0, -1.0])
ALL = np.ones(4, dtype=bool)

ratings = arrays(np.float64, 5, elements=st.floats(0, 1))


def test_golden():
    share = sepo.shares(T, V)
    assert share == pytest.approx([0.6562, 0.5, 0.5, 0.2596], abs=5e-5)
    bonus = sepo.centred_bonus(share, ALL)
    # first entry by hand: s1 = .3(.7) + .7(.6) = .63, s2 = .3(.4) + .7(.3) = .33: .63/.96 = .65625
    assert bonus == pytest.approx([0.1773, 0.021, 0.021, -0.2194], abs=5e-5)
    assert sepo.rewards(R, bonus) == pytest.approx([1.0355, 1.0042, -1.0042, -0.9561], abs=5e-5)
    assert sepo.rewards(R, -bonus) == pytest.approx([0.9645, 0.9958, -0.9958, -1.0439], abs=5e-5)


def test_golden_uncentred():
    bonus = sepo.plain_bonus(sepo.shares(T, V), ALL)
    assert sepo.rewards(R, bonus) == pytest.approx([1.0312, 1, -1, -0.9519], abs=1e-4)
    assert sepo.rewards(R, -bonus) == pytest.approx([0.9688, 1, -1, -1.0481], abs=1e-4)


@given(ratings, ratings, st.floats(0, 1))
def test_shares_are_symmetric_between_the_roles(t, v, eta):
    """Swapping roles (t <-> 1 - v) gives the other role's share, so bonus_2 = -bonus_1."""
    share = sepo.shares(t, v, eta=eta)
    assert ((share >= 0) & (share <= 1)).all()
    assert sepo.shares(1 - v, 1 - t, eta=eta) == pytest.approx(1 - share, abs=1e-9)


@given(ratings, ratings, arrays(np.bool_, 5))
def test_unreadable_ratings_are_masked(t, v, readable):
    """They get no bonus, and do not move the others' mean."""
    share = sepo.shares(t, v)
    noisy = np.where(readable, share, 0.123)
    for rule in (sepo.centred_bonus, sepo.plain_bonus):
        bonus = rule(share, readable)
        assert (bonus[~readable] == 0).all()
        assert np.array_equal(rule(noisy, readable), bonus)
    assert sepo.centred_bonus(share, readable).sum() == pytest.approx(0, abs=1e-12)


@given(ratings, ratings)
def test_right_always_beats_wrong(t, v):
    """The bonus tilts rewards within outcomes; it never turns one around (weight .2, |bonus| <= 1)."""
    bonus = sepo.centred_bonus(sepo.shares(t, v), np.ones(5, dtype=bool))
    right, wrong = sepo.rewards(np.ones(5), bonus), sepo.rewards(-np.ones(5), bonus)
    assert right.min() > 0 > wrong.max()
    assert advantages(right, baseline="group_mean").sum() == pytest.approx(0, abs=1e-12)
