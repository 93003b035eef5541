"""Measures by hand: four dialogues, first and last answers known, every share counted out."""

import json
from dataclasses import replace

import pytest

from counterpoint.controllers import make
from counterpoint.evaluate import GreedyController, measure, unseen_decisions
from counterpoint.methods import make_method
from counterpoint.records import ActionValues, Completion, Decision, Episode, Task, Turn

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


def test_verdicts_by_hand():
    wrong_cut = episode(4, ["Final answer: 8", "Verdict: WRO"], "8")
    told = [
        episode(5, ["Final answer: 7", "Verdict: RIGHT"], "7"),
        episode(6, ["Final answer: 7", "Verdict: RIGHT"], "7"),
        episode(7, ["so it is 7", "Verdict: RIGHT"], None),  # an unreadable answer is not right
    ]
    m = measure(METHOD, [*EPISODES, wrong_cut, *told])
    assert m["verdicts"] == {
        "right": {"right": 2, "wrong": 1, "unreadable": 0},
        "wrong": {"right": 1, "wrong": 1, "unreadable": 1},
    }
    assert m["verdict_accuracy"] == (2 / 3 + 1 / 3) / 2
    assert json.loads(json.dumps(m)) == m


def test_the_verdict_counted_is_the_one_played():
    """With `played: fresh`, four candidates and then the utterance itself; with `first`, candidate 0."""
    texts = ["Verdict: RIGHT", "Verdict: WRONG"]
    first = Turn(0, 0, "a/proposer", "propose", reply("Final answer: 7"))
    candidates = [Turn(1, j, "b/reviewer", "review", reply(text)) for j, text in enumerate(texts)]
    fresh = Turn(2, 0, "b/reviewer", "review/played", reply("Verdict: WRONG"))
    played = Episode("train/1/q", TASK, (first, *candidates), (), "7")
    assert METHOD.verdicts(played) == [(True, "right")]
    published = make_method({"name": "propose_review", "fidelity": "published"})
    assert published.verdicts(replace(played, turns=(*played.turns, fresh))) == [(True, "wrong")]


def test_methods_without_reviewers_have_no_verdicts():
    m = measure(make_method({"name": "single"}), EPISODES[:1])
    assert sum(sum(row.values()) for row in m["verdicts"].values()) == 0
    assert m["verdict_accuracy"] is None


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


def test_decisions_in_states_that_training_never_saw_are_counted():
    """A3: by what the controllers' tables hold, each controller by its own."""
    controllers = {name: make("regret") for name in ("a", "b")}
    controllers["a"].update([ActionValues("a", "seen", (1.0, 0.0))])
    made = [Decision(name, state, 1, (0.5, 0.5), 0) for name in ("a", "b") for state in ("seen", "new", "seen")]
    assert unseen_decisions([replace(EPISODES[0], decisions=tuple(made))], controllers) == 4
    frozen = {name: controller.average() for name, controller in controllers.items()}
    assert unseen_decisions([replace(EPISODES[0], decisions=tuple(made))], frozen) == 4
