"""Hidden states of given replies for decoders of the Llama family, written out, with gradients for one adapter.

The tokens of a micro-batch lie end to end in two parts, without padding: of every row the prompt but for its last token;
then of every reply what the engine fed to sample it, the prompt's last token and the reply's own but for its last. Every
token of the second part predicts one reply token. Products, norms and rotations run on exactly these tokens; attention pads,
prompts among themselves, and replies over [prompt | own]. The last layer runs only as far as keys and values for prompts.

Anything else runs through transformers on packed rows (packing.py); both give the same gradients up to rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F  # noqa: N812
from torch.utils.checkpoint import checkpoint

from counterpoint.kernels import linear
from counterpoint.llama import PRODUCTS, inverse_rms, joint_bias, plain, rotary
from counterpoint.models import Model
from counterpoint.packing import Row


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where the tokens of a micro-batch lie: B rows of at most P prompt tokens, S replies of at most T."""

    ids: Int[Tensor, " N"]
    positions: Int[Tensor, " N"]
    prompt_at: Int[Tensor, " N1"]  # place of each token of the first part in [B * P]
    reply_at: Int[Tensor, " N2"]  # and of the second part in [S * T]
    siblings: Int[Tensor, " B"]  # replies of each row
    shape: tuple[int, int, int, int]  # B, P, S, T
    bias: Float[Tensor, "S 1 T P+T"]  # 0 where a reply's token may look, -inf elsewhere

    @classmethod
    def of(cls, rows: Sequence[Row]) -> _Layout:
        prompts = [row.prompt[:-1] for row in rows]
        fed = [(row.prompt[-1], *s.token_ids[:-1]) for row in rows for s in row.samples]
        siblings = np.array([len(row.samples) for row in rows])
        row_of = np.repeat(np.arange(len(rows)), siblings)
        before, sizes = np.array([len(p) for p in prompts]), np.array([len(f) for f in fed])
        p, t = int(before.max()), int(sizes.max())
        own = [np.arange(n) for n in before], [np.arange(n) for n in sizes]
        prompt_at = np.concatenate([b * p + at for b, at in enumerate(own[0])])
        reply_at = np.concatenate([s * t + at for s, at in enumerate(own[1])])
        shifted = [at + before[row] for at, row in zip(own[1], row_of, strict=True)]
        prompt_seen = np.arange(p) < before[row_of][:, None]
        seen = np.concatenate(
            [
                np.broadcast_to(prompt_seen[:, None], (len(fed), t, p)),
                np.broadcast_to(np.tri(t, dtype=bool), (len(fed), t, t)),
            ],
            axis=2,
        )
        return cls(
            torch.tensor([i for part in (*prompts, *fed) for i in part]),
            torch.from_numpy(np.concatenate([*own[0], *shifted])),
            torch.from_numpy(prompt_at),
            torch.from_numpy(reply_at),
            torch.from_numpy(siblings),
            (len(rows), p, len(fed), t),
            torch.zeros(seen.shape).masked_fill_(torch.from_numpy(~seen), -torch.inf)[:, None],
        )


@dataclass(frozen=True, slots=True)
class _Linears:
    """Frozen linear layers of one input, and which adapted layer each of them is."""

    weights: list[Float[Tensor, "out in"]]
    bias: Float[Tensor, " sum_out"] | None
    indices: list[int | None]
    sizes: list[int]

    def span(self, i: int) -> slice:
        """Where the outputs of layer i lie."""
        first = sum(self.sizes[:i])
        return slice(first, first + self.sizes[i])


