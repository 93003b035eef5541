"""The learner: exact ratios, packing equal to separate sequences, every split of a batch the same, adapters apart."""

import math
from dataclasses import replace

import pytest
import torch

from counterpoint.engines.sampling import log_softmax
from counterpoint.learner import Learner, LearnerSettings, Meter
from counterpoint.packing import rows_of, targets_of
from counterpoint.records import Message, Request, Sample, Sampling
from counterpoint.rng import fold

SAMPLING = Sampling(temperature=0.8, max_new_tokens=16)


def samples_of(engine, per_agent=4, n=3, agents=None):
    agents = agents or sorted(engine.models)
    asked = [Request(a, (Message("user", f"{i} + 2 " * (i + 1)),), "t", n) for i in range(per_agent) for a in agents]
    replies = engine.generate(asked, seeds=[fold(3, i) for i in range(len(asked))], sampling=SAMPLING)
    return [
        Sample(r.agent, c.prompt_ids, c.token_ids, c.logprobs, math.cos(7.0 * i + j))
        for i, (r, group) in enumerate(zip(asked, replies, strict=True))
        for j, c in enumerate(group)
    ]


def learner_of(engine, **settings):
    return Learner(engine.models, settings=LearnerSettings(**settings), sampling=SAMPLING, seed=0)


def gradients(learner, samples):
    for parameters in learner.parameters.values():
        for p in parameters.values():
            p.requires_grad_(True)
            p.grad = None
    learner.accumulate(rows_of(samples), Meter())
    return {a: {k: p.grad.clone() for k, p in ps.items()} for a, ps in learner.parameters.items()}


def weights(learner):
    return {a: {k: p.detach().clone() for k, p in ps.items()} for a, ps in learner.parameters.items()}


def test_on_policy_ratio_is_one(team):
    """K1, A9: before the first step every importance ratio is 1 to 1e-5, EOS included; afterwards it is not."""
    learner = learner_of(team, minibatches=4, lr=1e-2)
    metrics = learner.step(samples_of(team))
    gaps = [v for k, v in metrics.items() if k.startswith("on_policy_logp_gap/")]
    assert gaps
    assert max(gaps) < 1e-5
    assert all(abs(v - 1) > 1e-3 for k, v in metrics.items() if k.startswith("ratio_mean/"))


def test_packed_siblings_equal_separate_sequences(team):
    """Log-probabilities and gradients of [prompt | reply | reply ...] rows equal one sequence at a time."""
    model = next(iter(team.models.values()))
    learner = learner_of(team, token_budget=100_000)
    for _, rows in learner._micro(rows_of(samples_of(team))):
        with torch.no_grad():
            packed = learner.logp(model, rows, targets_of(rows, model.device))
        for row, sample in zip(packed, [s for r in rows for s in r.samples], strict=True):
            ids = torch.tensor([sample.prompt_ids + sample.token_ids])
            index = torch.tensor([model.adapters.names.index(sample.agent)])
            with torch.no_grad(), model.adapters.routed(index, live=True):
                logits = model.base(input_ids=ids).logits[0, len(sample.prompt_ids) - 1 : -1]
            alone = log_softmax(logits, SAMPLING.temperature).gather(-1, torch.tensor(sample.token_ids)[:, None])[:, 0]
            torch.testing.assert_close(row[: len(alone)], alone, atol=1e-5, rtol=1e-5)
            assert (row[len(alone) :] == 0).all()


def test_every_split_of_a_batch_gives_the_same_gradient(team):
    """G7: 1 x 48, 8 x 6 and one row at a time agree to 1e-6."""
    samples = samples_of(team)
    whole = gradients(learner_of(team, token_budget=1 << 20), samples)
    for budget in (64, 200, 500):
        split = gradients(learner_of(team, token_budget=budget), samples)
        for agent in whole:
            for key in whole[agent]:
                torch.testing.assert_close(split[agent][key], whole[agent][key], atol=1e-6, rtol=1e-5)


