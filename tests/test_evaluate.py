"""Measures by hand: four dialogues, first and last answers known, every share counted out."""

import pytest

from counterpoint.evaluate import GreedyController, measure
from counterpoint.methods import make_method
from counterpoint.records import Completion, Episode, Task, Turn

METHOD = make_method({"name": "propose_review"})
TASK = Task("q", "3 + 4?", "7", "number")


def reply(text, tokens=10, finish="stop"):
    return Completion(text, (1,) * 5, (2,) * tokens, (0.0,) * tokens, finish, 0)


def episode(i, texts, answer, finish="stop"):
    agents = ["a/proposer", "b/reviewer", "a/proposer"]
    turns = tuple(Turn(g, 0, agents[g], "t", reply(t, finish=finish)) for g, t in enumerate(texts))
    return Episode(f"eval/{i}", TASK, turns, (), answer)


EPISODES = [
    episode(0, ["Final answer: 7"], "7"),  # right from the start
    episode(1, ["Final answer: 8", "Verdict: WRONG", "Final answer: 7"], "7"),  # corrected
    episode(2, ["Final answer: 7", "Verdict: WRONG", "Final answer: 8"], "8"),  # harmed
    episode(3, ["so it is 7"], None),  # unreadable, though a last number would be right
]


def test_by_hand():
    m = measure(METHOD, EPISODES, flexible=True)
    assert m["n"] == 4
    assert m["accuracy"] == 2 / 4
    assert m["initial_accuracy"] == 2 / 4
    assert m["correction"] == 1 / 2  # of dialogues 1 and 3
    assert m["preservation"] == 1 / 2  # of dialogues 0 and 2
    assert m["harm"] == 1 / 2
    assert m["changed"] == 2 / 4
    assert m["unreadable"] == 1 / 4
    assert m["flexible_accuracy"] == 3 / 4
    assert m["calls_per_problem"] == 8 / 4
    assert m["completion_tokens_per_problem"] == 80 / 4
    assert m["prompt_tokens_per_problem"] == 40 / 4
    assert m["tokens_per_problem"] == 120 / 4
    assert m["truncated"] == 0
    assert m["ci95"] == pytest.approx([0.1500, 0.8500], abs=1e-4)  # Wilson for 2 of 4


def test_shares_of_nothing_are_none():
    m = measure(METHOD, EPISODES[:1])
    assert m["correction"] is None
    assert (m["preservation"], m["harm"]) == (1, 0)


def test_a_truncated_first_reply_has_no_answer():
    m = measure(METHOD, [episode(0, ["Final answer: 7"], None, finish="length")])
    assert (m["initial_accuracy"], m["truncated"], m["unreadable"]) == (0, 1, 1)


def test_greedy_controllers_take_the_most_probable_action():
    from counterpoint.controllers.fixed import FixedController, FixedSettings

    for p, expected in ((0.6, [0, 1]), (0.4, [1, 0]), (0.5, [0, 1])):
        assert GreedyController(FixedController(FixedSettings(p_speak=p))).probs("s").tolist() == expected
