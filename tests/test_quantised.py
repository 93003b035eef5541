"""Frozen weights in 4 bits: the team plays and learns on them; what is missing is one line."""

import pytest
import torch

from counterpoint import models
from counterpoint.engines.hf import HFEngine, PlainForward
from counterpoint.errors import ConfigError
from counterpoint.lora import LoraSettings
from counterpoint.models import Model, ModelSettings
from tests.test_learner import learner_of, samples_of, weights

NAMES = ("agent0/proposer", "agent0/reviewer")


def quantised(name):
    return Model(ModelSettings(name=name, device="cpu", quantisation="nf4"), NAMES, lora=LoraSettings(r=4), seed=0)


@pytest.mark.filterwarnings("ignore")  # bitsandbytes and what it imports warn of their own
def test_a_team_on_four_bits_plays_and_learns(micro):
    pytest.importorskip("bitsandbytes")
    model = quantised(micro)
    plain = Model(ModelSettings(name=micro, device="cpu"), NAMES, lora=LoraSettings(r=4), seed=0)
    layer = model.adapters.layers[0].base_layer
    assert layer.weight.dtype == torch.uint8
    assert layer.weight.numel() * 2 == plain.adapters.layers[0].base_layer.weight.numel()
    assert model.sha256 != plain.sha256, "a checkpoint of the one is refused on the other"
    engine = HFEngine(dict.fromkeys(NAMES, model))
    assert isinstance(engine.forwards[id(model)], PlainForward)
    learner = learner_of(engine, lr=1e-2, minibatches=2)
    before, base = weights(learner), layer.weight.clone()
    metrics = learner.step(samples_of(engine))
    after = weights(learner)
    assert all(not torch.equal(before[a]["0.B"], after[a]["0.B"]) for a in NAMES)
    assert torch.equal(layer.weight, base)
    assert max(v for k, v in metrics.items() if k.startswith("on_policy_logp_gap/")) < 1e-4


def test_without_the_package_it_is_one_line(micro, monkeypatch):
    monkeypatch.setattr(models, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"quantisation=nf4 needs bitsandbytes, which is not installed; pip install"):
        quantised(micro)


def test_not_for_gguf(tmp_path):
    with pytest.raises(ConfigError, match=r"quantisation=nf4 is not for .gguf files"):
        quantised(str(tmp_path / "x.gguf"))
