"""How large a model is, without loading it: parameters, widths of attention and cache, adapters; from its config.json or name."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from counterpoint.errors import ConfigError
from counterpoint.lora import LoraSettings
from counterpoint.models import ModelSettings, model_path

_SIZE = re.compile(r"(?<![A-Za-z0-9.])(?P<number>\d+(?:\.\d+)?)(?P<unit>[KMBT])(?![A-Za-z0-9])", re.IGNORECASE)
_UNITS = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a model; those that only its config tells are 0 where there is none."""

    parameters: int  # all of them, tied ones once
    source: str  # where they are from
    body: int  # what every token is multiplied with
    head: int = 0  # what only tokens that are predicted from are: the output layer
    attention: int = 0  # heads x head size, summed over layers
    cache: int = 0  # numbers that a token leaves in the key-value cache
    layers: int = 0
    hidden: int = 0
    inner: int = 0  # width inside the MLP
    adapter: int = 0  # parameters of one adapter

    @property
    def known(self) -> bool:
        """Whether more than the number of parameters is known."""
        return self.layers > 0


def shape_of(settings: ModelSettings, lora: LoraSettings, *, parameters: int | None = None) -> Shape:
    """The shape of a model in a folder or in the hub's cache; else its size as given or as its name says it."""
    if parameters is not None:
        return Shape(parameters, "as given", parameters)
    config = _config(settings)
    if config is not None:
        return _from_config(config, lora)
    found = _SIZE.search(Path(settings.name).name)
    if found is None:
        raise ConfigError(
            f"model {settings.name!r} is neither a folder nor in the hub's cache, and its name tells no size: "
            "pass --parameters, for example --parameters 7e9"
        )
    size = int(float(found["number"]) * _UNITS[found["unit"].upper()])
    return Shape(size, "size taken from the name", size)


def _config(settings: ModelSettings) -> Any:
    """The model's transformers config, from disk only; None where it is not there."""
    from transformers import AutoConfig

    path = model_path(settings.name)
    if path.endswith(".gguf"):
        return None
    try:
        return AutoConfig.from_pretrained(
            path,
            local_files_only=True,
            revision=settings.revision,
            trust_remote_code=settings.trust_remote_code,
        )
    except OSError:
        return None
    except ValueError as error:
        reason = str(error).strip().splitlines()[0]
        raise ConfigError(f"cannot read the config of model {settings.name!r}: {reason}") from error


def _from_config(config: Any, lora: LoraSettings) -> Shape:
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        base = AutoModelForCausalLM.from_config(config)
    text = config.get_text_config()
    entry, output = base.get_input_embeddings().weight, base.get_output_embeddings().weight
    total = sum(p.numel() for p in base.parameters())
    heads, layers = int(text.num_attention_heads), int(text.num_hidden_layers)
    head_size = int(getattr(text, "head_dim", None) or text.hidden_size // heads)
    kv_heads = int(getattr(text, "num_key_value_heads", None) or heads)
    return Shape(
        parameters=total,
        source="config.json",
        body=total - entry.numel() - (0 if output is entry else output.numel()),
        head=output.numel(),
        attention=layers * heads * head_size,
        cache=2 * layers * kv_heads * head_size,
        layers=layers,
        hidden=int(text.hidden_size),
        inner=int(getattr(text, "intermediate_size", None) or 4 * text.hidden_size),
        adapter=_adapter(base, lora),
    )


def _adapter(base: Any, lora: LoraSettings) -> int:
    """Parameters of one adapter: r (in + out) of every layer that PEFT would adapt."""
    total = 0
    for name, module in base.named_modules():
        if isinstance(module, nn.Linear) and _targeted(name, lora.targets, module is base.get_output_embeddings()):
            total += lora.r * (module.in_features + module.out_features)
    return total


def _targeted(name: str, targets: str | tuple[str, ...], is_head: bool) -> bool:
    if targets == "all-linear":
        return not is_head
    if isinstance(targets, str):
        return re.fullmatch(targets, name) is not None
    return any(name == target or name.endswith(f".{target}") for target in targets)