class TeacherForced:
    """The written-out pass of one model."""

    def __init__(self, model: Model, *, recompute: bool = False) -> None:
        """`recompute` runs every layer again in the backward pass instead of keeping what is in it."""
        self.model, self.recompute = model, recompute
        self.backbone = model.base.model
        config = model.base.config
        self.heads, self.groups = config.num_attention_heads, config.num_key_value_heads
        attention = self.backbone.layers[0].self_attn
        self.head_dim, self.scaling = attention.head_dim, attention.scaling
        numbers = {id(m): i for i, m in enumerate(model.adapters.layers)}
        self.products = [
            [self._linears([getattr(getattr(layer, owner), n) for n in names], numbers) for owner, names in PRODUCTS]
            for layer in self.backbone.layers
        ]

    @staticmethod
    def _linears(layers: list[Any], numbers: dict[int, int]) -> _Linears:
        bare = [plain(m) for m in layers]
        indices = [numbers.get(id(m)) for m in layers]
        return _Linears([m.weight for m in bare], joint_bias(bare), indices, [len(m.weight) for m in bare])

    def hidden(self, rows: Sequence[Row], agent: str | None) -> Float[Tensor, "M H"]:
        """What the head turns into logits of every reply token of `rows`, in order; under the parameters of `agent`'s
        adapter, or of the base model alone."""
        layout = _Layout.of(rows)
        parameters = {} if agent is None else self.model.adapters.parameters(agent)
        cos, sin = (table[layout.positions] for table in rotary(self.model, int(layout.positions.max()) + 1))
        x = self.backbone.embed_tokens(layout.ids)
        for number in range(len(self.products)):
            layer = (number, layout, cos, sin, parameters)
            if self.recompute and torch.is_grad_enabled():
                x = checkpoint(self._layer, x, *layer, use_reentrant=False)
            else:
                x = self._layer(x, *layer)
        return _norm(x, self.backbone.norm)

    def _layer(
        self, x: Tensor, number: int, layout: _Layout, cos: Tensor, sin: Tensor, parameters: dict[str, Any]
    ) -> Tensor:
        """The residual stream after one decoder layer; that of the replies alone after the last."""
        layer, (qkv, out, up, down) = self.backbone.layers[number], self.products[number]
        attention, last = layer.self_attn, number == len(self.products) - 1
        mixed = self._product(_norm(x, layer.input_layernorm), qkv, parameters)
        heads = mixed.view(len(x), -1, self.head_dim)
        turned = self.heads + self.groups
        if hasattr(attention, "q_norm"):
            q, k, v = torch.split(heads, [self.heads, self.groups, self.groups], dim=1)
            heads = torch.cat([_norm(q, attention.q_norm), _norm(k, attention.k_norm), v], dim=1)
        attended = self._attention(_Rotated.apply(heads, cos, sin, turned), layout, last)  # type: ignore[no-untyped-call]
        if last:
            x = x[len(layout.prompt_at) :]
        x = x + self._product(attended, out, parameters)
        gated = _Gated.apply(self._product(_norm(x, layer.post_attention_layernorm), up, parameters))  # type: ignore[no-untyped-call]
        return x + self._product(gated, down, parameters)

    def _product(self, x: Tensor, linears: _Linears, parameters: dict[str, Any]) -> Tensor:
        """x times every weight with its part of the adapter added, end to end."""
        pairs = [
            (None, None) if i is None or not parameters else (parameters[f"{i}.A"], parameters[f"{i}.B"])
            for i in linears.indices
        ]
        settings = self.model.adapters.settings
        flat = [tensor for pair in pairs for tensor in pair]
        product: Tensor = _Product.apply(x, linears, settings.alpha / settings.r, *flat)  # type: ignore[no-untyped-call]
        return product

    def _attention(self, heads: Float[Tensor, "N heads D"], layout: _Layout, last: bool) -> Float[Tensor, "N HD"]:
        """Attention of prompts among themselves (not in the last layer) and of every reply over [prompt | own]."""
        rows, p, replies, t = layout.shape
        own, parts = len(layout.prompt_at), [self.heads, self.groups, self.groups]
        share, every = self.heads // self.groups, heads.shape[1:]
        outputs = []
        of_prompts = _Padded.apply(heads[:own], layout.prompt_at, rows * p).view(rows, p, *every)  # type: ignore[no-untyped-call]
        q, k, v = torch.split(of_prompts.transpose(1, 2), parts, dim=1)  # [B, heads, P, D]
        if p and not last:
            wide_k, wide_v = (x.repeat_interleave(share, dim=1) if share > 1 else x for x in (k, v))
            attended = F.scaled_dot_product_attention(q, wide_k, wide_v, is_causal=True, scale=self.scaling)
            outputs.append(_Picked.apply(attended.transpose(1, 2).flatten(2).flatten(0, 1), layout.prompt_at))  # type: ignore[no-untyped-call]
        of_replies = _Padded.apply(heads[own:], layout.reply_at, replies * t).view(replies, t, *every)  # type: ignore[no-untyped-call]
        q, *after = torch.split(of_replies.transpose(1, 2), parts, dim=1)
        keys, values = (
            torch.cat([_Spread.apply(prompt, layout.siblings), reply], dim=2)  # type: ignore[no-untyped-call]
            for prompt, reply in zip((k, v), after, strict=True)
        )
        # heads that share keys and values are more queries of one head
        q = q.reshape(replies, self.groups, share * t, self.head_dim)
        bias = layout.bias.repeat(1, 1, share, 1) if share > 1 else layout.bias
        attended = F.scaled_dot_product_attention(q, keys, values, attn_mask=bias, scale=self.scaling)
        attended = attended.reshape(replies, self.heads, t, self.head_dim).transpose(1, 2).flatten(2).flatten(0, 1)
        outputs.append(_Picked.apply(attended, layout.reply_at))  # type: ignore[no-untyped-call]
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)


