"""Estimates against engines that count for themselves, formulas by hand, and what a person is told."""

import json

import pytest

from counterpoint.compare import load_comparison
from counterpoint.config import load_config, validate
from counterpoint.engines.scripted import ScriptedEngine
from counterpoint.errors import DataError
from counterpoint.estimate import Rate, estimate, from_run, one_line
from counterpoint.play import Job, fork_jobs, play
from counterpoint.settings import packaged_configs
from counterpoint.shape import shape_of
from counterpoint.store import read_episodes
from counterpoint.tasks.registry import load_tasks
from counterpoint.train import train

LENGTH = 12
ALWAYS = {"name": "fixed", "p_speak": 1.0}
NEVER = {"name": "fixed", "p_speak": 0.0}
HALF = {"name": "fixed", "p_speak": 0.5}


def settings(method, *, agents=2, **more):
    common = {"steps": 1, "dialogues": 6, "sampling": {"max_new_tokens": LENGTH}, "evaluation": {"limit": 6}}
    return validate({"agents": agents, "method": method, **common, **more}, where="test")


def review(controller, **more):
    return {"name": "propose_review", "propose_controller": controller, "review_controller": controller, **more}


def counted(config, *, n, script=lambda request, seed: "x" * (LENGTH - 1)):
    """(replies, new tokens) of the config's dialogues and of their forks, as an engine counted them."""
    controllers = config.method.controllers(config.names)

    def run(jobs):
        engine = ScriptedEngine(script)
        played = play(
            config.method, jobs, agents=config.names, engine=engine, controllers=controllers,
            sampling=config.sampling.record(), seed=0, n=n,
        )  # fmt: skip
        return list(played), (engine.completions, engine.tokens)

    tasks = load_tasks("mini-gsm", "train")[: config.dialogues]
    episodes, own = run([Job(f"train/1/{t.id}", t) for t in tasks])
    _, forks = run([job for e in episodes for job in fork_jobs(config.method, e)])
    return own, forks


def phases(config):
    found = {p.name: p for p in estimate(config).phases}
    played, forks = found["training: dialogues"], found.get("training: forks")
    return (played.replies, played.new), (forks.replies, forks.new) if forks else (0, 0)


@pytest.mark.parametrize(
    "method",
    [
        review(ALWAYS),
        review(ALWAYS, rounds=4, candidates=3),
        review(ALWAYS, value="outcome"),
        review(ALWAYS, played="fresh"),
        review(ALWAYS, reviewing=False),
        {"name": "single"},
        {"name": "vote"},
        {"name": "magrpo", "candidates": 3},
        {"name": "maporl", "rounds": 3},
        {"name": "think_solve"},
        {"name": "think_solve", "answers": 2},
        {"name": "think_solve", "credit": "sepo"},
        {"name": "think_solve", "credit": "published_event", "thoughts": 5},
    ],
    ids=lambda m: "-".join(str(v) for v in m.values() if not isinstance(v, dict)),
)
@pytest.mark.parametrize("agents", [1, 3])
def test_exact_where_everybody_speaks(method, agents):
    config = settings(method, agents=agents)
    assert phases(config) == counted(config, n=config.method.siblings)


@pytest.mark.parametrize("controller", [HALF, NEVER], ids=["half", "never"])
@pytest.mark.parametrize("more", [{}, {"value": "outcome"}, {"played": "fresh"}, {"rounds": 4}], ids=str)
def test_an_upper_bound_forks_included_where_somebody_is_silent(controller, more):
    config = settings(review(controller, **more))
    (most, most_tokens), (forked, forked_tokens) = phases(config)
    own, forks = counted(config, n=config.method.siblings, script=lambda request, seed: "x" * (seed % LENGTH))
    assert 0 < own[0] + forks[0] <= most + forked
    assert 0 < own[1] + forks[1] < most_tokens + forked_tokens


@pytest.mark.parametrize(
    ("method", "agents"),
    [({"name": "self_consistency", "samples": 7}, 1), ({"name": "debate", "rounds": 3}, 4)],
    ids=str,
)
def test_evaluation_is_counted_a_phase_and_a_set_at_a_time(method, agents):
    config = settings(method, agents=agents, steps=0)
    (replies, tokens), _ = counted(config, n=1)  # of as many problems as the limit
    found = {p.name: p for p in estimate(config).phases}
    assert list(found) == ["untrained", "eval", "eval-greedy"]
    assert all((p.dialogues, p.replies, p.new) == (18, 3 * replies, 3 * tokens) for p in found.values())


def test_a_real_run_stays_under_its_estimate(micro, tmp_path):
    config = settings(
        {"name": "propose_review", "rounds": 3},
        model={"name": micro, "device": "cpu"},
        dialogues=3,
        tasks={"eval": ["mini-gsm"]},
        evaluation={"limit": 3, "also": "none"},
    )
    summary = train(config, tmp_path / "run")
    found = {p.name: p for p in estimate(config).phases}
    cost = summary["cost"]["train"]
    assert sum(cost["calls"].values()) == found["training: dialogues"].replies
    assert sum(cost["tokens"].values()) <= found["training: dialogues"].new
    episodes = read_episodes(tmp_path / "run" / "train" / "000001.jsonl")
    prompts = {(e.id, t.group): len(t.completion.prompt_ids) for e in episodes for t in e.turns if not e.fork}
    assert 0 < sum(prompts.values()) <= found["training: dialogues"].prompt
    measured = summary["eval"]["mini-gsm"]
    assert measured["calls_per_problem"] * 3 <= found["eval"].replies
    assert measured["prompt_tokens_per_problem"] * 3 <= found["eval"].prompt


