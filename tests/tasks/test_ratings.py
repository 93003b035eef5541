"""Ratings: read strictly or not at all; nothing is evaluated."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.tasks.ratings import first_share


@pytest.mark.parametrize(
    ("reply", "share"),
    [
        ("[0.9, 0.1]", 0.9),
        (" [0.1,0.9]\n", 0.1),
        ("[1, 0]", 1.0),
        ("[0.3, 0.7]", 0.3),
        ("[0.9, 0.2]", None),
        ("[1.5, -0.5]", None),
        ("[true, false]", None),
        ("[NaN, 0.5]", None),
        ("[Infinity, 0.1]", None),
        ('["0.9", "0.1"]', None),
        ("[0.9]", None),
        ("[0.5, 0.3, 0.2]", None),
        ("{}", None),
        ("0.9, 0.1", None),
        ("I say [0.9, 0.1]", None),
        ("__import__('os').system('x')", None),
        ("[[[[" * 20, None),
        ("[" + "9" * 60 + ", 0.1]", None),
        ("", None),
    ],
)
def test_first_share(reply, share):
    assert first_share(reply) == share


@given(st.text(max_size=100))
def test_anything_else_is_none_or_a_share(reply):
    share = first_share(reply)
    assert share is None or 0 <= share <= 1
