"""Adapters mixed by row equal PEFT's own forward; they save, load and learn apart from each other."""

import pytest
import torch

from counterpoint.errors import ConfigError, ResumeError
from counterpoint.lora import LoraSettings
from counterpoint.models import Model, ModelSettings


def model_of(team):
    return next(iter(team.models.values()))


def logits(model, ids, rows, live=True):
    with torch.no_grad(), model.adapters.routed(torch.tensor(rows), live=live):
        return model.base(input_ids=ids).logits


IDS = torch.arange(12).reshape(2, 6) + 20


def test_mixed_rows_equal_peft_one_adapter_at_a_time(team):
    model = model_of(team)
    mixed = logits(model, IDS, [1, 3])
    for row, index in enumerate([1, 3]):
        model.adapters.peft.base_model.enable_adapter_layers()
        model.adapters.peft.set_adapter(model.adapters.names[index])
        with torch.no_grad():
            own = model.base(input_ids=IDS[row : row + 1]).logits
        model.adapters.peft.base_model.disable_adapter_layers()
        torch.testing.assert_close(mixed[row : row + 1], own, atol=1e-5, rtol=1e-5)


def test_minus_one_is_the_bare_base_model(team):
    model = model_of(team)
    with torch.no_grad():
        base = model.base(input_ids=IDS).logits
    assert torch.equal(logits(model, IDS, [-1, -1]), base)
    assert not torch.allclose(logits(model, IDS, [0, 0]), base, atol=1e-3)


def test_generation_uses_the_weights_of_the_last_refresh(team):
    model = model_of(team)
    before = logits(model, IDS, [0, 0], live=False)
    model.adapters.parameters("agent0/proposer")["0.B"].data.add_(1.0)
    assert torch.equal(logits(model, IDS, [0, 0], live=False), before)
    model.adapters.refresh()
    torch.testing.assert_close(logits(model, IDS, [0, 0], live=False), logits(model, IDS, [0, 0], live=True))


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")
def test_save_and_load_every_role(team, micro, tmp_path):
    """L1: a round trip of every adapter gives equal logits; the files are PEFT's own and load there."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    model = model_of(team)
    model.adapters.save(tmp_path)
    fresh = Model(ModelSettings(name=micro), model.adapters.names, lora=LoraSettings(r=4), seed=9)
    assert not torch.equal(logits(fresh, IDS, [0, 3]), logits(model, IDS, [0, 3]))
    fresh.adapters.load(tmp_path)
    for rows in ([0, 1], [2, 3]):
        assert torch.equal(logits(fresh, IDS, rows), logits(model, IDS, rows))
    for index, name in enumerate(model.adapters.names):
        peft = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(micro), tmp_path / name)
        with torch.no_grad():
            own = peft(input_ids=IDS).logits
        torch.testing.assert_close(own, logits(model, IDS, [index, index]), atol=1e-5, rtol=1e-5)
    with pytest.raises(ResumeError, match="belongs to another team"):
        fresh.adapters.load(tmp_path / "elsewhere")


def test_adapters_start_as_the_base_model_and_from_keyed_seeds(micro):
    def build(seed, names):
        return Model(ModelSettings(name=micro), names, lora=LoraSettings(r=4), seed=seed)

    state = torch.random.get_rng_state()
    one, same, other = build(0, ["a/x", "b/x"]), build(0, ["b/x", "a/x"]), build(1, ["a/x", "b/x"])
    assert torch.equal(torch.random.get_rng_state(), state), "building a model moved the global random state"
    for name in ("a/x", "b/x"):
        mine, theirs = one.adapters.parameters(name), same.adapters.parameters(name)
        assert all(torch.equal(mine[k], theirs[k]) for k in mine)
        assert all(float(mine[k].detach().abs().max()) == 0 for k in mine if k.endswith("B"))
    assert not torch.equal(one.adapters.parameters("a/x")["0.A"], other.adapters.parameters("a/x")["0.A"])
    assert not torch.equal(one.adapters.parameters("a/x")["0.A"], one.adapters.parameters("b/x")["0.A"])


def test_memory_grows_by_the_adapter_alone(micro):
    def size(count):
        names = [f"agent{i}/x" for i in range(count)]
        model = Model(ModelSettings(name=micro), names, lora=LoraSettings(r=4), seed=0)
        one = sum(p.numel() for p in model.adapters.parameters("agent0/x").values())
        return sum(p.numel() for p in model.adapters.peft.parameters()), one

    (two, one), (five, _) = size(2), size(5)
    assert five - two == 3 * one


def test_targets_that_match_nothing(micro):
    with pytest.raises((ConfigError, ValueError), match="nowhere"):
        Model(ModelSettings(name=micro), ["a/x"], lora=LoraSettings(targets=("nowhere",)), seed=0)


def test_the_merged_product_has_the_gradients_of_the_thin_ones():
    from counterpoint.lora import Linears

    draw = torch.Generator().manual_seed(0)

    def leaf(*shape):
        return torch.randn(*shape, generator=draw, dtype=torch.float64, requires_grad=True)

    x, a, b = leaf(6, 5), leaf(2, 5), leaf(4, 2)
    weight = torch.randn(4, 5, generator=draw, dtype=torch.float64)
    alone = Linears([weight], None, [0], [4])
    assert torch.autograd.gradcheck(lambda x, a, b: alone.product(x, 0.7, [a, b]), (x, a, b))
    torch.testing.assert_close(alone.product(x, 0.7, [a, b]), x @ weight.T + 0.7 * (x @ a.T) @ b.T)


def test_a_batch_of_one_adapter_learns_as_it_does_in_company(team):
    """Merged where it is alone, thin products where rows of others are there: the same log-probabilities and gradients."""
    model = model_of(team)
    found = []
    for rows in ([0, 0], [0, -1]):  # the second row of the second batch is the bare model's
        for parameter in model.adapters.parameters("agent0/proposer").values():
            parameter.requires_grad_(True)
            parameter.grad = None
        with model.adapters.routed(torch.tensor(rows), live=True):
            out = model.base(input_ids=IDS).logits[0]
            out.square().mean().backward()
        found.append([out.detach(), *(p.grad for p in model.adapters.parameters("agent0/proposer").values())])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


@pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings")
def test_targets_on_an_embedding(micro):
    with pytest.raises(ConfigError, match="names an embedding; adapters go on linear layers only"):
        Model(
            ModelSettings(name=micro, device="cpu"),
            ["a/x"],
            lora=LoraSettings(targets=("q_proj", "embed_tokens")),
            seed=0,
        )
