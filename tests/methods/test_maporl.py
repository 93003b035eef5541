"""MAPoRL: scores ahead and bonuses by hand; debates side by side."""

import numpy as np
import pytest

from counterpoint.methods import make_method
from counterpoint.testing import TASKS, check_method, play_all

from .crafted import TASK


def method(**settings):
    return make_method({"name": "maporl", **settings})


@pytest.mark.parametrize("agents", [("agent0",), ("agent0", "agent1"), ("x", "y", "z")])
@pytest.mark.parametrize("settings", [{}, {"rounds": 3, "candidates": 2}, {"rounds": 1, "scale": "none"}])
def test_contract(settings, agents):
    check_method(method(**settings), agents=agents)


def test_scores_ahead_by_hand():
    """gamma = .5, two agents, scores (1, 0) then (1, 1). Round 1: (s + .5 * 1) / 1.5 -> 1 and 1/3; round 2: 1, 1."""
    ahead = method(discount=0.5)._scores_ahead(np.array([[[1.0, 0.0], [1.0, 1.0]]]))
    assert ahead == pytest.approx(np.array([[[1.0, 1 / 3], [1.0, 1.0]]]))


@pytest.mark.parametrize(
    ("before", "after", "first", "second"),
    [
        ((1, 0), (1, 1), (0.3, 0), (0, 0.1)),  # b follows a right other; a influenced it
        ((0, 0), (1, 0), (0, 0), (0.2, 0)),  # a turns right against a wrong other
        ((1, 0), (0, 0), (0, -0.3), (-0.1, 0)),  # a gives in to a wrong other, who pulled it down
        ((1, 1), (0, 1), (0, 0), (-0.2, 0)),  # a turns wrong against a right other: b was right, no blame for b
        ((1, 1), (1, 1), (0, 0), (0, 0)),
        ((0, 1), (1, 0), (-0.3, 0.3), (0.1, -0.1)),  # they swap: each followed the other, b for worse, a for better
    ],
)
def test_bonuses_by_hand(before, after, first, second):
    own = method(follow=0.1, resist=0.2, influence=0.3)
    bonus = own._bonus(np.array([[before, after]], dtype=np.float64))[0]
    assert bonus[0] == pytest.approx(first)
    assert bonus[1] == pytest.approx(second)


def test_a_tie_of_the_others_says_nothing():
    bonus = method()._bonus(np.array([[[0.0, 1.0, 0.0], [1.0, 1.0, 0.0]]]))[0]
    assert bonus[1, 0] == 0
    assert method()._bonus(np.zeros((2, 3, 1))).tolist() == np.zeros((2, 3, 1)).tolist()  # alone: nobody to follow


def test_debates_are_side_by_side_and_compared_per_agent_and_round():
    """Two debates of two agents: 7 7 | 8 8 in round 1 and everybody 7 in round 2; no bonus, gamma 0."""
    given = iter([7, 8, 7, 8, 7, 7, 7, 7])
    own = method(candidates=2, scale="none", discount=0, follow=0, resist=0, influence=0)
    [episode], _, _ = play_all(
        own, [TASK], script=lambda request, seed: f"Final answer: {next(given)}", agents=("a", "b")
    )
    credit = own.credit(episode, [], {})
    assert [(s.agent, s.advantage) for s in credit.samples] == [
        ("a/solver", 1), ("a/solver", -1), ("b/solver", 1), ("b/solver", -1),
    ]  # fmt: skip
    assert [t.agent for t in episode.turns[4:]] == ["a/debater", "b/debater"] * 2
    assert credit.metrics["accuracy/round1"] == [0.5, 0.5]
    assert credit.metrics["accuracy/round2"] == [1, 1]


def test_train_roles():
    own = method(train_roles=["debater"], scale="none")
    episodes, _, _ = play_all(own, TASKS, agents=("a", "b"))
    agents = {s.agent for e in episodes for s in own.credit(e, [], {}).samples}
    assert agents == {"a/debater", "b/debater"}


def test_counts():
    own = method(rounds=3, candidates=4)
    _, _, engine = play_all(own, TASKS[:1], agents=("a", "b"))
    assert engine.completions == 24  # 2 agents, 3 rounds, 4 debates
