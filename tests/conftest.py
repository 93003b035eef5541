"""Under pytest, every jaxtyping annotation of the algorithms is checked at run time (shapes, dtypes, axis letters)."""

import sys

import pytest
from jaxtyping import install_import_hook

CHECKED = ["counterpoint.algorithms"]
# `float` accepts int, as in PEP 484. Installed before any test module imports what is checked.
TYPECHECKER = "beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))"

assert not any(name.startswith(f"{package}.") for name in sys.modules for package in CHECKED)
install_import_hook(CHECKED, TYPECHECKER)


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    """Tests run side by side; more threads than cores make every one of them slow."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def micro(tmp_path_factory):
    """A random two-layer Llama with grouped heads and the bundled tokenizer, on disk: loads in a blink, any team runs."""
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    from counterpoint.models import BUNDLED, model_path

    folder = tmp_path_factory.mktemp("micro")
    tokenizer = AutoTokenizer.from_pretrained(model_path(BUNDLED))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=len(tokenizer),
                hidden_size=32,
                intermediate_size=64,
                num_hidden_layers=2,
                num_attention_heads=4,
                num_key_value_heads=2,
                max_position_embeddings=1024,
                tie_word_embeddings=True,
                eos_token_id=tokenizer.eos_token_id,
                bos_token_id=tokenizer.bos_token_id,
                pad_token_id=tokenizer.pad_token_id,
                initializer_range=0.2,
            )
        )
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


FAMILY_NAMES = ("a/x", "b/x", "c/x")
FAMILY_SHAPE = {
    "vocab_size": 512, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 512, "head_dim": 8, "tie_word_embeddings": False,
    "pad_token_id": 0, "bos_token_id": None, "eos_token_id": 1,
}  # fmt: skip


@pytest.fixture(params=["llama", "mistral", "qwen2", "qwen3"])
def family(request, micro, tmp_path):
    """family(targets): a random model of a family with the micro tokenizer, its three adapters away from zero."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    from counterpoint.lora import LoraSettings
    from counterpoint.models import Model, ModelSettings

    window = {"sliding_window": None} if request.param == "mistral" else {}
    config = AutoConfig.for_model(request.param, **FAMILY_SHAPE, **window)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(micro).save_pretrained(tmp_path)

    def make(targets="all-linear"):
        lora = LoraSettings(r=4, targets=targets)
        made = Model(ModelSettings(name=str(tmp_path), device="cpu"), FAMILY_NAMES, lora=lora, seed=0)
        draw = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for module in made.base.modules():  # biases and norms that are not their initial zeros and ones
                for name in ("bias", "weight"):
                    value = getattr(module, name, None)
                    if isinstance(value, torch.Tensor) and value.dim() == 1:
                        value.add_(torch.randn(value.shape, generator=draw) * 0.1)
            for name in FAMILY_NAMES:
                for key, value in made.adapters.parameters(name).items():
                    if key.endswith("B"):
                        value.copy_(torch.randn(value.shape, generator=draw) * 0.2)
        made.adapters.refresh()
        return made

    return make


@pytest.fixture
def interrupted(monkeypatch):
    """interrupted(config, out, step): a training run that is stopped when step `step` is about to be taken."""
    from counterpoint import train

    def run(config, out, step):
        take_step = train.take_step

        def stopping(run):
            if run.step == step:
                raise KeyboardInterrupt
            return take_step(run)

        with monkeypatch.context() as patch:
            patch.setattr(train, "take_step", stopping)
            with pytest.raises(KeyboardInterrupt):
                train.train(config, out)

    return run


@pytest.fixture
def team(micro):
    """Four adapters with weights of their own on the micro model, and an engine over them."""
    import torch

    from counterpoint.engines.hf import HFEngine
    from counterpoint.lora import LoraSettings
    from counterpoint.models import Model, ModelSettings

    names = [f"agent{i}/{role}" for i in (0, 1) for role in ("proposer", "reviewer")]
    model = Model(ModelSettings(name=micro, device="cpu"), names, lora=LoraSettings(r=4), seed=0)
    for i, name in enumerate(names):
        for parameter in model.adapters.parameters(name).values():
            noise = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(i))
            parameter.data.add_(0.1 * noise)
    model.adapters.refresh()
    return HFEngine(dict.fromkeys(names, model))
