"""TRACER: rotation, states, values, rewards and advantages by hand; each trap of the public code as a test."""

import math
from collections import Counter

import pytest

from counterpoint.controllers import make
from counterpoint.engines.scripted import ScriptedEngine
from counterpoint.errors import ConfigError
from counterpoint.methods import make_method
from counterpoint.methods.propose_review import propose_reward, review_reward
from counterpoint.play import Job, fork_jobs, play
from counterpoint.records import Sampling, Task
from counterpoint.testing import TASKS, check_method, play_all

TASK = Task("q", "What is 3 + 4?", "7", "number")
ALWAYS = {"name": "fixed", "p_speak": 1.0}
NEVER = {"name": "fixed", "p_speak": 0.0}


def method(**settings):
    return make_method({"name": "propose_review", **settings})


def scripted(answers, verdicts, settings, agents=("agent0", "agent1"), n=None, sampling=None):
    """Play TASK with replies in a fixed order of asking: proposals from `answers`, reviews from `verdicts`."""
    left = {"p": list(answers), "r": list(verdicts)}

    def script(request, seed):
        kind = "r" if request.agent.endswith("reviewer") else "p"
        value = left[kind].pop(0)
        return f"Final answer: {value}" if kind == "p" else f"Verdict: {value}"

    own, engine = method(**settings), ScriptedEngine(script)
    kw = {"agents": agents, "engine": engine, "controllers": own.controllers(agents), "seed": 0}
    kw |= {"sampling": sampling or Sampling(max_new_tokens=200), "n": own.siblings if n is None else n}
    [episode] = play(own, [Job("train/1/q", TASK)], **kw)
    forks = list(play(own, fork_jobs(own, episode), **kw))
    return own, episode, forks


@pytest.mark.parametrize("settings", [{}, {"value": "outcome", "token_cost": 0.01}, {"fidelity": "published"}])
@pytest.mark.parametrize("agents", [("agent0",), ("agent0", "agent1"), ("x", "y", "z")])
def test_contract(settings, agents):
    check_method(method(**settings), agents=agents)


def test_a1_every_role_of_every_agent_is_reached_and_nobody_reviews_himself():
    tasks = [Task(f"q{i}", f"What is {i} + 4?", str(i + 4), "number") for i in range(60)]
    for agents in (("a", "b"), ("a", "b", "c")):
        spoken = method(propose_controller=ALWAYS, review_controller=ALWAYS)
        episodes, _, _ = play_all(spoken, tasks, agents=agents)
        reached = Counter(t.agent for e in episodes for t in e.turns)
        assert set(reached) == {f"{a}/{role}" for a in agents for role in ("proposer", "reviewer")}
        for episode in episodes:
            author = ""
            for turn in (t for t in episode.turns if t.sample == 0):
                name, role = turn.agent.split("/")
                if role == "proposer":
                    author = name
                else:
                    assert name != author


def test_a_single_agent_reviews_itself():
    episodes, _, _ = play_all(method(review_controller=ALWAYS), agents=("solo",))
    assert any(t.agent == "solo/reviewer" for e in episodes for t in e.turns)


def test_values_and_advantages_by_hand():
    """One proposal (right, wrong, wrong, wrong), one review (WRONG, RIGHT, RIGHT, RIGHT) of the right candidate 0.

    proposer rewards 1 -1 -1 -1: mean -.5, std .866 -> advantages 1.7321, -.5774 x3
    reviewer rewards -1 1 1 1: mean .5 -> -1.7321, .5774 x3
    review decision: skip +1 (pending right), speak = mean = .5
    """
    settings = {"rounds": 2, "review_controller": ALWAYS}
    own, episode, forks = scripted([7, 8, 8, 8], ["WRONG", "RIGHT", "RIGHT", "RIGHT"], settings)
    assert forks == []
    assert episode.answer == "7"
    credit = own.credit(episode, forks, {})
    root = math.sqrt(0.75)
    assert [s.advantage for s in credit.samples] == pytest.approx(
        [1.5 / root, -0.5 / root, -0.5 / root, -0.5 / root, -1.5 / root, 0.5 / root, 0.5 / root, 0.5 / root]
    )
    assert [v.values for v in credit.values] == [(1.0, 0.5)]
    assert credit.values[0].state == "votes=+0 round=early" or credit.values[0].state == "votes=+0 round=last"


