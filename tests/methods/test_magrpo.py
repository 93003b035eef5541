"""MAGRPO: the tree and its returns by hand; one agent and one turn are GRPO without the std."""

import numpy as np
import pytest

from counterpoint.methods import make_method
from counterpoint.testing import TASKS, check_method, play_all

from .crafted import TASK


def method(**settings):
    return make_method({"name": "magrpo", **settings})


def scripted(own, answers, agents):
    given = iter(answers)
    [episode], _, engine = play_all(
        own, [TASK], script=lambda request, seed: f"Final answer: {next(given)}", agents=agents
    )
    return own.credit(episode, [], {}), episode, engine


@pytest.mark.parametrize("agents", [("agent0",), ("agent0", "agent1"), ("x", "y", "z")])
@pytest.mark.parametrize("settings", [{}, {"turns": 3, "candidates": 2}, {"turns": 1, "scale": "group_std"}])
def test_contract(settings, agents):
    check_method(method(**settings), agents=agents)


def test_returns_of_a_tree_by_hand():
    """G = 2, T = 2, gamma = .5, one agent. Turn 1: r = 1, 0. Below the first: 1, 0; below the second: 0, 0.
    R_1 = 1 + .5 * .5 = 1.25 and 0 + .5 * 0 = 0: advantages +-.625; turn 2: +-.5, and nothing."""
    credit, episode, _ = scripted(method(candidates=2, discount=0.5), [7, 8, 7, 8, 8, 8], ("a",))
    assert [s.advantage for s in credit.samples] == pytest.approx([0.625, -0.625, 0.5, -0.5])
    assert credit.metrics["reward/solver"] == [0.625]
    assert credit.metrics["zero_signal/turn2"] == [0, 1]
    assert episode.answer == "7"


def test_every_agent_has_the_same_advantage_from_the_joint_return():
    """One turn, two agents, teams (7, 8) and (7, 7): values 1/2 and 1 -> -1/4 and +1/4 for both."""
    credit, _, _ = scripted(method(turns=1, candidates=2), [7, 7, 8, 7], ("a", "b"))
    assert [(s.agent, s.advantage) for s in credit.samples] == [
        ("a/solver", -0.25), ("a/solver", 0.25), ("b/solver", -0.25), ("b/solver", 0.25),
    ]  # fmt: skip


def test_each_branch_reads_its_own_joint_answer():
    asked = []

    def script(request, seed):
        asked.append(request)
        return f"{request.agent[0]}{len(asked)}\nFinal answer: 7"

    play_all(method(candidates=2), [TASK], script=script, agents=("a", "b"))
    second = [r.messages[1].content for r in asked if r.tag == "turn2"]
    assert len(second) == 8  # 2 branches x 2 agents x 2 samples
    first, other = second[0], second[4]
    assert "a1" in first
    assert "b3" in first
    assert "a2" in other
    assert "b4" in other


def test_one_agent_and_one_turn_are_grpo_without_the_std():
    own, single = method(turns=1, candidates=6), make_method({"name": "single", "candidates": 6, "scale": "none"})
    for a, b in zip(*[play_all(m, TASKS, agents=("a",))[0] for m in (own, single)], strict=True):
        ours, theirs = own.credit(a, [], {}).samples, single.credit(b, [], {}).samples
        assert [s.token_ids for s in ours] == [s.token_ids for s in theirs]
        assert 2 * np.array([s.advantage for s in ours]) == pytest.approx([s.advantage for s in theirs])  # 0/1, -1/+1


def test_counts():
    own = method(candidates=3, turns=2)
    _, _, engine = play_all(own, TASKS[:1], agents=("a", "b"))
    assert engine.completions == 24  # 2 agents, 1 + 3 nodes, 3 siblings
    _, _, engine = play_all(own, TASKS[:1], agents=("a", "b"), n=1)
    assert engine.completions == 4
