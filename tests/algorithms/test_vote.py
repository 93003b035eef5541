"""Votes: classes by an equality that need not be well behaved, ties in expectation, independence of the order."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.algorithms.vote import ABSTAIN, classes, plurality, plurality_value, top_classes


def number(a, b):
    """1/2 and .5 are one answer."""
    return eval_ratio(a) == eval_ratio(b)


def eval_ratio(text):
    top, _, bottom = text.partition("/")
    return float(top) / float(bottom or 1)


def test_v11_votes_are_not_split_between_spellings():
    answers = ["1/2", "3", ".5", None, "3.0", "0.5"]
    assert classes(answers, number).tolist() == [0, 1, 0, ABSTAIN, 1, 0]
    assert plurality(answers, number) == ".5"
    assert plurality(answers, str.__eq__) == "3"  # by string everything ties: the shortest


def test_classes_close_a_grader_that_is_neither_symmetric_nor_transitive():
    """near(a, b) holds for a < b <= a + 1 only: 1 ~ 2 ~ 3 is one chain in every order, 7 stands alone."""

    def near(a, b):
        return int(a) < int(b) <= int(a) + 1

    for answers in permutations(["1", "2", "3", "7"]):
        labels = dict(zip(answers, classes(answers, near).tolist(), strict=True))
        assert labels["1"] == labels["2"] == labels["3"] != labels["7"]


@given(st.lists(st.sampled_from(["1/2", ".5", "0.50", "3", "3.0", "7", None]), max_size=7), st.randoms())
def test_v12_the_plurality_does_not_depend_on_the_order(answers, random):
    """V12: deterministic under permutation, ties included."""
    shuffled = list(answers)
    random.shuffle(shuffled)
    assert plurality(shuffled, number) == plurality(answers, number)
    assert (plurality(answers, number) is None) == all(answer is None for answer in answers)


def test_ties_by_hand():
    assert plurality(["b", "a"], str.__eq__) == "a"
    assert plurality(["10", "9"], str.__eq__) == "9"
    assert plurality(["3.0", "3.0", "3", "7", "7"], number) == "3.0"  # 3 votes to 2; its most frequent spelling
    assert plurality([], number) is None
    assert plurality([None, None], number) is None


@pytest.mark.parametrize(
    ("labels", "right", "expected"),
    [
        ([0, 0, 1], [1, 1, 0], 1.0),
        ([0, 1, 1], [1, 0, 0], 0.0),
        ([0, 1], [1, 0], 1 / 2),
        ([0, 1, 2], [1, 0, 0], 1 / 3),
        ([0, 1, 1, 0, 2], [1, 0, 0, 1, 0], 1 / 2),
        ([-1, -1, 0], [0, 0, 1], 1.0),  # abstaining is no vote
        ([-1, -1], [0, 0], 0.0),
        ([], [], 0.0),
    ],
)
def test_plurality_value(labels, right, expected):
    assert plurality_value(np.array(labels, dtype=np.int64), np.array(right, dtype=bool)) == expected


def test_top_classes():
    assert top_classes(np.array([2, 0, 2, 0, 1, -1, -1, -1])).tolist() == [0, 2]
