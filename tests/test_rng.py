"""Keyed randomness: equal paths give equal draws, different ones do not."""

from hypothesis import given
from hypothesis import strategies as st

from counterpoint.rng import fold, generator, uniform

PATHS = st.lists(st.text() | st.integers(), max_size=4)


def test_golden():
    """Pinned: a change here would break every resumed run."""
    assert fold(0) == 4429783136828819033
    assert fold(7, "train", 1, "x#2") == 6989018766316649524


@given(PATHS, PATHS)
def test_paths_are_told_apart(a, b):
    assert (fold(0, *a) == fold(0, *b)) == (a == b)


def test_types_and_joints_matter():
    assert len({fold(1, "a", "b"), fold(1, "ab"), fold(1, "a", "b", ""), fold(1, 1), fold(1, "1")}) == 5


def test_uniform_is_uniform():
    draws = [uniform(3, i) for i in range(4000)]
    assert all(0 <= u < 1 for u in draws)
    assert abs(sum(draws) / 4000 - 0.5) < 0.02


def test_generators_are_independent():
    assert generator(0, "a").integers(1 << 30) != generator(0, "b").integers(1 << 30)
    assert generator(0, "a").integers(1 << 30) == generator(0, "a").integers(1 << 30)
