"""Token identity of the transformers engine: what it reports is what the model says, whatever shares the batch."""

from itertools import chain

import pytest
import torch
from transformers import AutoModelForCausalLM

from counterpoint.engines.hf import HFEngine
from counterpoint.engines.sampling import log_softmax
from counterpoint.errors import ConfigError
from counterpoint.records import Message, Request, Sampling
from counterpoint.rng import fold
from counterpoint.testing import check_engine


def requests(engine, count=9, n=3):
    names = sorted(engine.models)
    return [
        Request(names[i % len(names)], (Message("system", "Solve."), Message("user", f"{i} + " * (1 + i % 5))), "t", n)
        for i in range(count)
    ]


SAMPLED = Sampling(temperature=0.7, max_new_tokens=20)
GREEDY = Sampling(temperature=0, max_new_tokens=20)


def seeds(count):
    return [fold(2, i) for i in range(count)]  # draws that no rounding of 1e-6 moves


def test_contract(team):
    check_engine(team, sorted(team.models))


@pytest.mark.parametrize("sampling", [SAMPLED, GREEDY], ids=["sampled", "greedy"])
def test_decode_logprobs_equal_teacher_forced_ones(team, sampling):
    model = next(iter(team.models.values()))
    asked = requests(team)
    for request, group in zip(asked, team.generate(asked, seeds=seeds(9), sampling=sampling), strict=True):
        for c in group:
            ids = torch.tensor([c.prompt_ids + c.token_ids])
            row = torch.tensor([model.adapters.names.index(request.agent)])
            with torch.no_grad(), model.adapters.routed(row, live=True):
                logits = model.base(input_ids=ids).logits[0]
            logp = log_softmax(logits, sampling.temperature)[len(c.prompt_ids) - 1 : -1]
            forced = logp.gather(-1, torch.tensor(c.token_ids)[:, None])[:, 0]
            torch.testing.assert_close(torch.tensor(c.logprobs), forced, atol=2e-5, rtol=1e-4)
            if sampling.temperature == 0:
                assert tuple(logits[len(c.prompt_ids) - 1 : -1].argmax(-1).tolist()) == c.token_ids


@pytest.mark.parametrize("max_rows", [3, 4, 7, 64])
def test_rows_joining_and_leaving_change_nothing(team, max_rows):
    """Continuous batching: any number of slots gives the same replies as one request at a time."""
    asked = requests(team)
    narrow = HFEngine(team.models, max_rows=max_rows, prefill_tokens=64)
    for sampling in (SAMPLED, GREEDY):
        together = narrow.generate(asked, seeds=seeds(9), sampling=sampling)
        alone = [team.generate([r], seeds=[s], sampling=sampling)[0] for r, s in zip(asked, seeds(9), strict=True)]
        assert [[c.token_ids for c in g] for g in together] == [[c.token_ids for c in g] for g in alone]
        for one, other in zip(chain(*together), chain(*alone), strict=True):
            assert one.logprobs == pytest.approx(other.logprobs, abs=2e-5)


def test_greedy_equals_the_models_own_generate(team, micro):
    """Without adapters' help: against transformers' generate on a merged copy of each adapter."""
    model = next(iter(team.models.values()))
    for request in requests(team, count=4, n=1):
        plain = AutoModelForCausalLM.from_pretrained(micro)
        weights = dict(plain.named_modules())
        for layer in model.adapters.layers:
            name = next(n for n, m in model.base.named_modules() if m is layer)
            a, b = layer.lora_A[request.agent].weight, layer.lora_B[request.agent].weight
            weights[name].weight.data += (b @ a) * (16 / 4)
        prompt = torch.tensor([model.encode(request.messages)])
        own = plain.generate(prompt, do_sample=False, max_new_tokens=20, attention_mask=torch.ones_like(prompt))
        [[c]] = team.generate([request], seeds=[0], sampling=GREEDY)
        assert tuple(own[0, prompt.shape[1] :].tolist()) == c.token_ids


def test_eos_is_kept_and_counts_as_a_token(team):
    """A model that wants to stop at once returns EOS alone."""
    model = next(iter(team.models.values()))
    with torch.no_grad():
        eos_row = model.base.get_output_embeddings().weight[model.eos[0]].clone()
        found = [c for g in team.generate(requests(team, 40, 4), seeds=seeds(40), sampling=SAMPLED) for c in g]
        stopped = [c for c in found if c.finish == "stop"]
        assert all(c.token_ids[-1] in model.eos for c in stopped)
        assert all(set(c.token_ids[:-1]).isdisjoint(model.eos) for c in found)
        assert all(len(c.token_ids) == 20 for c in found if c.finish == "length")
        assert eos_row.shape == (32,)


def test_prompt_longer_than_the_context(team):
    long = Request("agent0/proposer", (Message("user", "word " * 2000),), "t", 1)
    with pytest.raises(ConfigError, match="do not fit the context of 1024; lower max_new_tokens"):
        team.generate([long], seeds=[0], sampling=SAMPLED)


def test_siblings_differ_and_seeds_matter(team):
    [request] = requests(team, 1, n=8)
    [group] = team.generate([request], seeds=[1], sampling=SAMPLED)
    assert len({c.token_ids for c in group}) > 1
    [other] = team.generate([request], seeds=[2], sampling=SAMPLED)
    assert [c.token_ids for c in group] != [c.token_ids for c in other]


def test_equal_greedy_requests_are_generated_once(team, monkeypatch):
    from counterpoint.engines import hf

    [request] = requests(team, 1, n=4)
    other = requests(team, 2, n=1)[1]
    sizes = []
    run = hf._Batch.run
    monkeypatch.setattr(hf._Batch, "run", lambda self: (sizes.append(len(self.waiting)), run(self))[1])
    replies = team.generate([request, other, request], seeds=[1, 2, 3], sampling=GREEDY)
    assert sizes == [2]
    assert [len(group) for group in replies] == [4, 1, 4]
    assert len({c.token_ids for c in replies[0] + replies[2]}) == 1
    assert replies[1][0].token_ids == team.generate([other], seeds=[9], sampling=GREEDY)[0][0].token_ids