def test_vocabulary_chunks_change_nothing(team, monkeypatch):
    samples = samples_of(team, per_agent=2)
    whole = gradients(learner_of(team), samples)
    model = next(iter(team.models.values()))
    monkeypatch.setattr(type(model), "vocab_size", property(lambda _: (1 << 24) // 7))  # chunks of 7 positions
    chunked = gradients(learner_of(team), samples)
    for agent in whole:
        for key in whole[agent]:
            torch.testing.assert_close(chunked[agent][key], whole[agent][key], atol=1e-6, rtol=1e-5)


def test_a_step_touches_its_own_adapter_only(team):
    """L5, L6: train one role, then another: everything else stays bit-identical, the base too."""
    learner = learner_of(team, lr=1e-2)
    base = {k: v.clone() for k, v in next(iter(team.models.values())).base.state_dict().items() if "lora" not in k}
    for trained in ("agent0/reviewer", "agent1/proposer", "agent0/reviewer"):
        before = weights(learner)
        learner.step(samples_of(team, agents=[trained]))
        after = weights(learner)
        for agent in before:
            same = [torch.equal(before[agent][k], after[agent][k]) for k in before[agent]]
            assert (not any(same)) if agent == trained else all(same)
    now = next(iter(team.models.values())).base.state_dict()
    assert all(torch.equal(now[k], v) for k, v in base.items())


def test_learning_raises_what_is_rewarded(team):
    """L2, the canary: a reward for short replies makes them shorter in a few steps, through publish."""
    learner = learner_of(team, lr=3e-2, minibatches=2)
    agent = "agent0/proposer"

    def play(step):
        asked = [Request(agent, (Message("user", f"{i} + 2"),), "t", 8) for i in range(8)]
        replies = team.generate(asked, seeds=[fold(step, i) for i in range(8)], sampling=SAMPLING)
        return [(c, len(c.token_ids)) for g in replies for c in g]

    def mean_length(played):
        return sum(length for _, length in played) / len(played)

    first = mean_length(play(0))
    for step in range(12):
        played = play(step)
        mean = mean_length(played)
        learner.step([Sample(agent, c.prompt_ids, c.token_ids, c.logprobs, mean - n) for c, n in played])
        team.publish()
    assert mean_length(play(99)) < first - 1


def test_nothing_to_learn_is_no_step(team):
    learner = learner_of(team)
    before = weights(learner)
    assert learner.step([])["samples"] == 0
    assert all(torch.equal(before[a][k], v) for a, ps in weights(learner).items() for k, v in ps.items())


def test_a_non_finite_loss_is_refused_and_counted(team):
    learner = learner_of(team, minibatches=1)
    before = weights(learner)
    bad = [Sample(s.agent, s.prompt_ids, s.token_ids, s.old_logp, math.nan) for s in samples_of(team, per_agent=1)]
    metrics = learner.step(bad)
    assert metrics["nonfinite_updates/proposer"] == 1
    assert all(torch.equal(before[a][k], v) for a, ps in weights(learner).items() for k, v in ps.items())


def test_kl_is_zero_at_the_start_and_needs_no_copy(micro):
    """L8: a fresh adapter is the base model, and the reference is the adapter switched off."""
    from counterpoint.engines.hf import HFEngine
    from counterpoint.lora import LoraSettings
    from counterpoint.models import Model, ModelSettings

    model = Model(ModelSettings(name=micro), ["agent0/proposer"], lora=LoraSettings(r=4), seed=0)
    engine = HFEngine({"agent0/proposer": model})
    learner = learner_of(engine, kl=0.1, lr=1e-2, minibatches=1)
    samples = samples_of(engine)
    assert learner.step(samples)["kl/proposer"] == pytest.approx(0, abs=1e-9)
    assert learner.step(samples)["kl/proposer"] > 1e-7


@pytest.mark.parametrize("algorithm", ["gspo", "grpo", "dr_grpo", "reinforce_pp"])
def test_every_loss_runs(team, algorithm):
    metrics = learner_of(team, algorithm=algorithm, minibatches=2).step(samples_of(team, per_agent=2))
    assert all(math.isfinite(v) for v in metrics.values())


def test_save_and_load_continue_bit_equal(team, tmp_path):
    learner = learner_of(team, lr=1e-2)
    one, two = samples_of(team), samples_of(team, per_agent=2)
    learner.step(one)
    learner.save(tmp_path)
    learner.step(two)
    expected = weights(learner)
    again = learner_of(team, lr=1e-2)
    again.load(tmp_path)
    again.step(two)
    assert again.steps == learner.steps
    for agent, parameters in weights(again).items():
        assert all(torch.equal(expected[agent][k], v) for k, v in parameters.items())


def my_loss(logp, old_logp, mask, advantage, *, denominator):
    """A loss of a user's own: plain REINFORCE."""
    return -(torch.where(mask, logp, 0.0).sum(-1) * advantage).sum() / denominator, {}


def test_a_loss_of_ones_own(team):
    learner = learner_of(team, loss="tests.test_learner:my_loss", lr=1e-2)
    before = weights(learner)
    learner.step(samples_of(team, per_agent=1))
    assert not torch.equal(before["agent0/proposer"]["0.B"], weights(learner)["agent0/proposer"]["0.B"])


def test_activation_checkpointing_gives_the_same_gradient(team):
    samples = samples_of(team, per_agent=1)
    plain = gradients(learner_of(team), samples)
    again = gradients(learner_of(team, activation_checkpointing=True), samples)
    for agent in plain:
        for key in plain[agent]:
            torch.testing.assert_close(again[agent][key], plain[agent][key], atol=1e-6, rtol=1e-5)


def test_where_the_engines_logprobs_are_not_exact_the_learner_computes_them_again(team):
    """A step on samples whose old log-probabilities are off by 0.3 equals one on exact ones; the distance is a metric."""
    samples = samples_of(team)
    off = [replace(s, old_logp=tuple(p - 0.3 for p in s.old_logp)) for s in samples]
    start = weights(learner_of(team))
    exact = learner_of(team, minibatches=2)
    exact.step(samples)
    wanted = weights(exact)
    for agent, parameters in exact.parameters.items():
        for key, parameter in parameters.items():
            parameter.data.copy_(start[agent][key])
    learner = learner_of(team, minibatches=2)
    learner.exact_logprobs = False
    metrics = learner.step(off)
    for agent, found in weights(learner).items():
        for key in found:
            torch.testing.assert_close(found[key], wanted[agent][key], atol=2e-5, rtol=1e-4)
    for role in ("proposer", "reviewer"):
        assert metrics[f"engine_logp_gap/{role}"] == pytest.approx(0.3, abs=1e-4)
        assert metrics[f"engine_logp_gap_max/{role}"] == pytest.approx(0.3, abs=1e-4)
        assert metrics[f"on_policy_logp_gap/{role}"] < 1e-5


def test_rescoring_keeps_order_and_everything_else(team):
    samples = samples_of(team)
    learner = learner_of(team)
    again = learner.rescored([*samples, samples[0]], Meter())
    assert [replace(s, old_logp=()) for s in again] == [replace(s, old_logp=()) for s in [*samples, samples[0]]]
    for one, other in zip(again, samples, strict=False):
        assert one.old_logp == pytest.approx(other.old_logp, abs=2e-5)
