"""Sizes of models, against the models themselves."""

import json

import pytest

from counterpoint.errors import ConfigError
from counterpoint.lora import LoraSettings
from counterpoint.models import Model, ModelSettings
from counterpoint.shape import shape_of


@pytest.mark.parametrize("targets", ["all-linear", ("q_proj", "down_proj"), r".*\.1\.mlp\.up_proj"])
@pytest.mark.parametrize("which", ["tiny", "micro"])
def test_parameters_of_model_and_adapter_are_exact(which, targets, micro):
    settings = ModelSettings(name=micro if which == "micro" else which, device="cpu")
    lora = LoraSettings(r=4, targets=targets)
    shape = shape_of(settings, lora)
    model = Model(settings, ["a/x", "a/y"], lora=lora, seed=0)
    weights = {name: p for name, p in model.base.named_parameters() if "lora_" not in name}
    assert shape.parameters == sum(p.numel() for p in weights.values())
    assert shape.adapter == sum(p.numel() for p in model.adapters.parameters("a/x").values())
    assert shape.head == model.vocab_size * shape.hidden
    assert shape.body == shape.parameters - shape.head  # tied: the input embedding is the output layer
    assert shape.source == "config.json"


def test_widths_by_hand(micro):
    """Two layers of 32, four heads of 8, two of them with keys and values of their own."""
    shape = shape_of(ModelSettings(name=micro), LoraSettings())
    assert (shape.layers, shape.hidden, shape.inner) == (2, 32, 64)
    assert shape.attention == 2 * 4 * 8
    assert shape.cache == 2 * 2 * 2 * 8


def test_an_untied_output_layer_is_counted_once(tmp_path):
    sizes = {
        "hidden_size": 8,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "vocab_size": 10,
    }
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", "tie_word_embeddings": False, **sizes}))
    shape = shape_of(ModelSettings(name=str(tmp_path)), LoraSettings())
    assert shape.head == 80
    assert shape.body == shape.parameters - 160  # and the input embedding is looked up, not multiplied with
    assert shape.body == 4 * 8 * 8 + 3 * 8 * 16 + 3 * 8


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("nobody/none2.5-7B-Instruct", 7e9),
        ("nobody/none3-4b", 4e9),
        ("nobody/none-1.5B", 1.5e9),
        ("none2-135M-Instruct.Q4_1.gguf", 135e6),
    ],
)
def test_a_size_from_the_name(name, size):
    shape = shape_of(ModelSettings(name=name), LoraSettings())
    assert (shape.parameters, shape.body, shape.source) == (size, size, "size taken from the name")
    assert not shape.known


def test_a_name_without_a_size():
    for name in ("nobody/none", "nobody/none2.5", "nobody/none-8x7B", "nobody/7Bears"):
        with pytest.raises(ConfigError, match="pass --parameters"):
            shape_of(ModelSettings(name=name), LoraSettings())
    shape = shape_of(ModelSettings(name="nobody/none"), LoraSettings(), parameters=3_000_000)
    assert (shape.parameters, shape.source) == (3_000_000, "as given")


def test_a_config_that_nobody_knows(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "no-such-kind"}))
    with pytest.raises(ConfigError, match="cannot read the config of model"):
        shape_of(ModelSettings(name=str(tmp_path)), LoraSettings())
