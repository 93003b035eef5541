"""The method contract, over every file in methods/: a new method is tested by being there."""

import json

import numpy as np
import pytest

from counterpoint.dialogue import NO_HISTORY, Method
from counterpoint.engines.scripted import ScriptedEngine
from counterpoint.evaluate import measure
from counterpoint.methods import make_method, methods
from counterpoint.play import Job, play
from counterpoint.records import Sampling, Task
from counterpoint.store import EPISODE
from counterpoint.tasks.grading import extract
from counterpoint.testing import TASKS, guess_script, play_all

NAMES = sorted(methods())
KINDS = (*TASKS, Task("text", "Say the word.", "seven", "text"))
TEAMS = [("agent0",), ("agent0", "agent1"), ("ann", "bob", "cyd")]


def script(request, seed):
    """As guess_script, for every kind; some replies are cut off, some empty, some cannot be read."""
    if seed % 11 == 0:
        return ("", "I do not know.", "x" * 500)[seed % 3]
    if "Say the word" in request.messages[-1].content and "Verdict" not in request.messages[0].content:
        return f"So\nFinal answer: {'seven' if seed % 3 else 'eight'}"
    return guess_script(request, seed)


def own_forks(episode, forks):
    return [fork for fork in forks if fork.fork.parent == episode.id]


def read_back(episode):
    return EPISODE.validate_json(EPISODE.dump_json(episode))


@pytest.mark.parametrize("name", NAMES)
def test_settings_name_themselves_and_round_trip(name):
    method = make_method({"name": name})
    assert isinstance(method, Method)
    assert method.name == name
    assert make_method(json.loads(json.dumps(method.model_dump(mode="json")))) == method
    assert method.roles
    assert "arXiv" in (__import__(f"counterpoint.methods.{name}", fromlist=["x"]).__doc__)


@pytest.mark.parametrize("agents", TEAMS, ids=len)
@pytest.mark.parametrize("name", NAMES)
def test_play_and_credit(name, agents):
    """Every kind, three widths; records through JSON; credit pure; counts equal to what the engine counted."""
    method = make_method({"name": name})
    episodes, forks, engine = play_all(method, KINDS, script=script, agents=agents)
    for width in (1, 3):
        assert play_all(method, KINDS, script=script, agents=agents, width=width)[:2] == (episodes, forks)
    turns = [t.completion for e in [*episodes, *forks] for t in e.turns]
    assert (len(turns), sum(len(c.token_ids) for c in turns)) == (engine.completions, engine.tokens)
    assert sum(len(c.prompt_ids) for c in turns) == engine.prompt_tokens
    adapters = {f"{agent}/{role}" for agent in agents for role in method.roles}
    assert {t.agent for e in [*episodes, *forks] for t in e.turns} <= adapters
    for episode in episodes:
        own = own_forks(episode, forks)
        credit = method.credit(episode, own, {})
        assert method.credit(read_back(episode), [read_back(f) for f in own], {}) == credit
        assert all(np.isfinite(s.advantage) and s.token_ids for s in credit.samples)
        assert {s.agent for s in credit.samples} <= adapters
        assert all(np.isfinite(v) for values in credit.metrics.values() for v in values)
        taught = {(s.prompt_ids, s.token_ids) for s in credit.samples}
        assert taught <= {(t.completion.prompt_ids, t.completion.token_ids) for e in [episode, *own] for t in e.turns}
        assert method.trained or not credit.samples
        solution = method.last_solution(episode)
        assert solution is None or solution in {t.completion.text for t in episode.turns}
        if episode.answer is not None:
            assert extract(episode.task.kind, solution) == episode.answer


@pytest.mark.parametrize("name", NAMES)
def test_an_episode_does_not_depend_on_which_others_are_open(name):
    method = make_method({"name": name})
    together, _, _ = play_all(method, KINDS, script=script)
    alone = [play_all(method, [task], script=script)[0][0] for task in KINDS]
    assert sorted(alone, key=lambda e: e.id) == together


@pytest.mark.parametrize("name", NAMES)
def test_history_is_json_and_does_not_change_under_credit(name):
    method, history = make_method({"name": name}), {}
    for _ in range(3):
        episodes, forks, _ = play_all(method, KINDS, script=script)
        frozen = json.dumps(history, sort_keys=True)
        streams = {}
        for episode in episodes:
            credit = method.credit(episode, own_forks(episode, forks), history)
            for key, values in credit.streams.items():
                streams.setdefault(key, []).extend(values)
            assert all(isinstance(f.n, int) for f in method.forks(episode, history))
        after = method.remember(history, streams)
        assert json.dumps(history, sort_keys=True) == frozen
        assert all(np.isfinite(v) for v in method.figures(streams).values())
        history = json.loads(json.dumps(after, allow_nan=False))
        assert history == after
    assert method.forks(episodes[0]) == method.forks(episodes[0], NO_HISTORY)


@pytest.mark.parametrize("agents", TEAMS, ids=len)
@pytest.mark.parametrize("name", NAMES)
def test_evaluation_measures_what_the_engine_counted(name, agents):
    """One sibling each, no forks; tokens and calls as the engine counted them."""
    method = make_method({"name": name})
    engine, controllers = ScriptedEngine(script), method.controllers(agents)
    jobs = [Job(f"eval/{t.id}", t) for t in KINDS]
    kw = {"agents": agents, "engine": engine, "controllers": controllers, "sampling": Sampling(max_new_tokens=400)}
    episodes = list(play(method, jobs, seed=0, **kw))
    measured = measure(method, episodes)
    n = len(KINDS)
    assert measured["calls_per_problem"] * n == pytest.approx(engine.completions)
    assert measured["completion_tokens_per_problem"] * n == pytest.approx(engine.tokens)
    assert measured["prompt_tokens_per_problem"] * n == pytest.approx(engine.prompt_tokens)
    assert all(e.answer is None or isinstance(e.answer, str) for e in episodes)


@pytest.mark.parametrize("name", NAMES)
def test_a_team_that_is_cut_off_everywhere_answers_nothing_and_is_never_rewarded(name):
    method = make_method({"name": name})
    episodes, forks, _ = play_all(method, KINDS, script=lambda request, seed: "Final answer: 7" + " " * 500)
    for episode in episodes:
        assert episode.answer is None
        assert method.first_answer(episode) is None
        credit = method.credit(episode, own_forks(episode, forks), {})
        assert all(v <= 0 for key, values in credit.metrics.items() if key.startswith("reward/") for v in values)


@pytest.mark.parametrize("name", NAMES)
def test_the_dialogues_of_training_ask_for_siblings(name):
    method = make_method({"name": name})
    if method.trained:
        episodes, _, _ = play_all(method, KINDS[:1])
        assert max(t.sample for t in episodes[0].turns) == method.siblings - 1