def test_a2_both_actions_are_valued_when_the_agent_skips():
    """The fork speaks where the dialogue did not: skip -1 (pending wrong), speak = mean(1, 1, -1, 1) = .5; and is counted."""
    settings = {"rounds": 3, "propose_controller": NEVER, "review_controller": NEVER}
    own, episode, forks = scripted([8, 8, 8, 8, 7, 7, 8, 7], ["WRONG", "RIGHT", "WRONG", "WRONG"], settings)
    assert [d.action for d in episode.decisions] == [0, 0]
    assert [len(f.turns) for f in forks] == [4, 4]
    values = {v.controller.split("/")[1]: v.values for v in own.credit(episode, forks, {}).values}
    assert values == {"review": (-1.0, 0.5), "propose": (-1.0, 0.5)}


def test_a2_refresh_is_found_though_keep_is_played():
    """P(old right) .5, P(new right) .6: from pure keep, the controller leaves it."""
    controller = make("regret")
    from counterpoint.records import ActionValues

    controller.update([ActionValues("c", "s", (0.1, 0.0))] * 3)
    assert controller.probs("s")[1] == 0
    for _ in range(20):
        controller.update([ActionValues("c", "s", (0.0, 0.2))])
    assert controller.probs("s")[1] == 1


def test_unread_verdicts_change_no_vote_and_score_zero():
    assert review_reward(None, True) == review_reward(None, False) == 0
    assert [review_reward(v, p) for v, p in [("right", True), ("right", False), ("wrong", True), ("wrong", False)]] == [
        1, -1, -1, 1,
    ]  # fmt: skip
    assert [propose_reward(o) for o in ("right", "wrong", "unreadable", "error")] == [1, -1, -1, -1]
    settings = {"rounds": 3, "propose_controller": ALWAYS, "review_controller": ALWAYS}
    _, episode, _ = scripted([7, 7], ["maybe"], settings, n=1)
    assert episode.decisions[-1].state == "votes=+0 round=last"


@pytest.mark.parametrize(
    ("settings", "states"),
    [
        ({}, ["votes=+0 round=early", "votes=-1 round=early", "votes=+0 round=early", "votes=+1 round=last"]),
        ({"round_state": "exact"}, ["votes=+0 round=2", "votes=-1 round=3", "votes=+0 round=4", "votes=+1 round=5"]),
        (
            {"round_state": "none"},
            ["votes=+0 round=any", "votes=-1 round=any", "votes=+0 round=any", "votes=+1 round=any"],
        ),
        ({"vote_state": False}, ["votes=any round=early"] * 3 + ["votes=any round=last"]),
    ],
)
def test_states(settings, states):
    both = {"propose_controller": ALWAYS, "review_controller": ALWAYS}
    _, episode, _ = scripted([7, 8, 7], ["WRONG", "RIGHT"], {**settings, **both}, n=1)
    assert [d.state for d in episode.decisions] == states


def test_an_unreadable_pending_answer_is_a_state_of_its_own():
    _, episode, _ = scripted(["none", 7], ["WRONG"], {"rounds": 3, "propose_controller": ALWAYS}, n=1)
    assert episode.decisions[0].state.startswith("votes=invalid")


def test_outcome_values_fork_the_dialogue():
    """Keep a wrong pending answer: -1. Fork: refresh to a right one: +1, less .01 for each of its 16 tokens."""
    settings = {"rounds": 3, "reviewing": False, "value": "outcome", "token_cost": 0.01, "propose_controller": NEVER}
    own, episode, forks = scripted([8, 8, 8, 8, 7], [], settings)
    [fork] = forks
    assert fork.answer == "7"
    [value] = own.credit(episode, forks, {}).values
    cost = 0.01 * len("Final answer: 7 ")  # bytes and EOS
    assert value.values == pytest.approx((-1.0, 1.0 - cost))


def test_token_cost_lowers_the_immediate_value_of_speaking():
    settings = {"rounds": 2, "review_controller": ALWAYS, "token_cost": 0.01}
    own, episode, _ = scripted([7] * 4, ["RIGHT"] * 4, settings)
    assert own.credit(episode, [], {}).values[0].values == pytest.approx((1.0, 1 - 0.01 * len("Verdict: RIGHT ")))


def test_truncated_is_never_better_than_wrong():
    """The reply reads as right but hit the length limit: unreadable, reward -1, and the answer does not count."""
    own, episode, _ = scripted([7] * 4, [], {"rounds": 1}, sampling=Sampling(max_new_tokens=15))
    assert {t.completion.finish for t in episode.turns} == {"length"}
    assert episode.answer is None
    credit = own.credit(episode, [], {})
    assert credit.metrics["reward/proposer"] == [-1]
    assert credit.metrics["truncated/proposer"] == [1]
    assert credit.samples == []
    assert credit.metrics["zero_signal/proposer"] == [1]


