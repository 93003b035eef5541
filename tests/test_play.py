"""The lockstep driver: width changes nothing, replays generate nothing, forks change one thing, bugs keep their place."""

from typing import ClassVar, Literal

import pytest

from counterpoint.controllers.fixed import FixedController, FixedSettings
from counterpoint.dialogue import Method
from counterpoint.engines.scripted import ScriptedEngine
from counterpoint.methods import make_method
from counterpoint.play import Job, failure, play
from counterpoint.records import Completion, Fork, Message, Request, Sampling, Task
from counterpoint.testing import LONG, TASKS, guess_script, play_all

MANY = tuple(Task(f"q{i}", f"What is {i} + 4?", str(i + 4), "number") for i in range(20))


@pytest.mark.parametrize("value", ["immediate", "outcome"])
def test_episodes_are_equal_for_widths_1_3_16(value):
    method = make_method({"name": "propose_review", "value": value})
    reference = play_all(method, MANY, width=16)[:2]
    assert reference[0]
    assert reference[1]
    for width in (1, 3):
        assert play_all(method, MANY, width=width)[:2] == reference


def test_a_dialogue_does_not_depend_on_its_neighbours():
    method = make_method({"name": "propose_review"})
    together = {e.id: e for e in play_all(method, MANY)[0]}
    for task in MANY[:3]:
        [alone], _, _ = play_all(method, (task,))
        assert alone == together[alone.id]


def test_seed_and_id_matter():
    method = make_method({"name": "propose_review"})
    assert play_all(method, MANY, seed=0)[0] != play_all(method, MANY, seed=1)[0]


class Chain(Method):
    """Three requests with two decisions between, the answer is what happened."""

    name: Literal["chain"] = "chain"
    roles: ClassVar[tuple[str, ...]] = ("x",)

    def play(self, task, seat):
        said = []
        for i in range(3):
            if i and not seat.decide("c", f"s{i}"):
                said.append("-")
                continue
            who = seat.agents[i % len(seat.agents)]
            if not seat.present(who):
                said.append("gone")
                continue
            [[reply, *_]] = yield [Request(f"{who}/x", (Message("user", f"{i}" + "".join(said)),), f"t{i}", seat.n)]
            said.append(reply.text)
        return " ".join(said)

    def controllers(self, agents):
        return {"c": FixedController(FixedSettings(p_speak=1.0))}


def run(jobs, n=1, agents=("a", "b")):
    engine = ScriptedEngine(lambda request, seed: f"{request.tag}:{seed % 1000}")
    method = Chain(name="chain")
    played = play(
        method,
        jobs,
        agents=agents,
        engine=engine,
        controllers=method.controllers(agents),
        sampling=Sampling(),
        seed=0,
        n=n,
    )
    return sorted(played, key=lambda e: e.id), engine


def test_a_fork_replays_without_generating_and_then_differs_in_one_action():
    [parent], engine = run([Job("p", TASKS[0])], n=2)
    assert engine.completions == 6
    assert [d.action for d in parent.decisions] == [1, 1]
    fork = Fork("p", at=1, action=0)
    [episode], engine = run([Job("p~0", TASKS[0], parent, fork)])
    first, second, _ = parent.answer.split(" ")
    assert episode.answer == f"{first} {second} -"
    assert engine.completions == 0
    assert episode.turns == ()
    assert [(d.state, d.action) for d in episode.decisions] == [("s2", 0)]


def test_a_fork_goes_on_with_new_replies_of_its_own_number():
    [parent], _ = run([Job("p", TASKS[0])], n=2)
    [episode], engine = run([Job("p~0", TASKS[0], parent, Fork("p", at=0, action=0, n=3))])
    assert engine.completions == 3
    assert [(t.group, t.sample, t.tag) for t in episode.turns] == [(1, 0, "t2"), (1, 1, "t2"), (1, 2, "t2")]
    assert episode.answer.split(" ")[:2] == [parent.answer.split(" ")[0], "-"]


def test_a_fork_can_be_cut_off():
    [parent], _ = run([Job("p", TASKS[0])])
    [episode], engine = run([Job("p~0", TASKS[0], parent, Fork("p", at=0, action=1, stop_after=1, n=4))])
    assert engine.completions == 4
    assert episode.answer is None
    assert {t.tag for t in episode.turns} == {"t1"}


def test_a_fork_can_remove_an_agent():
    [parent], _ = run([Job("p", TASKS[0])])
    [episode], engine = run([Job("p~0", TASKS[0], parent, Fork("p", at=0, action=None, remove="b"))])
    assert episode.answer.split(" ")[1] == "gone"
    assert engine.completions == 2


class Faulty(Chain):
    """A method with a bug."""

    name: Literal["faulty"] = "faulty"

    def play(self, task, seat):
        yield [Request("a/x", (Message("user", "?"),), "t")]
        raise KeyError("bug")


def test_a_bug_in_a_method_names_its_dialogue():
    method = Faulty(name="faulty")
    engine = ScriptedEngine(lambda *_: "x")
    played = play(
        method, [Job("train/1/q", TASKS[0])], agents=("a",), engine=engine, controllers={}, sampling=Sampling(), seed=0
    )
    with pytest.raises(KeyError) as caught:
        list(played)
    assert caught.value.__notes__ == ["while playing dialogue train/1/q"]


class Unanswering(ScriptedEngine):
    """Has no reply for one question's reviews; everything else it answers."""

    def generate(self, requests, *, seeds, sampling):
        replies = super().generate(requests, seeds=seeds, sampling=sampling)
        lost = Completion("HTTP 500, attempt 6", (), (), (), "error", 0)
        return [
            [lost] if r.tag.startswith("review") and "2 + 4" in r.messages[-1].content else group
            for r, group in zip(requests, replies, strict=True)
        ]


def test_a_request_without_a_reply_ends_its_own_dialogue_and_no_other():
    method = make_method({"name": "propose_review"})
    agents = ("agent0", "agent1")
    speak = {name: FixedController(FixedSettings(p_speak=1)) for name in method.controllers(agents)}
    jobs = [Job(f"eval/{t.id}", t) for t in MANY[:4]]

    def run(engine):
        played = play(method, jobs, agents=agents, engine=engine, controllers=speak, sampling=LONG, seed=0)
        return {e.id: e for e in played}

    calm, found = run(ScriptedEngine(guess_script)), run(Unanswering(guess_script))
    broken = found.pop("eval/q2")
    assert failure(broken) == "HTTP 500, attempt 6"
    assert broken.answer is None
    assert 1 < len(broken.turns) < len(calm["eval/q2"].turns)
    assert broken.turns[:-1] == calm["eval/q2"].turns[: len(broken.turns) - 1]
    assert found == {k: e for k, e in calm.items() if k != "eval/q2"}
    assert all(failure(e) is None for e in found.values())


def test_no_jobs_no_calls():
    episodes, engine = run([])
    assert (episodes, engine.calls) == ([], 0)
