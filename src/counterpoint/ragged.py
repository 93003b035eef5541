"""The decoder layers of the Llama family over token sequences that share their beginnings, written out, with gradients.

Products, norms and rotations run on exactly the tokens there are (layout.py); attention pads, beginnings among themselves, and
continuations over [beginning | own]. Decoding (engines/fused.py) takes the parts of a layer and attends over its cache instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F  # noqa: N812
from torch.utils.checkpoint import checkpoint

from counterpoint.layout import Layout
from counterpoint.llama import Rotary, inverse_rms
from counterpoint.models import Model


class Product(Protocol):
    """Outputs, end to end, of the linear layers of product `which` (llama.PRODUCTS) of layer `number`."""

    def __call__(self, number: int, which: int, x: Float[Tensor, "N in"]) -> Float[Tensor, "N out"]: ...


Keep = Callable[[int, Float[Tensor, "N 2G D"]], None]
"""Takes the keys and values of layer `number`, every token's G heads of keys and then of values."""


class RaggedForward:
    """The decoder layers of one model, whole, and in the two parts that lie on either side of attention."""

    def __init__(self, model: Model, *, recompute: bool = False) -> None:
        """`recompute` runs every layer again in the backward pass instead of keeping what is in it."""
        self.recompute = recompute
        self.backbone = model.base.model
        self.rotary = Rotary(model)
        config = model.base.config
        self.heads, self.groups = config.num_attention_heads, config.num_key_value_heads
        attention = self.backbone.layers[0].self_attn
        self.head_dim, self.scaling = attention.head_dim, attention.scaling

    def continuations(self, layout: Layout, product: Product) -> Float[Tensor, "N2 H"]:
        """The last hidden states, normed, of the second part; the first runs in the last layer only as far as its keys
        and values."""
        return self.normed(self._run(layout, product, None))

    def keys_and_values(self, layout: Layout, product: Product, keep: Keep) -> None:
        """Every token's keys and values, layer by layer to `keep`; the last layer runs only as far as these."""
        self._run(layout, product, keep)

    def _run(self, layout: Layout, product: Product, keep: Keep | None) -> Tensor:
        self.rotary.reach(int(layout.positions.max()) + 1)
        cos, sin = self.rotary.at(layout.positions)
        if self.heads > self.groups:  # heads that share keys and values are more queries of one head
            layout = replace(layout, bias=layout.bias.repeat(1, 1, self.heads // self.groups, 1))
        x: Tensor = self.backbone.embed_tokens(layout.ids)
        for number in range(len(self.backbone.layers)):
            layer = (number, layout, cos, sin, product, keep)
            if self.recompute and torch.is_grad_enabled():
                x = checkpoint(self._layer, x, *layer, use_reentrant=False)
            else:
                x = self._layer(x, *layer)
        return x

    def _layer(
        self, x: Tensor, number: int, layout: Layout, cos: Tensor, sin: Tensor, product: Product, keep: Keep | None
    ) -> Tensor:
        """The residual stream after one decoder layer; that of the second part alone after the last."""
        last = number == len(self.backbone.layers) - 1
        heads = self.rotated_heads(number, x, cos, sin, product)
        if keep is not None:
            keep(number, heads[:, self.heads :])
            if last:
                return x
        attended = self._attention(heads, layout, last)
        return self.rest(number, x[len(layout.beginning_at) :] if last else x, attended, product)

    # ---- a layer but for its attention ---------------------------------------------------------------------------

    def rotated_heads(
        self, number: int, x: Float[Tensor, "N H"], cos: Tensor, sin: Tensor, product: Product
    ) -> Float[Tensor, "N heads D"]:
        """Queries, keys and values of every token, end to end, queries and keys rotated."""
        layer = self.backbone.layers[number]
        attention = layer.self_attn
        heads = product(number, 0, _norm(x, layer.input_layernorm)).view(len(x), -1, self.head_dim)
        if hasattr(attention, "q_norm"):
            q, k, v = torch.split(heads, [self.heads, self.groups, self.groups], dim=1)
            heads = torch.cat([_norm(q, attention.q_norm), _norm(k, attention.k_norm), v], dim=1)
        rotated: Tensor = _Rotated.apply(heads, cos, sin, self.heads + self.groups)  # type: ignore[no-untyped-call]
        return rotated

    def rest(self, number: int, x: Float[Tensor, "N H"], attended: Float[Tensor, "N HD"], product: Product) -> Tensor:
        """The residual stream x with the layer's output projection and MLP added."""
        x = x + product(number, 1, attended)
        both = product(number, 2, _norm(x, self.backbone.layers[number].post_attention_layernorm))
        return x + product(number, 3, _Gated.apply(both))  # type: ignore[no-untyped-call]

    def normed(self, x: Float[Tensor, "N H"]) -> Float[Tensor, "N H"]:
        """What the head is applied to, from the last residual stream."""
        return _norm(x, self.backbone.norm)

    # ---- attention -----------------------------------------------------------------------------------------------

    def _attention(self, heads: Float[Tensor, "N heads D"], layout: Layout, last: bool) -> Float[Tensor, "N HD"]:
        """Attention of beginnings among themselves (not in the last layer) and of every continuation over [beginning | own]."""
        rows, p, continuations, t = layout.shape
        own, parts = len(layout.beginning_at), [self.heads, self.groups, self.groups]
        share, every = self.heads // self.groups, heads.shape[1:]
        outputs = []
        of_beginnings = _Padded.apply(heads[:own], layout.beginning_at, rows * p).view(rows, p, *every)  # type: ignore[no-untyped-call]
        q, k, v = torch.split(of_beginnings.transpose(1, 2), parts, dim=1)  # [B, heads, P, D]
        if p and not last:
            wide_k, wide_v = (x.repeat_interleave(share, dim=1) if share > 1 else x for x in (k, v))
            attended = F.scaled_dot_product_attention(q, wide_k, wide_v, is_causal=True, scale=self.scaling)
            outputs.append(_Picked.apply(attended.transpose(1, 2).flatten(2).flatten(0, 1), layout.beginning_at))  # type: ignore[no-untyped-call]
        of_continuations = _Padded.apply(heads[own:], layout.continuation_at, continuations * t)  # type: ignore[no-untyped-call]
        of_continuations = of_continuations.view(continuations, t, *every)
        q, *after = torch.split(of_continuations.transpose(1, 2), parts, dim=1)
        keys, values = (
            torch.cat([_Spread.apply(first, layout.siblings), second], dim=2)  # type: ignore[no-untyped-call]
            for first, second in zip((k, v), after, strict=True)
        )
        q = q.reshape(continuations, self.groups, share * t, self.head_dim)
        attended = F.scaled_dot_product_attention(q, keys, values, attn_mask=layout.bias, scale=self.scaling)
        attended = (
            attended.reshape(continuations, self.heads, t, self.head_dim).transpose(1, 2).flatten(2).flatten(0, 1)
        )
        outputs.append(_Picked.apply(attended, layout.continuation_at))  # type: ignore[no-untyped-call]
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)


# ---- functions with a backward pass of their own -------------------------------------------------------------------


def _norm(x: Tensor, module: Any) -> Tensor:
    normed: Tensor = _Normed.apply(x, module.weight, module.variance_epsilon)  # type: ignore[no-untyped-call]
    return normed


class _Normed(torch.autograd.Function):
    """RMSNorm with a frozen weight: y = x r w, r = 1 / sqrt(mean(x^2) + eps)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        inverse = inverse_rms(x, eps)
        ctx.save_for_backward(x, weight, inverse)
        return (x * inverse).mul_(weight)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        """dx = r g w - x r^3 mean(g w x)."""
        x, weight, inverse = ctx.saved_tensors
        into = grads[0] * weight
        along = (into * x).mean(dim=-1, keepdim=True).mul_(inverse.pow(3))
        return into.mul_(inverse).addcmul_(x, along, value=-1), None, None


class _Gated(torch.autograd.Function):
    """silu(gate) * up of [gate | up]."""

    @staticmethod
    def forward(ctx: Any, both: Tensor) -> Tensor:
        ctx.save_for_backward(both)
        gate, up = both.chunk(2, dim=-1)
        return F.silu(gate).mul_(up)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        """d gate = g up s (1 + gate (1 - s)), d up = g gate s, with s = sigmoid(gate)."""
        (both,) = ctx.saved_tensors
        gate, up = both.chunk(2, dim=-1)
        into = torch.empty_like(both)
        of_gate, of_up = into.chunk(2, dim=-1)
        torch.mul(grads[0], up, out=of_gate)
        torch.ops.aten.silu_backward.grad_input(of_gate, gate, grad_input=of_gate)
        torch.mul(F.silu(gate), grads[0], out=of_up)
        return into


class _Rotated(torch.autograd.Function):
    """Rotary positions on the first `count` heads; the others as they are."""

    @staticmethod
    def forward(ctx: Any, heads: Tensor, cos: Tensor, sin: Tensor, count: int) -> Tensor:
        ctx.save_for_backward(cos, sin)
        ctx.count = count
        return _rotated(heads, cos, sin, count)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        """A rotation's transpose is the rotation back."""
        cos, sin = ctx.saved_tensors
        return _rotated(grads[0], cos, -sin, ctx.count), None, None, None


def _rotated(heads: Float[Tensor, "N heads D"], cos: Tensor, sin: Tensor, count: int) -> Float[Tensor, "N heads D"]:
    out = torch.empty_like(heads)
    turned, into, half = heads[:, :count], out[:, :count], heads.shape[-1] // 2
    torch.mul(turned, cos, out=into)
    into[..., :half].addcmul_(turned[..., half:], sin[..., :half])
    into[..., half:].addcmul_(turned[..., :half], sin[..., half:])
    out[:, count:] = heads[:, count:]
    return out


class _Padded(torch.autograd.Function):
    """Tokens into their places of a padded array, zeros elsewhere."""

    @staticmethod
    def forward(ctx: Any, tokens: Tensor, places: Tensor, size: int) -> Tensor:
        ctx.save_for_backward(places)
        return tokens.new_zeros(size, *tokens.shape[1:]).index_copy_(0, places, tokens)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (places,) = ctx.saved_tensors
        return grads[0].index_select(0, places), None, None


class _Picked(torch.autograd.Function):
    """Tokens out of their places of a padded array, each place once."""

    @staticmethod
    def forward(ctx: Any, padded: Tensor, places: Tensor) -> Tensor:
        ctx.save_for_backward(places)
        ctx.size = len(padded)
        return padded.index_select(0, places)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (places,) = ctx.saved_tensors
        return grads[0].new_zeros(ctx.size, *grads[0].shape[1:]).index_copy_(0, places, grads[0]), None


class _Spread(torch.autograd.Function):
    """What belongs to a beginning, once for each of its continuations."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, siblings: Tensor) -> Tensor:
        ctx.siblings = siblings.tolist()
        return rows.repeat_interleave(siblings, dim=0)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return torch.stack([part.sum(dim=0) for part in torch.split(grads[0], ctx.siblings)]), None
