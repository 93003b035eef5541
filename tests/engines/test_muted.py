"""A muted agent says nothing and costs nothing; nobody else is touched."""

import pytest

from counterpoint.config import Config
from counterpoint.engines.muted import MutedEngine
from counterpoint.engines.scripted import ScriptedEngine
from counterpoint.methods import make_method
from counterpoint.play import Job, play
from counterpoint.records import Message, Request, Task
from counterpoint.store import read_episodes
from counterpoint.testing import LONG, guess_script
from counterpoint.train import train


def test_others_are_answered_as_before():
    asked = [Request(a, (Message("user", "3 + 4"),), "t", 2) for a in ("a/x", "b/x", "a/y", "c/x")]
    seeds = [1, 2, 3, 4]
    plain, muted = ScriptedEngine(guess_script), ScriptedEngine(guess_script)
    whole = plain.generate(asked, seeds=seeds, sampling=LONG)
    rest = MutedEngine(muted, ["a"]).generate(asked, seeds=seeds, sampling=LONG)
    assert [rest[i] for i in (1, 3)] == [whole[i] for i in (1, 3)]
    for group in (rest[0], rest[2]):
        assert [(c.text, c.token_ids, c.finish) for c in group] == [("", (), "stop")] * 2
    assert (plain.completions, muted.completions) == (8, 4)


def answers(method, script, muted):
    agents = ("agent0", "agent1")
    engine = MutedEngine(ScriptedEngine(script), muted)
    tasks = [Task(f"{k}", "What is 3 + 4?", "7", "number") for k in range(4)]
    played = play(
        method, [Job(t.id, t) for t in tasks], agents=agents, engine=engine, controllers={}, sampling=LONG, seed=0, n=1
    )
    return [episode.answer for episode in played]


def copier(request, seed):
    """A thinker that knows the answer and a solver that can only copy it."""
    if request.agent.endswith("thinker"):
        return "Add the numbers: seven."
    return "Final answer: 7" if any("seven" in m.content for m in request.messages) else "Final answer: 0"


def deaf(request, seed):
    return "Think hard: seven." if request.agent.endswith("thinker") else "Final answer: 7"


def test_muting_an_agent_that_is_copied_costs_all_and_one_that_is_ignored_nothing():
    method = make_method({"name": "think_solve"})
    assert answers(method, copier, []) == answers(method, deaf, []) == ["7"] * 4
    assert answers(method, copier, ["agent0"]) == ["0"] * 4
    assert answers(method, deaf, ["agent0"]) == ["7"] * 4


@pytest.mark.parametrize("name", ["think_solve", "vote", "propose_review", "debate"])
def test_a_run_measures_without_an_agent(micro, tmp_path, name):
    config = Config(
        model={"name": micro, "device": "cpu"},
        method={"name": name},
        steps=0,
        tasks={"eval": ["mini-gsm"]},
        sampling={"max_new_tokens": 8},
        evaluation={"limit": 3, "untrained": False, "also": "none", "mute": ["agent0"]},
    )
    summary = train(config, tmp_path / "run")
    assert summary["eval"]["mini-gsm"]["accuracy"] == 0
    played = read_episodes(tmp_path / "run" / "eval" / "mini-gsm.jsonl")
    assert len(played) == 3
    assert all((t.completion.text == "") for e in played for t in e.turns if t.agent.startswith("agent0/"))


def test_an_unknown_agent():
    with pytest.raises(ValueError, match=r"evaluation.mute names 'agent7', which is no agent; known: agent0, agent1"):
        Config(evaluation={"mute": ["agent7"]})