# ---- functions with a backward pass of their own -------------------------------------------------------------------


class _Product(torch.autograd.Function):
    """x (W + s B A)^T for frozen weights of one input, end to end: a full product forward, one backward for x, thin ones
    for every A and B."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, linears: _Linears, scale: float, *pairs: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, *pairs)
        ctx.linears, ctx.scale = linears, scale
        return linear(x, _merged(linears, scale, pairs), linears.bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, *pairs = ctx.saved_tensors
        grad, scale = grads[0], ctx.scale
        into = linear(grad, _merged(ctx.linears, scale, pairs).T) if ctx.needs_input_grad[0] else None
        thin: list[Tensor | None] = [None] * len(pairs)
        owned = [i for i, needed in enumerate(ctx.needs_input_grad[3::2]) if needed]
        if owned:
            rank = len(pairs[2 * owned[0]])
            of_b = x.new_zeros(len(owned) * rank, grad.shape[1])  # every B transposed, block by block
            spans = [(slice(k * rank, (k + 1) * rank), ctx.linears.span(i)) for k, i in enumerate(owned)]
            for (rows, columns), i in zip(spans, owned, strict=True):
                of_b[rows, columns] = pairs[2 * i + 1].T
            below, above = linear(x, torch.cat([pairs[2 * i] for i in owned])), linear(grad, of_b)
            of_a = (above.T @ x).mul_(scale)
            for (rows, columns), i in zip(spans, owned, strict=True):
                thin[2 * i], thin[2 * i + 1] = of_a[rows], (below[:, rows].T @ grad[:, columns]).mul_(scale).T
        return into, None, None, *thin


def _merged(linears: _Linears, scale: float, pairs: Sequence[Tensor | None]) -> Float[Tensor, "sum_out in"]:
    """The weights with the adapter added, end to end."""
    if len(linears.weights) == 1 and pairs[0] is None:
        return linears.weights[0]
    whole = linears.weights[0].new_empty(sum(linears.sizes), linears.weights[0].shape[1])
    for part, weight, a, b in zip(
        torch.split(whole, linears.sizes), linears.weights, pairs[::2], pairs[1::2], strict=True
    ):
        if a is None or b is None:
            part.copy_(weight)
        else:
            torch.addmm(weight, b, a, alpha=scale, out=part)
    return whole


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
    """What belongs to a row, once for each of its replies."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, siblings: Tensor) -> Tensor:
        ctx.siblings = siblings.tolist()
        return rows.repeat_interleave(siblings, dim=0)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return torch.stack([part.sum(dim=0) for part in torch.split(grads[0], ctx.siblings)]), None