def test_flops_and_memory_by_hand(micro):
    """One request of P prompt tokens with 7 samples of T = 12."""
    config = settings(
        {"name": "self_consistency", "samples": 7}, agents=1, steps=0, model={"name": micro, "device": "cpu"},
        tasks={"eval": ["mini-gsm"]}, evaluation={"limit": 1, "untrained": False, "also": "none"},
    )  # fmt: skip
    found = estimate(config)
    [phase] = found.phases
    shape, p, new = shape_of(config.model, config.lora), int(phase.prompt), 7 * LENGTH
    looked = p * p / 2 + 7 * (p * LENGTH + LENGTH**2 / 2)
    assert phase.flops == 2 * shape.body * (p + new) + 2 * shape.head * new + 4 * shape.attention * looked
    [memory] = found.memory
    assert memory.weights == 4 * shape.parameters
    assert memory.adapters == 4 * shape.adapter  # one adapter that does not learn
    rows = min(config.engine.max_rows, config.width * 7)
    assert memory.cache == pytest.approx(4 * shape.cache * rows * (LENGTH + p / 7))
    assert memory.activations == 0


def test_learning_costs_twice_the_products_and_three_times_the_attention(micro):
    common = {"model": {"name": micro, "device": "cpu"}}
    found = {p.name: p for p in estimate(settings({"name": "single"}, agents=1, **common)).phases}
    played, learned = found["training: dialogues"], found["training: learning"]
    shape = shape_of(settings({"name": "single"}, **common).model, settings({"name": "single"}).lora)
    products = 2 * (shape.body * (played.prompt + played.new) + shape.head * played.new)
    assert learned.flops == pytest.approx(2 * products + 3 * (played.flops - products))
    for more in ({"kl": 0.1}, {"activation_checkpointing": True}):
        again = estimate(settings({"name": "single"}, agents=1, learner=more, **common)).phases
        extra = next(p for p in again if p.learns).flops - learned.flops
        assert extra == pytest.approx(played.flops)  # one more pass forward
    [memory] = estimate(settings({"name": "single"}, agents=2, **common)).memory
    assert memory.adapters == 2 * 16 * shape.adapter


def test_each_model_works_on_its_own_requests(micro):
    """A thinker of 1 M and a solver of 3 M parameters: their sum, over who begins."""
    team = [{"name": "a", "model": "nobody/none-1M"}, {"name": "b", "model": "nobody/none-3M"}]
    config = settings({"name": "think_solve"}, agents=team, steps=0, tasks={"eval": ["mini-gsm"]})
    phase = estimate(config).phases[0]
    low, high = (
        estimate(settings({"name": "think_solve"}, steps=0, model=name, tasks={"eval": ["mini-gsm"]})).phases[0]
        for name in ("nobody/none-1M", "nobody/none-3M")
    )
    assert phase.replies == low.replies == high.replies
    assert low.flops < phase.flops < high.flops
    assert [m.model for m in estimate(config).memory] == ["nobody/none-1M", "nobody/none-3M"]


def test_reply_tokens_replace_the_bound():
    config = settings({"name": "single"}, agents=1)
    found = estimate(config, reply_tokens=5)
    assert {p.new / p.replies for p in found.phases} == {5}
    assert any("no upper bound" in note for note in found.notes)


def test_sets_of_unknown_size_are_left_out_and_said():
    config = settings({"name": "single"}, agents=1, tasks={"eval": ["jsonl:mine.jsonl"]}, evaluation={"limit": 0})
    found = estimate(config)
    assert all(p.name.startswith("training") for p in found.phases)
    assert any("jsonl:mine.jsonl" in note and "not counted" in note for note in found.notes)


@pytest.mark.parametrize("name", sorted(packaged_configs()))
def test_every_packaged_config_is_estimated_without_a_network(name):
    text = one_line(estimate(load_config(name)))
    assert text.startswith("dry run: at most ")
    assert "GPU hours at 200 TFLOP/s" in text
    assert "\n" not in text


@pytest.mark.parametrize("name", sorted(packaged_configs("comparisons")))
def test_every_packaged_comparison_is_estimated_without_a_network(name):
    comparison = load_comparison(name)
    assert all(estimate(comparison.config(entry, 0)).flops > 0 for entry in comparison.entries)


def test_the_published_run_as_the_paper_has_it():
    """467 x 16 dialogues of 5 rounds: 4 candidates and a fresh utterance each, 256 tokens long."""
    replies, _, new = estimate(load_config("tracer-qwen2.5-7b")).generated(training=True)
    assert replies == 467 * 16 * 5 * 5
    assert new == replies * 256


def test_rates(tmp_path):
    found = estimate(settings({"name": "single"}, agents=1))
    total = sum(Rate("given", flops=1e9).seconds(found, phase, 4) for phase in found.phases)
    assert total == pytest.approx(found.flops / 4e9)
    lines = [{"step": i, "tokens": 600, "play": 2.0, "forks": 1.0, "learn": 4.0, "store": 0.1} for i in (1, 2)]
    (tmp_path / "timings.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    rate = from_run(tmp_path)
    assert (rate.play, rate.learn) == (200, 150)
    by_name = {p.name: rate.seconds(found, p, 2) for p in found.phases}
    new = 6 * 4 * LENGTH
    assert by_name["training: dialogues"] == new / 400
    assert by_name["training: learning"] == new / 300
    with pytest.raises(DataError, match="no timings of a training step"):
        from_run(tmp_path / "nowhere")
