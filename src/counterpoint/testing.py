"""Contract checks for your own methods, engines and controllers: each raises AssertionError that says what is broken."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import numpy as np

from counterpoint.controllers import Controller
from counterpoint.dialogue import Method
from counterpoint.engines.base import Engine
from counterpoint.engines.scripted import Script, ScriptedEngine
from counterpoint.play import Job, fork_jobs, play
from counterpoint.records import ActionValues, Episode, Message, Request, Sampling, Task
from counterpoint.rng import fold
from counterpoint.store import EPISODE

TASKS = (
    Task("number", "What is 3 + 4?", "7", "number"),
    Task("math", "Simplify 2/4.", "\\frac{1}{2}", "math"),
    Task("choice", "Which is a prime?", "B", "choice", ("4", "7", "9", "15")),
)
LONG = Sampling(max_new_tokens=400)


def guess_script(request: Request, seed: int) -> str:
    """Replies a scripted team gives to TASKS: right about half of the time, in every format."""
    if "Verdict" in request.messages[0].content or "RIGHT" in request.messages[0].content:
        return f"I checked it.\nVerdict: {'RIGHT' if seed % 2 else 'WRONG'}"
    good = seed % 3 != 0
    text = request.messages[-1].content
    if "prime" in text:
        return f"So\nFinal answer: {'B' if good else 'A'}"
    if "Simplify" in text:
        return f"So\nFinal answer: \\boxed{{{'1/2' if good else '3'}}}"
    return f"So\nFinal answer: {7 if good else 8}"


def play_all(
    method: Method,
    tasks: Sequence[Task] = TASKS,
    *,
    script: Script = guess_script,
    agents: Sequence[str] = ("agent0", "agent1"),
    width: int = 16,
    n: int | None = None,
    seed: int = 0,
) -> tuple[list[Episode], list[Episode], ScriptedEngine]:
    """(episodes, forks, engine) of every task on the scripted engine, sorted by id."""
    engine, controllers = ScriptedEngine(script), method.controllers(agents)

    def run(jobs: list[Job]) -> list[Episode]:
        played = play(
            method,
            jobs,
            agents=agents,
            engine=engine,
            controllers=controllers,
            sampling=LONG,
            seed=seed,
            n=method.siblings if n is None else n,
            width=width,
        )
        return sorted(played, key=lambda e: e.id)

    episodes = run([Job(f"train/1/{t.id}", t) for t in tasks])
    forks = run([job for e in episodes for job in fork_jobs(method, e)])
    return episodes, forks, engine


def check_method(method: Method, *, agents: Sequence[str] = ("agent0", "agent1")) -> None:
    """Play does not depend on the width of the batch; credit is pure, and equal on records read back from JSON."""
    episodes, forks, engine = play_all(method, agents=agents)
    for width in (1, 3):
        assert play_all(method, agents=agents, width=width)[:2] == (episodes, forks), (
            "episodes depend on the batch width"
        )
    recorded = [t.completion for e in [*episodes, *forks] for t in e.turns]
    assert len(recorded) == engine.completions, "a generated reply is missing from the records"
    assert sum(len(c.token_ids) for c in recorded) == engine.tokens
    for episode in episodes:
        own = [f for f in forks if f.fork is not None and f.fork.parent == episode.id]
        credit = method.credit(episode, own, {})
        assert credit == method.credit(episode, own, {}), "credit is not a pure function of its records"
        again = EPISODE.validate_json(EPISODE.dump_json(episode))
        assert again == episode, "an episode does not survive JSON"
        assert method.credit(again, [EPISODE.validate_json(EPISODE.dump_json(f)) for f in own], {}) == credit
        known = method.controllers(agents)
        assert all(v.controller in known for v in credit.values), "credit values a controller that does not exist"
        adapters = {f"{agent}/{role}" for agent in agents for role in method.roles}
        assert {t.agent for t in episode.turns} <= adapters, "play asks for an agent/role that has no adapter"
        assert all(np.isfinite(s.advantage) and s.agent in adapters for s in credit.samples)


def check_engine(engine: Engine, agents: Sequence[str], *, exact: bool = True) -> None:
    """Order, counts, seeds, versions and limits; `exact` also asks that a request does not depend on its neighbours."""
    sampling = Sampling(max_new_tokens=12)
    requests = [
        Request(agent, (Message("system", "Solve."), Message("user", "3 + 4 =" + " 1" * i)), "t", 1 + i % 3)
        for i, agent in enumerate([*agents, *agents])
    ]
    seeds = [fold(7, i) for i in range(len(requests))]
    replies = engine.generate(requests, seeds=seeds, sampling=sampling)
    assert [len(r) for r in replies] == [r.n for r in requests], "one completion a sibling, in the order of requests"
    for completion in (c for group in replies for c in group):
        assert 1 <= len(completion.token_ids) <= sampling.max_new_tokens
        assert len(completion.logprobs) == len(completion.token_ids)
        assert all(p <= 1e-6 for p in completion.logprobs), "a log-probability above 0"
        assert (completion.finish == "length") == (len(completion.token_ids) == sampling.max_new_tokens) or (
            completion.finish == "stop"
        )
    assert engine.generate(requests, seeds=seeds, sampling=sampling) == replies, "equal calls give equal replies"
    if exact:
        alone = [engine.generate([r], seeds=[s], sampling=sampling)[0] for r, s in zip(requests, seeds, strict=True)]
        ids = [[c.token_ids for c in group] for group in replies]
        assert [[c.token_ids for c in group] for group in alone] == ids, "a reply depends on its neighbours"
    before = replies[0][0].version
    assert engine.publish() == before + 1
    assert engine.generate(requests[:1], seeds=seeds[:1], sampling=sampling)[0][0].version == before + 1


def check_controller(make: Callable[[], Controller]) -> None:
    """Distributions everywhere; updates independent of order; state survives JSON; the average is frozen."""
    rng = np.random.default_rng(0)
    values = [ActionValues("c", f"s{i % 3}", tuple(rng.uniform(-1, 1, 2))) for i in range(30)]
    one, two = make(), make()
    one.update(values)
    two.update(values[::-1])
    assert one.state_dict() == two.state_dict(), "an update depends on the order of its values"
    three = make()
    three.load_state_dict(json.loads(json.dumps(one.state_dict())))
    one.update(values[:5])
    three.update(values[:5])
    assert one.state_dict() == three.state_dict(), "the state does not survive JSON"
    for controller in (one, one.average()):
        for state in ("s0", "s1", "s2", "unseen"):
            probs = controller.probs(state)
            assert probs.min() >= 0, f"a negative probability in {state}"
            assert abs(probs.sum() - 1) < 1e-12, f"probabilities in {state} do not add up to 1"
