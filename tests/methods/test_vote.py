"""Voting: golden credits, ties, relabelling, Shapley, abstention, teams of siblings."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.algorithms.vote import plurality_value
from counterpoint.errors import ConfigError
from counterpoint.methods import make_method
from counterpoint.records import Task
from counterpoint.testing import TASKS, check_method, play_all

from .crafted import TASK, ballots

C, W, V = "7", "8", "9"  # right, wrong, wrong otherwise
ANSWER = st.sampled_from([C, W, V, None])


def method(**settings):
    return make_method({"name": "vote", **settings})


def credits(own, *teams):
    """Reward of every agent in the only team, before any baseline."""
    credit = own.credit(ballots(*teams), [], {})
    names = [f"{name}/solver" for name in "abcdefgh"[: len(teams[0])]]
    found = dict.fromkeys(names, 0.0)  # an agent whose credit is 0 teaches nothing
    found |= {s.agent: s.advantage for s in credit.samples}
    return list(found.values())


@pytest.mark.parametrize("settings", [{}, {"credit": "joint"}, {"credit": "shared"}, {"delta": "shapley"}])
@pytest.mark.parametrize("agents", [("agent0",), ("agent0", "agent1"), ("x", "y", "z")])
def test_contract(settings, agents):
    check_method(method(**settings), agents=agents)


@pytest.mark.parametrize(
    ("team", "golden"),
    [
        ((C, C, C), (0, 0, 0)),
        ((C, C, W), (0.5, 0.5, 0)),
        ((C, W, W), (0, -0.5, -0.5)),
        ((C, W, V), (1 / 3, -1 / 6, -1 / 6)),
        ((W, W, W), (0, 0, 0)),
        ((W, V, W), (0, 0, 0)),
    ],
)
def test_leave_one_out_golden(team, golden):
    assert credits(method(beta=1, baseline="none"), team) == pytest.approx(golden)


def test_beta_mixes_in_whether_the_agent_itself_is_right():
    assert credits(method(beta=0.5, baseline="none"), (C, C, W)) == pytest.approx((0.75, 0.75, 0))
    assert credits(method(beta=0, baseline="none"), (C, C, W)) == pytest.approx((1, 1, 0))
    assert credits(method(credit="joint", weight=0.2, baseline="none"), (C, C, W)) == pytest.approx((1.1, 1.1, 1))
    assert credits(method(credit="shared", baseline="none"), (C, W, V)) == pytest.approx((1 / 3,) * 3)


@given(st.lists(ANSWER, min_size=1, max_size=5))
def test_shapley_adds_up_to_the_teams_value(team):
    own = method(delta="shapley", beta=1, baseline="none")
    labels = np.array([-1 if a is None else "789".index(a) for a in team])
    value = plurality_value(labels, np.array([a == C for a in team]))
    assert sum(credits(own, tuple(team))) == pytest.approx(value)


@pytest.mark.parametrize("delta", ["leave_one_out", "shapley"])
@given(team=st.lists(ANSWER, min_size=3, max_size=3))
def test_relabelling_agents_permutes_credit(delta, team):
    own = method(delta=delta, baseline="none")
    before = credits(own, tuple(team))
    for order in permutations(range(3)):
        after = credits(own, tuple(team[i] for i in order))
        assert after == pytest.approx([before[i] for i in order])


@given(team=st.lists(ANSWER, min_size=3, max_size=3), place=st.integers(0, 2))
def test_abstaining_is_never_better_than_being_right_and_a_cut_off_answer_abstains(team, place):
    own = method(baseline="none")
    silent, right = list(team), list(team)
    silent[place], right[place] = None, C
    assert credits(own, tuple(silent))[place] <= credits(own, tuple(right))[place] + 1e-12


def test_cut_off_answers_do_not_vote():
    def script(request, seed):
        return "Final answer: 7" + (" " * 500 if request.agent.startswith("a") else "")

    episodes, _, _ = play_all(method(), TASKS[:1], script=script, agents=("a", "b"))
    credit = method(beta=0, baseline="none").credit(episodes[0], [], {})
    assert [s.advantage for s in credit.samples] == [1] * 4  # b's alone; a is never right
    assert {s.agent for s in credit.samples} == {"b/solver"}


def test_the_jth_siblings_are_a_team_and_each_agent_is_compared_with_its_own():
    """Two teams (c, c, w) and (w, c, w), beta 1: credits +.5 +.5 0 and 0, 0 (w w beat it): a +-.5, b +.5 -> 0, c -.5."""
    own = method(beta=1, baseline="group_mean")
    credit = own.credit(ballots((C, C, W), (W, C, W)), [], {})
    assert credit.metrics["team_value"] == [1, 0]
    taught = {}
    for sample in credit.samples:
        taught.setdefault(sample.agent, []).append(sample.advantage)
    # team 2: R(all) = 0; without a or c: a tie of c and w, 1/2 -> -1/2 each; without b: 0 -> 0
    assert taught == {"a/solver": [0.5, -0.5], "b/solver": [0.25, -0.25], "c/solver": [0.25, -0.25]}


def test_votes_are_counted_over_equivalence_classes_not_strings():
    half = Task("q", "?", "\\frac{1}{2}", "math")
    episode = ballots(("0.5", "1/2", "3"), task=half)
    credit = method(beta=1, baseline="none").credit(episode, [], {})
    assert credit.metrics["team_value"] == [1]
    assert sorted(s.agent for s in credit.samples) == ["a/solver", "b/solver"]


def test_ties_are_expected_in_credit_and_decided_by_rule_in_the_answer():
    def script(request, seed):
        return {"a": "Final answer: 12", "b": "Final answer: 7", "c": "no"}[request.agent[0]]

    for agents in permutations("abc"):
        episodes, _, _ = play_all(method(), [TASK], script=script, agents=agents)
        assert episodes[0].answer == "7"  # the shorter of two equally often given
        assert method().credit(episodes[0], [], {}).metrics["team_value"] == [0.5] * 4


def test_an_all_equal_group_teaches_nothing():
    assert not method().credit(ballots((C, C, C), (C, C, C)), [], {}).samples


def test_the_first_answer_is_the_first_agents_own():
    episode = ballots((W, C, C))
    assert method().first_answer(episode) == W


def test_shapley_refuses_large_teams_before_anything_runs():
    assert method(delta="shapley").controllers("abcdefgh") == {}
    with pytest.raises(ConfigError, match="at most 8 agents, the team has 9"):
        method(delta="shapley").controllers("abcdefghi")
