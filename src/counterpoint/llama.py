"""Decoders of the Llama family as data: which linear layers share an input, how a head is rotated, how a row is normed.

What engines/fused.py (generation) and teacher_forced.py (learning) write out instead of calling transformers.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from counterpoint.lora import Linears
from counterpoint.models import Model

FAMILY = ("llama", "mistral", "qwen2", "qwen3")
"""`model_type` of the decoders meant here: RMSNorm, rotary positions, grouped queries, gated MLP."""
PRODUCTS = (
    ("self_attn", ("q_proj", "k_proj", "v_proj")), ("self_attn", ("o_proj",)),
    ("mlp", ("gate_proj", "up_proj")), ("mlp", ("down_proj",)),
)  # fmt: skip
"""The four products of a layer: where their linear layers are, and which share an input."""


def fits(model: Model) -> bool:
    """Whether the model is of the family, on a CPU, in float32, its layers plain ones, none adapted outside `PRODUCTS`."""
    config = model.base.config
    return (
        config.model_type in FAMILY
        and getattr(config, "hidden_act", "") == "silu"
        and model.plain_head
        and model.device.type == "cpu"
        and model.dtype == torch.float32
        and all(type(m) is torch.nn.Linear for m in [*linears(model), model.base.get_output_embeddings()])
    )


def linears(model: Model) -> list[Any]:
    """Every linear layer of every product, without what PEFT puts around it."""
    return [
        plain(getattr(getattr(layer, owner), name))
        for layer in model.base.model.layers
        for owner, names in PRODUCTS
        for name in names
    ]


def products(model: Model) -> list[list[Linears]]:
    """The four products of every layer, and which of their linear layers are adapted."""
    numbers = {id(m): i for i, m in enumerate(model.adapters.layers)}
    return [
        [_joined([getattr(getattr(layer, owner), name) for name in names], numbers) for owner, names in PRODUCTS]
        for layer in model.base.model.layers
    ]


def _joined(layers: list[Any], numbers: dict[int, int]) -> Linears:
    bare = [plain(m) for m in layers]
    indices = [numbers.get(id(m)) for m in layers]
    return Linears([m.weight for m in bare], _joint_bias(bare), indices, [len(m.weight) for m in bare])


def plain(module: Any) -> Any:
    """The linear layer inside a PEFT layer."""
    return getattr(module, "base_layer", module)


def _joint_bias(layers: list[Any]) -> Float[Tensor, " out"] | None:
    """The biases of linear layers of one input, end to end; None where none of them has one."""
    if all(layer.bias is None for layer in layers):
        return None
    return torch.cat([torch.zeros(len(m.weight)) if m.bias is None else m.bias for m in layers])


class Rotary:
    """Cosine and sine by position, [T, 1, D]; the sine signed so that rotating is x cos + roll(x, D/2) sin."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.cos = self.sin = torch.empty(0, 1, 0)

    def reach(self, length: int) -> None:
        """Know positions 0 .. length - 1."""
        if len(self.cos) >= length:
            return
        backbone = self.model.base.model
        cos, sin = backbone.rotary_emb(
            backbone.embed_tokens.weight, torch.arange(length, device=self.model.device)[None]
        )
        half = cos.shape[-1] // 2
        sin = torch.cat([-sin[..., :half], sin[..., half:]], dim=-1)
        self.cos, self.sin = cos[0][:, None], sin[0][:, None]

    def at(self, positions: Int[Tensor, "*N"]) -> tuple[Float[Tensor, "*N 1 D"], Float[Tensor, "*N 1 D"]]:
        """Cosine and sine at positions that are known."""
        return self.cos[positions], self.sin[positions]


def inverse_rms(x: Float[Tensor, "*N H"], eps: float) -> Float[Tensor, "*N 1"]:
    """1 / sqrt(mean(x^2) + eps)."""
    scale: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square_().div_(x.shape[-1])
    return scale.add_(eps).rsqrt_()
