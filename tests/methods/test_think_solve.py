"""CCPO's dyad: golden numbers through the method, what each credit does, traps of the public code, alternation, cache."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.engines.scripted import ScriptedEngine
from counterpoint.errors import ConfigError
from counterpoint.methods import make_method
from counterpoint.play import Job, fork_jobs, play
from counterpoint.records import Episode, Sampling, Task, Turn
from counterpoint.rng import uniform
from counterpoint.testing import TASKS, check_method, play_all

from .crafted import CUT, RIGHT, TASK, WRONG, completion, dyad, outcome, reply

PRESETS = ("effective", "published_v1", "published_event", "published_continuous", "shared", "sepo")
JOINT = [[1, 1, -1, -1], [1, -1, 1, -1], [1, 1, -1, 1]]
SOLO = [[-1, -1, -1, 1], [1, 1, 1, -1], [1, -1, 1, -1]]
RATED = [("[0.5, 0.5]", "[0.5, 0.5]")]


def method(credit="effective", **settings):
    return make_method({"name": "think_solve", "credit": credit, **settings})


def advantages(own, joint, solo=(), history=None, **kw):
    """(thinker's, solver's) advantages of one crafted question."""
    episode, forks = dyad([j if isinstance(j, str) else outcome(j) for j in joint], [outcome(s) for s in solo], **kw)
    streams = own.credit(episode, forks, history or {}).streams
    return streams["advantage|thinker"], streams.get("advantage|solver", [])


def centred(values):
    return np.array(values) - np.mean(values)


# ---- the contract ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("credit", PRESETS)
@pytest.mark.parametrize("agents", [("agent0",), ("agent0", "agent1"), ("x", "y", "z")])
def test_contract(credit, agents):
    check_method(method(credit), agents=agents)


def test_contract_with_several_answers_and_trained_solos():
    check_method(method(answers=3, train_solo=True, solos=2))


def test_who_is_asked_what():
    episodes, forks, engine = play_all(method(answers=2, solos=3))
    for episode in episodes:
        assert [(t.group, t.sample, t.agent) for t in episode.turns[:4]] == [(0, k, "agent0/thinker") for k in range(4)]
        assert [(t.group, t.sample) for t in episode.turns[4:]] == [(1 + k, j) for k in range(4) for j in range(2)]
        assert {t.agent for t in episode.turns[4:]} == {"agent1/solver"}
    assert [len(f.turns) for f in forks] == [3] * len(TASKS)
    assert {t.agent for f in forks for t in f.turns} == {"agent1/solver"}
    assert engine.completions == len(TASKS) * (4 + 8 + 3)


def test_evaluation_asks_once_each():
    episodes, _, _ = play_all(method(answers=3), n=1)
    assert [[t.tag for t in e.turns] for e in episodes] == [["think", "solve"]] * len(TASKS)
    assert [e.answer for e in episodes] == [method().first_answer(e) for e in episodes]


def test_prompts():
    """The bare question everywhere; the thinker is asked for no answer format; one system message with and without."""
    seen = {}

    def script(request, seed):
        seen[request.tag if request.tag != "rate" else request.agent] = request.messages
        return "Add \\boxed{7} both.\nFinal answer: 7" if request.tag == "think" else "Final answer: 7"

    play_all(method("sepo", solos=2), TASKS[:1], script=script)
    texts = {tag: [(m.role, m.content) for m in messages] for tag, messages in seen.items()}
    solve = "Solve the problem step by step. End with the line: Final answer: <number>"
    assert texts == {
        "think": [
            ("system", "Plan how to solve the problem. Do not give the final answer."),
            ("user", "What is 3 + 4?"),
        ],
        "solve": [("system", solve), ("user", "What is 3 + 4?\n\nPlan:\nAdd  both.")],
        "solo": [("system", solve), ("user", "What is 3 + 4?")],
        "agent0/thinker": rate_prompt,
        "agent1/solver": rate_prompt,
    }


rate_prompt = [
    (
        "system",
        "Split the credit between planner and solver. Reply with two shares that add up to 1, planner first, "
        "from [0.9, 0.1] to [0.1, 0.9], and nothing else.",
    ),
    (
        "user",
        "What is 3 + 4?\n\nPlan:\nAdd  both.\n\nSolution:\nFinal answer: 7\n\nThe answer is right.",
    ),
]


# ---- golden numbers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("credit", "golden"),
    [
        ("published_event", [[1.2, 1.2, -1, -1], [1, -1.2, 1, -1.2], [1, 1, -1, 1]]),
        ("published_continuous", [[1.15, 1.15, -1.05, -1.05], [1.05, -1.15, 1.05, -1.15], [1.1, 1.1, -1.1, 1.1]]),
    ],
)
def test_published_golden(credit, golden):
    for joint, solo, rewards in zip(JOINT, SOLO, golden, strict=True):
        thinker, solver = advantages(method(credit), joint, solo)
        assert thinker == pytest.approx(centred(rewards), abs=1e-12)
        assert solver == pytest.approx(centred(joint), abs=1e-12)
        raw, _ = advantages(method(credit, baseline="none"), joint, solo)
        assert raw == pytest.approx(rewards, abs=1e-12)


def test_published_v1_golden_with_its_history_through_json():
    """Three batches of eight; the history is saved and read back between them."""
    joint = [[1, 1, 0, 0, 1, 0, 1, 1], [1, 0, 1, 1, 0, 0, 1, 0], [1] * 8]
    solo = [[0, 1, 1, 0, 0, 0, 1, 1], [0, 0, 1, 0, 1, 0, 1, 0], [1] * 8]
    thinker = [
        [1, 0, -1, 0, 1, 0, 0, 0],
        [0.8976, -0.2055, -0.2055, 0.8976, -0.9542, -0.2055, -0.2055, -0.2055],
        [-0.2055] * 8,
    ]
    solver = [
        joint[0],
        [-0.0205, -1.1606, 0.8756, -0.0205, -0.2645, -1.1606, 0.8756, -1.1606],
        [0.8781] * 8,
    ]
    own, history = method("published_v1", thoughts=8, baseline="none", scale="none"), {}
    for t in range(3):
        episode, forks = dyad([outcome(2 * j - 1) for j in joint[t]], [outcome(2 * s - 1) for s in solo[t]])
        credit = own.credit(episode, forks, history)
        assert credit.streams["advantage|thinker"] == pytest.approx(thinker[t], abs=5e-5)
        assert credit.streams["advantage|solver"] == pytest.approx(solver[t], abs=5e-5)
        history = json.loads(json.dumps(own.remember(history, credit.streams)))
        if t == 0:
            delta = history["v1"][""]["delta"]
            assert (delta["mean"], np.sqrt(delta["variance"])) == pytest.approx((0.125, 0.599479), abs=5e-7)


def test_sepo_golden():
    ratings = [
        (f"[{t}, {round(1 - t, 1)}]", f"[{v}, {round(1 - v, 1)}]")
        for t, v in zip([0.7, 0.5, 0.9, 0.2], [0.6, 0.5, 0.1, 0.3], strict=True)
    ]
    thinker, solver = advantages(method("sepo", baseline="none"), [1, 1, -1, -1], ratings=ratings)
    assert thinker == pytest.approx([1.0355, 1.0042, -1.0042, -0.9561], abs=5e-5)
    assert solver == pytest.approx([0.9645, 0.9958, -0.9958, -1.0439], abs=5e-5)
    thinker, solver = advantages(method("sepo", baseline="none", rating_centred=False), [1, 1, -1, -1], ratings=ratings)
    assert thinker == pytest.approx([1.03125, 1, -1, -0.9519], abs=5e-5)
    assert solver == pytest.approx([0.96875, 1, -1, -1.0481], abs=5e-5)


def test_sepo_masks_and_counts_what_it_cannot_read():
    ratings = [("[0.9, 0.1]", "0.9"), ("__import__('os')", "[0.5, 0.5]"), ("[0.7, 0.3]", "[0.7, 0.3]")]
    episode, forks = dyad([RIGHT, WRONG, RIGHT, "uncalled"], ratings=ratings)
    own = method("sepo", baseline="none")
    credit = own.credit(episode, forks, {})
    assert credit.metrics["rating_unreadable"] == [0, 1, 1, 0, 0, 0]
    assert credit.streams["advantage|thinker"] == pytest.approx([1, -1, 1, -1])  # the one readable share is the mean
    unrated = own.credit(episode, [], {})
    assert unrated.streams["advantage|thinker"] == pytest.approx([1, -1, 1, -1])


def test_effective_by_hand():
    """First step: w = 1/2, sigma = 1. J = 1 1 -1 -1, S = -1: loo = -1/3 -1/3 1/3 1/3, b = loo/2 - 1/2."""
    thinker, solver = advantages(method(), [1, 1, -1, -1], [-1])
    assert thinker == pytest.approx([5 / 3, 5 / 3, -2 / 3, -2 / 3])
    assert solver == pytest.approx(thinker)


def test_effective_is_alive_where_all_agree():
    """All right on a question the solver fails alone is rewarded; thoughts that break what it can do are punished."""
    assert advantages(method(), [1, 1, 1, 1], [-1, -1]) == ([1] * 4, [1] * 4)
    assert advantages(method(), [-1, -1, -1, -1], [1, 1]) == ([-1] * 4, [-1] * 4)
    assert advantages(method("shared"), [1, 1, 1, 1]) == ([0] * 4, [0] * 4)
    episode, forks = dyad([RIGHT] * 4, [RIGHT] * 4)
    assert not method().credit(episode, forks, {}).samples


@given(
    joint=st.lists(st.sampled_from([-1, 1]), min_size=4, max_size=4),
    solo=st.lists(st.sampled_from([-1, 1]), min_size=1, max_size=6),
)
def test_verified_fact_published_is_the_plain_advantage_times_a_constant(joint, solo):
    """1.0x or 1.1x or 1.2x..: one factor a question; with std no effect at all. It cannot tell thoughts apart."""
    thinker, _ = advantages(method("published_event"), joint, solo)
    plain = centred(joint)
    factors = {round(a / p, 9) for a, p in zip(thinker, plain, strict=True) if p}
    assert len(factors) <= 1
    assert factors <= {1.0, 1.1}
    normalised, _ = advantages(method("published_event", scale="group_std"), joint, solo)
    shared, _ = advantages(method("shared"), joint)
    assert normalised == pytest.approx(shared, abs=1e-9)


# ---- traps -----------------------------------------------------------------------------------------------------------

ROW = st.sampled_from([RIGHT, WRONG, CUT, "uncalled"])
SHARE = st.sampled_from(["[0.9, 0.1]", "[0.1, 0.9]", "[0.5, 0.5]", "?"])


@pytest.mark.parametrize("settings", [{"credit": c} for c in PRESETS] + [{"leak_penalty": 0.5}])
@given(data=st.data())
def test_cut_off_is_never_better_than_wrong(settings, data):
    own = method(**settings)
    joint = data.draw(st.lists(ROW, min_size=4, max_size=4))
    solo = data.draw(st.lists(st.sampled_from([RIGHT, WRONG]), min_size=4, max_size=4)) if own.solo_count else []
    rated = [(data.draw(SHARE), data.draw(SHARE)) for j in joint if j != "uncalled"] if own.preset == "sepo" else None
    history = {}
    for step in (1, 2):
        episode, forks = dyad(joint, solo, ratings=rated, step=step, thought="It is 7.")
        credit = own.credit(episode, forks, history)
        streams = credit.streams
        for names, key in ((joint, "thinker"), ([j for j in joint if j != "uncalled"], "solver")):
            given_ = streams.get(f"advantage|{key}", [])
            cut = [a for a, j in zip(given_, names, strict=True) if j == ("uncalled" if key == "thinker" else CUT)]
            wrong = [a for a, j in zip(given_, names, strict=True) if j == WRONG]
            if cut and wrong:
                assert max(cut) <= min(wrong) + 1e-12
        history = own.remember(history, streams)


def test_a_cut_off_thought_calls_no_solver_and_is_wrong():
    def script(request, seed):
        return "x" * 300 if request.tag == "think" and seed % 2 else "Final answer: 7"

    own, engine = method(solos=2), ScriptedEngine(script)
    kw = {"agents": ("a", "b"), "engine": engine, "controllers": {}, "sampling": Sampling(max_new_tokens=50), "seed": 0}
    episodes = list(play(own, [Job(f"train/1/{i}", TASK) for i in range(20)], n=4, **kw))
    for episode in episodes:
        whole = [t.completion.finish == "stop" for t in episode.turns if t.tag == "think"]
        assert sum(t.tag == "solve" for t in episode.turns) == sum(whole)
        assert episode.answer == ("7" if whole[0] else None)
        forks = list(play(own, fork_jobs(own, episode), **kw))
        credit = own.credit(episode, forks, {})
        assert credit.metrics["joint_accuracy"] == [np.mean(whole)]
        assert len([s for s in credit.samples if s.agent == "b/solver"]) in (0, sum(whole))
    assert any(not any(t.tag == "solve" for t in e.turns) for e in episodes)  # also none at all


def test_a_long_thought_keeps_its_head():
    asked = []

    def script(request, seed):
        asked.append(request)
        return "abcdefghij" if request.tag == "think" else "Final answer: 7"

    play_all(method(thought_chars=4), TASKS[:1], script=script, n=1)
    assert asked[1].messages[-1].content.endswith("Plan:\nabcd")


def test_lost_text_is_an_error_not_a_signal():
    """The public code lost solo texts with one engine version, so that the difference was the outcome itself."""
    episode, [fork] = dyad([RIGHT, WRONG], [RIGHT, RIGHT])
    lost = tuple(replace(t, completion=replace(t.completion, text="")) for t in fork.turns)
    with pytest.raises(ValueError, match="tokens but no text"):
        method(thoughts=2).credit(episode, [replace(fork, turns=lost)], {})


def test_leak_rate_and_penalty():
    episode, forks = dyad([RIGHT, RIGHT, WRONG, WRONG], [WRONG], thought="It is 7.")
    credit = method(leak_penalty=0.5).credit(episode, forks, {})
    assert credit.metrics["leak"] == [1, 1, 1, 1]
    assert credit.metrics["reward/thinker"] == [-0.5]
    assert credit.metrics["reward/solver"] == [0.0]


# ---- free riding -----------------------------------------------------------------------------------------------------


def _probe(solver, own, questions=250):
    """Credit of thoughts "x" and "y" under a given solver(question number, thought or None, seed) -> right?"""
    tasks = [Task(str(i), f"Number {i}", "7", "number") for i in range(questions)]

    def script(request, seed):
        if request.tag == "think":
            return "x" if seed % 2 else "y"
        head, _, thought = request.messages[-1].content.partition("\n\nPlan:\n")
        return f"Final answer: {7 if solver(int(head.split()[1]), thought or None, seed) else 8}"

    episodes, forks, _ = play_all(own, tasks, script=script)
    credited = {"x": [], "y": []}
    for episode in episodes:
        streams = own.credit(episode, [f for f in forks if f.fork.parent == episode.id], {}).streams
        for turn, advantage in zip(episode.turns[: own.thoughts], streams["advantage|thinker"], strict=True):
            credited[turn.completion.text].append(advantage)
    return {name: (np.mean(a), np.std(a) / np.sqrt(len(a))) for name, a in credited.items()}


@pytest.mark.parametrize("settings", [{}, {"answers": 3}, {"credit": "published_v1"}, {"credit": "published_event"}])
def test_free_rider_probe_a_solver_that_ignores_the_thought_gives_the_thinker_nothing(settings):
    found = _probe(lambda i, thought, seed: uniform(seed, "solve") < (i % 5) / 4, method(**settings))
    for mean, error in found.values():
        assert abs(mean) < 4 * error + 1e-12


def test_free_rider_probe_is_exactly_0_when_the_solver_is_certain():
    found = _probe(lambda i, thought, seed: i % 2 == 0, method())
    assert [mean for mean, _ in found.values()] == [0, 0]


def test_a_helpful_thought_is_credited_and_a_harmful_one_blamed():
    found = _probe(lambda i, thought, seed: uniform(seed, "s") < {"x": 0.8, "y": 0.3, None: 0.5}[thought], method())
    assert found["x"][0] > 10 * found["x"][1]
    assert found["y"][0] < -5 * found["y"][1]


# ---- alternation, history, cache -------------------------------------------------------------------------------------


def test_alternation_is_exact_from_the_first_block():
    own = method(train="alternate(10)")
    assert [own.learning(step) for step in range(1, 31)] == [("thinker",)] * 10 + [("solver",)] * 10 + [
        ("thinker",)
    ] * 10
    for step in (1, 10, 11, 20, 21):
        episode, forks = dyad([RIGHT, WRONG], [WRONG], step=step)
        roles = {s.agent.split("/")[1] for s in own.credit(episode, forks, {}).samples}
        assert roles == set(own.learning(step))
    assert method().learning(7) == ("thinker", "solver")
    assert method(train_roles=["solver"]).learning(7) == ("solver",)


def test_history_is_from_before_the_batch_and_survives_json_exactly():
    own, history = method(), {}
    for step in (1, 2, 3):
        episode, forks = dyad([RIGHT, RIGHT, WRONG, WRONG], [RIGHT, WRONG], step=step)
        credit = own.credit(episode, forks, history)
        assert credit == own.credit(episode, forks, json.loads(json.dumps(history)))
        history = own.remember(history, credit.streams)
        assert json.loads(json.dumps(history, allow_nan=False)) == history
    assert set(history["run"]) == {"|thinker", "|solver"}
    per_set = method(history_per_set=True)
    episode, forks = dyad([RIGHT, WRONG], [RIGHT])
    assert set(per_set.remember({}, per_set.credit(episode, forks, {}).streams)["run"]) == {
        "mini|thinker",
        "mini|solver",
    }


def _steps(own, questions, count):
    """Steps on the same questions: (engine completions, solo accuracy) of each, with the history carried on."""
    engine, history, found = ScriptedEngine(lambda r, s: f"Final answer: {7 if s % 3 else 8}"), {}, []
    kw = {"agents": ("a", "b"), "engine": engine, "controllers": {}, "sampling": Sampling(max_new_tokens=50), "seed": 0}
    for step in range(1, count + 1):
        before = engine.completions
        episodes = list(play(own, [Job(f"train/{step}/{t.id}", t) for t in questions], n=own.siblings, **kw))
        forks = list(play(own, [j for e in episodes for j in fork_jobs(own, e, history)], n=own.siblings, **kw))
        credits = [own.credit(e, [f for f in forks if f.fork.parent == e.id], history) for e in episodes]
        streams = {}
        for credit in credits:
            for name, values in credit.streams.items():
                streams.setdefault(name, []).extend(values)
        history = json.loads(json.dumps(own.remember(history, streams)))
        found.append((engine.completions - before, [c.metrics["solo_accuracy"] for c in credits]))
    return found


def test_solo_answers_are_not_sampled_again_while_the_solver_is_frozen():
    """4 thoughts + 4 answers + 4 solos: 12 replies a question, 8 where the solos are known."""
    questions = [Task(str(i), f"{i}?", "7", "number") for i in range(3)]
    frozen = _steps(method(train_roles=["thinker"]), questions, 3)
    assert [count for count, _ in frozen] == [36, 24, 24]
    assert frozen[0][1] == frozen[1][1] == frozen[2][1]
    assert [count for count, _ in _steps(method(train_roles=["thinker"], cache_solos=False), questions, 3)] == [36] * 3
    assert [count for count, _ in _steps(method(), questions, 3)] == [36] * 3
    turns = _steps(method(train="alternate(2)"), questions, 6)  # T T S S T T: the solver moves after steps 3 and 4
    assert [count for count, _ in turns] == [36, 24, 24, 36, 36, 24]


def test_trained_solos_are_always_sampled_where_they_are_learned_from():
    own = method(train_solo=True, train="alternate(1)")
    questions = [Task(str(i), f"{i}?", "7", "number") for i in range(3)]
    assert [count for count, _ in _steps(own, questions, 4)] == [36, 36, 36, 36]
    episode, forks = dyad([RIGHT, WRONG], [RIGHT, WRONG, WRONG], step=2)
    taught = own.credit(episode, forks, {}).samples
    assert [s.agent for s in taught] == ["agent1/solver"] * 5
    assert taught[2].advantage > 0 > taught[3].advantage


def test_figures_show_how_far_a_credit_is_from_the_plain_one():
    def correlation(own):
        streams = {}
        rng = np.random.default_rng(0)
        for _ in range(200):
            episode, forks = dyad(*[[outcome(x) for x in rng.choice([-1, 1], size=4)] for _ in range(2)])
            for name, values in own.credit(episode, forks, {}).streams.items():
                streams.setdefault(name, []).extend(values)
        return own.figures(streams)

    assert correlation(method("published_event"))["plain_correlation/thinker"] > 0.995
    assert correlation(method("published_event"))["plain_correlation/solver"] == pytest.approx(1)
    first = correlation(method("published_v1"))["plain_correlation/thinker"]
    assert 0.5 < first < 0.9  # a random solo partner a row: measured about .8 on the published code
    assert method().figures({}) == {}


def test_several_answers_estimate_the_thought_and_are_compared_within_it():
    """m = 2: the thinker's outcome is the mean; each thought's answers are a group of their own (same context)."""
    answers = {"x": [RIGHT, RIGHT], "y": [RIGHT, WRONG]}
    turns = [Turn(0, k, "a/thinker", "think", completion(name)) for k, name in enumerate(answers)]
    for k, row in enumerate(answers.values()):
        turns += [Turn(1 + k, j, "b/solver", "solve", reply(o)) for j, o in enumerate(row)]
    episode = Episode("train/1/q", TASK, tuple(turns), (), None)
    _, forks = dyad([RIGHT], [WRONG, WRONG])
    streams = method(answers=2, thoughts=2).credit(episode, forks, {}).streams
    assert streams["advantage|thinker"] == pytest.approx([1.5, 0])  # J = 1 0, loo = 0 1, b = loo/2 - 1/2
    assert streams["advantage|solver"] == pytest.approx([1, 1, 2, -1])  # loo = 1 1 | -1 1


# ---- settings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"credit": "sepo", "answers": 2}, "defined for answers=1"),
        ({"solos": 0}, "set solos above 0"),
        ({"credit": "published_v1", "solos": 0}, "set solos above 0"),
        ({"train": "alternate(10)", "train_roles": ["solver"]}, "needs both train_roles"),
        ({"train": "alternate(0)"}, "train"),
        ({"credit": "best"}, "credit"),
        ({"thougths": 3}, "did you mean 'thoughts'"),
    ],
)
def test_settings_are_checked(settings, message):
    with pytest.raises(ConfigError, match=message):
        make_method({"name": "think_solve", **settings})


def test_solos_are_only_paid_for_where_they_are_used():
    assert [method(c).solo_count for c in PRESETS] == [4, 4, 4, 4, 0, 0]
    assert method("shared", solos=6).solo_count == 6
    assert method("shared", baseline="solo_mean").solo_count == 4
    counts = [play_all(method(c), TASKS[:1])[2].completions for c in PRESETS]
    assert counts == [12, 12, 12, 12, 8, 16]
