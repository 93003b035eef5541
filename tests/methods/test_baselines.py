"""single, self_consistency and debate: counts, votes, and one-agent teams that equal the single-agent trainer."""

import pytest

from counterpoint.engines.scripted import ScriptedEngine
from counterpoint.evaluate import measure
from counterpoint.methods import make_method
from counterpoint.play import Job, play
from counterpoint.records import Sampling, Task
from counterpoint.testing import TASKS, check_method, guess_script, play_all

from .crafted import TASK

LONG = Sampling(max_new_tokens=400)
MANY = [Task(f"q{i}", "What is 3 + 4?", "7", "number") for i in range(40)]


def evaluated(method, tasks, script, agents):
    """Episodes as an evaluation plays them, and the engine that counted for itself."""
    engine = ScriptedEngine(script)
    jobs = [Job(f"eval/{t.id}", t) for t in tasks]
    played = play(method, jobs, agents=agents, engine=engine, controllers={}, sampling=LONG, seed=0)
    return sorted(played, key=lambda e: e.id), engine


def in_turn(*answers):
    """A script that gives these answers one after the other, over and over."""
    given = iter(answers * 100)
    return lambda request, seed: f"Final answer: {next(given)}"


# ---- single ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{}, {"baseline": "leave_one_out", "scale": "none"}])
def test_single_contract(settings):
    check_method(make_method({"name": "single", **settings}))


def test_a_one_agent_propose_review_of_one_round_is_single_sample_for_sample():
    one = make_method({"name": "single", "candidates": 6})
    team = make_method({"name": "propose_review", "rounds": 1, "candidates": 6})
    for seed in (0, 1):
        ours, _, _ = play_all(one, MANY, agents=("solo",), seed=seed)
        theirs, _, _ = play_all(team, MANY, agents=("solo",), seed=seed)
        for a, b in zip(ours, theirs, strict=True):
            assert (a.id, a.answer) == (b.id, b.answer)
            first, second = one.credit(a, [], {}), team.credit(b, [], {})
            assert first.samples == second.samples
            assert first.metrics == second.metrics
        assert any(one.credit(e, [], {}).samples for e in ours)


def test_single_advantages_by_hand():
    """Right right right wrong: mean 1/2, std sqrt(3)/2 -> .57735 three times and -1.73205."""
    [episode], _, _ = play_all(make_method({"name": "single"}), [TASK], script=in_turn(7, 7, 7, 8), agents=("a",))
    credit = make_method({"name": "single"}).credit(episode, [], {})
    assert [s.advantage for s in credit.samples] == pytest.approx([0.57735, 0.57735, 0.57735, -1.73205], abs=1e-5)
    plain = make_method({"name": "single", "scale": "none"}).credit(episode, [], {})
    assert [s.advantage for s in plain.samples] == pytest.approx([0.5, 0.5, 0.5, -1.5])


def test_single_in_evaluation_asks_once():
    episodes, engine = evaluated(make_method({"name": "single"}), TASKS, guess_script, ("a", "b"))
    assert (engine.completions, engine.calls) == (3, 1)
    assert measure(make_method({"name": "single"}), episodes)["calls_per_problem"] == 1


# ---- self-consistency ------------------------------------------------------------------------------------------------


def test_self_consistency_contract():
    check_method(make_method({"name": "self_consistency"}))


@pytest.mark.parametrize("k", [1, 5, 16])
def test_self_consistency_counts(k):
    method = make_method({"name": "self_consistency", "samples": k})
    episodes, engine = evaluated(method, TASKS, guess_script, ("a",))
    measured = measure(method, episodes)
    assert measured["calls_per_problem"] * len(TASKS) == engine.completions == k * len(TASKS)
    assert measured["completion_tokens_per_problem"] * len(TASKS) == engine.tokens
    assert measured["prompt_tokens_per_problem"] * len(TASKS) == engine.prompt_tokens


def test_self_consistency_answers_with_the_plurality():
    method = make_method({"name": "self_consistency", "samples": 5})
    [episode], _ = evaluated(method, [TASK], in_turn(8, 7, 9, 7, 7), ("a",))
    assert (episode.answer, method.first_answer(episode)) == ("7", "8")
    measured = measure(method, [episode])
    assert (measured["correction"], measured["changed"]) == (1.0, 1.0)


def test_self_consistency_over_classes_and_with_abstention():
    method = make_method({"name": "self_consistency", "samples": 4})
    half = Task("q", "?", "\\frac{1}{2}", "math")
    [episode], _ = evaluated(method, [half], in_turn("0.5", "3", "1/2", "3 or 4"), ("a",))
    assert episode.answer == "0.5"
    [nothing], _ = evaluated(method, [TASK], lambda request, seed: "no idea", ("a",))
    assert nothing.answer is None


# ---- debate ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("agents", [("agent0",), ("x", "y", "z")])
@pytest.mark.parametrize("settings", [{}, {"rounds": 3, "reads": "others"}, {"rounds": 1}])
def test_debate_contract(settings, agents):
    check_method(make_method({"name": "debate", **settings}), agents=agents)


def test_debate_counts():
    method = make_method({"name": "debate", "rounds": 3})
    episodes, engine = evaluated(method, TASKS, guess_script, ("a", "b", "c"))
    measured = measure(method, episodes)
    assert measured["calls_per_problem"] * len(TASKS) == engine.completions == 9 * len(TASKS)
    assert engine.calls == 3  # one batch a round, whatever the number of dialogues
    assert measured["prompt_tokens_per_problem"] * len(TASKS) == engine.prompt_tokens


def test_debate_everybody_reads_the_previous_round_and_nothing_else():
    asked = []

    def script(request, seed):
        asked.append(request)
        return f"{request.agent[0]}{request.tag[-1]}\nFinal answer: 7"

    evaluated(make_method({"name": "debate", "rounds": 3}), [TASK], script, ("a", "b"))
    assert [r.agent for r in asked] == ["a/solver", "b/solver"] * 3
    assert [m.content for m in asked[0].messages] == [
        "Solve the problem step by step. End with the line: Final answer: <number>",
        "What is 3 + 4?",
    ]
    last = asked[-1].messages
    assert last[0].content == "Solve the problem again, better. End with the line: Final answer: <number>"
    assert last[1].content == (
        "What is 3 + 4?\n\nSolution of agent 1:\na2\nFinal answer: 7\n\nSolution of agent 2:\nb2\nFinal answer: 7"
    )
    asked.clear()
    evaluated(make_method({"name": "debate", "reads": "others"}), [TASK], script, ("a", "b"))
    assert asked[-1].messages[1].content == "What is 3 + 4?\n\nSolution of agent 1:\na1\nFinal answer: 7"


def test_debate_ends_with_a_vote_and_knows_what_it_was_before():
    method = make_method({"name": "debate"})
    [episode], _ = evaluated(method, [TASK], in_turn(8, 8, 7, 7, 8, 7), ("a", "b", "c"))
    assert (method.first_answer(episode), episode.answer) == ("8", "7")