def test_published_plays_a_fresh_sample_and_values_that_one():
    settings = {"rounds": 2, "fidelity": "published", "review_controller": ALWAYS}
    own, episode, _ = scripted([7, 7, 7, 8, 8], ["RIGHT", "RIGHT", "RIGHT", "WRONG", "WRONG"], settings)
    assert episode.answer == "8"
    assert len(episode.turns) == 10
    credit = own.credit(episode, [], {})
    assert len(credit.samples) == 8  # the fresh ones are not trained on
    assert credit.values[0].values == (-1.0, 1.0)  # pending wrong; the played verdict says so
    assert own.hooks.review.endswith("review_verdict_first")
    assert own.propose_controller.model_extra == {"update": "turn"}


def test_training_one_role_only():
    own = method(train_roles=["reviewer"], review_controller=ALWAYS)
    episodes, _, _ = play_all(own)
    samples = [s for e in episodes for s in own.credit(e, _forks_of(own, e), {}).samples]
    assert {s.agent.split("/")[1] for s in samples} == {"reviewer"}


def _forks_of(own, episode):
    return [f for f in play_all(own)[1] if f.fork.parent == episode.id]


def test_what_would_have_been_said_can_be_learned_from():
    """Both agents keep silent; their counterfactual candidates are samples all the same, and no reply's reward changes."""
    settings = {"rounds": 3, "propose_controller": NEVER, "review_controller": NEVER}
    said = [8, 8, 8, 7, 7, 7, 8, 7], ["WRONG", "RIGHT", "WRONG", "WRONG"]
    own, episode, forks = scripted(*said, settings)
    plain = own.credit(episode, forks, {})
    more = method(**settings, train_skipped=True).credit(episode, forks, {})
    assert len(plain.samples) == 4
    assert len(more.samples) == 12
    assert more.samples[:4] == plain.samples
    assert more.rewards == plain.rewards == {(0, 0): -1, (0, 1): -1, (0, 2): -1, (0, 3): 1}
    assert more.values == plain.values


def test_no_reviewer():
    episodes, _, _ = play_all(method(reviewing=False))
    assert {t.agent.split("/")[1] for e in episodes for t in e.turns} == {"proposer"}


def test_evaluation_makes_one_call_a_turn_and_no_hidden_ones():
    """A4: 5 rounds, keep always, review always = 3 calls."""
    episodes, forks, engine = play_all(method(propose_controller=NEVER, review_controller=ALWAYS), n=1)
    assert engine.completions - sum(len(f.turns) for f in forks) == 3 * len(TASKS)
    assert all(len(e.turns) == 3 for e in episodes)


def my_review_prompt(task, pending, history):
    from counterpoint.records import Message

    return (Message("user", f"Verdict please: {pending} {len(history)}"),)


def test_pieces_are_replaceable_for_all_and_for_one_agent():
    own = method(
        review_controller=ALWAYS,
        agent_hooks={"agent1": {"review": "tests.methods.test_propose_review:my_review_prompt"}},
    )
    episodes, _, _ = play_all(own)
    prompts = {t.agent: t.completion.prompt_ids for e in episodes for t in e.turns if t.agent.endswith("reviewer")}
    decoded = {a: bytes(i - 3 for i in ids).decode() for a, ids in prompts.items()}
    assert decoded["agent1/reviewer"].startswith("Verdict please")
    assert decoded["agent0/reviewer"].startswith("Check the solution")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rouns": 3}, r"method.unknown setting 'rouns'; did you mean 'rounds'"),
        ({"rounds": 0}, "rounds"),
        ({"propose_controller": {"name": "regrett"}}, "unknown controller 'regrett'"),
        ({"propose_controller": {"name": "fixed", "p_speak": 2}}, "p_speak"),
        ({"hooks": {"solve": "nowhere:f"}}, "no module named 'nowhere'"),
        ({"hooks": {"solve": "counterpoint.prompts:nothing"}}, "no function 'nothing'"),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(ConfigError, match=message):
        method(**settings)


def test_prompts_snapshot():
    """K6: the first proposer is told of no earlier turns; later ones see at most `history` of them."""
    own = method(rounds=5, propose_controller=ALWAYS, review_controller=ALWAYS, history=2)
    episodes, _, _ = play_all(own, (TASK,), n=1)
    prompts = [bytes(i - 3 for i in t.completion.prompt_ids).decode() for t in episodes[0].turns]
    assert prompts[0] == "Solve the problem step by step. End with the line: Final answer: <number>What is 3 + 4?"
    assert "Earlier" not in prompts[1]
    assert prompts[1].startswith("Check the solution")
    assert "\n\nSolution:\nSo\nFinal answer: " in prompts[1]
    assert [p.count("Earlier, ") for p in prompts] == [0, 0, 1, 2, 2]
    assert "Current solution (votes " in prompts[2]
