"""The forward pass of generation for decoders of the Llama family, written out: a handful of kernels a layer.

Query, key and value are one matrix product, gate and up another. Adapters are merged into copies of the weights where these
copies are small (`merged_bytes`), so that a row costs what the base model costs; otherwise their thin products are added to
the base's own, as in training. Anything else runs through transformers (hf.py); both give the same logits up to rounding.

Rows are run sorted by adapter, so that each adapter's rows are one slice; the cache stays in slot order.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from counterpoint.engines.slots import SlotCache
from counterpoint.kernels import linear
from counterpoint.llama import PRODUCTS, joint_bias, linears, norm, plain, rotary
from counterpoint.models import Model


@dataclass(slots=True)
class _Product:
    """Linear layers of one input: weights by adapter, one matrix for all of them; or the layers themselves."""

    sizes: list[int]
    merged: Float[Tensor, "K out in"] | None
    below: Float[Tensor, "nKr in"]  # every A of every adapted layer, end to end; where adapters are not merged
    bias: Float[Tensor, " out"] | None
    layers: list[Any]
    indices: list[int | None]  # of the adapted layers; None where a layer has no adapter


class FusedForward:
    """Prefill and decode over a SlotCache; rows are routed to adapters by `route`."""

    def __init__(self, model: Model, *, merged_bytes: int) -> None:
        self.model = model
        config = model.base.config
        self.heads, self.groups = config.num_attention_heads, config.num_key_value_heads
        self.backbone = model.base.model
        attention = self.backbone.layers[0].self_attn
        self.head_dim, self.scaling = attention.head_dim, attention.scaling
        size = sum(m.weight.numel() * m.weight.element_size() for m in linears(model))
        self.merges = size * len(model.adapters.names) <= merged_bytes
        self.products: list[list[_Product]] = []
        self.weights_of = -1
        self.rotary = (torch.empty(0), torch.empty(0))
        self.order: Tensor | None = None  # rows sorted by adapter; None when they are already
        self.back: Tensor | None = None
        self.spans: list[tuple[int, int, int]] = []
        self.blocks = torch.empty(0)  # the routing mask of every token, where adapters are not merged
        self.cache: SlotCache

    # ---- weights -------------------------------------------------------------------------------------------------

    @contextmanager
    def on(self, cache: SlotCache) -> Iterator[None]:
        """Work on this cache, with the adapters' weights as last refreshed."""
        self.cache = cache
        adapters = self.model.adapters
        if self.weights_of != adapters.refreshed:
            self.products = [
                [self._product(getattr(layer, owner), names) for owner, names in PRODUCTS]
                for layer in self.backbone.layers
            ]
            self.weights_of = adapters.refreshed
        if self.rotary[0].shape[0] < cache.length + 1:
            self.rotary = rotary(self.model, cache.length + 1)
        yield

    def _product(self, owner: Any, names: tuple[str, ...]) -> _Product:
        adapters = self.model.adapters
        layers = [getattr(owner, name) for name in names]
        bare = [plain(m) for m in layers]
        indices = [adapters.layers.index(m) if m in adapters.layers else None for m in layers]
        merged, below = None, torch.empty(0)
        if self.merges:
            parts = [
                p.weight[None].expand(len(adapters.names), -1, -1) if i is None else adapters.merged(i)
                for p, i in zip(bare, indices, strict=True)
            ]
            merged = torch.cat(parts, dim=1)
        elif any(i is not None for i in indices):
            below = torch.cat([adapters.stacks[i][0] for i in indices if i is not None])
        return _Product([len(p.weight) for p in bare], merged, below, joint_bias(bare), bare, indices)

    def _apply(self, product: _Product, x: Float[Tensor, "N in"]) -> list[Tensor]:
        """Outputs of the product's layers for rows in the order of `spans`."""
        if product.merged is None:
            outputs = [linear(x, module.weight, module.bias) for module in product.layers]
            adapted = [(out, i) for out, i in zip(outputs, product.indices, strict=True) if i is not None]
            if adapted:
                below = linear(x, product.below).view(len(x), len(adapted), -1).mul_(self.blocks[:, None])
                for k, (out, index) in enumerate(adapted):
                    out.addmm_(below[:, k], self.model.adapters.stacks[index][1].T)
            return outputs
        parts = [linear(x[first:last], product.merged[k], product.bias) for k, first, last in self.spans]
        whole = parts[0] if len(parts) == 1 else torch.cat(parts)
        return list(torch.split(whole, product.sizes, dim=-1))

    # ---- rows ----------------------------------------------------------------------------------------------------

    def route(self, adapters: Int[np.ndarray, " R"], tokens: int) -> None:
        """The next passes have rows of `tokens` tokens, row r under adapter `adapters[r]`."""
        order, self.spans = _spans(adapters, tokens)
        ordered = bool((order == np.arange(len(order))).all())
        self.order = None if ordered else torch.from_numpy(order)
        self.back = None if ordered else torch.from_numpy(np.argsort(order))
        if not self.merges:
            rows = torch.from_numpy(adapters[order])
            self.blocks = self.model.adapters.mask(rows)[:, 0].repeat_interleave(tokens, dim=0)

    def prefill(self, ids: Int[Tensor, "R T"], first: int) -> None:
        """Keys and values of whole prompts, row i into slot first + i. The last layer runs only as far as these."""
        width = ids.shape[1]
        self.cache.start_prefill(first)
        cos, sin = self.rotary[0][:width], self.rotary[1][:width]
        x = self.backbone.embed_tokens(ids if self.order is None else ids[self.order]).flatten(0, 1)
        last = len(self.products) - 1
        for number in range(len(self.products)):
            q, k, v = self._heads(number, x, width, cos, sin)
            self.cache.layers[number].update(k, v)
            if number == last:
                break
            attended = F.scaled_dot_product_attention(
                q, k, v, is_causal=True, scale=self.scaling, enable_gqa=self.groups != self.heads
            )
            x = self._rest(number, x, attended.transpose(1, 2))

    def decode(self, ids: Int[Tensor, "R G"], positions: Int[Tensor, "R G"], mask: Tensor) -> Float[Tensor, "R G V"]:
        """Logits of the next token; `mask` [R, G, S] is True where a token may look."""
        rows, size = ids.shape
        bias = torch.zeros(mask.shape).masked_fill_(~mask, -torch.inf)[:, None]
        share = self.heads // self.groups
        if share > 1:  # heads that share keys and values are more queries of one head
            bias = bias.repeat(1, 1, share, 1)
        if self.order is not None:
            ids, positions = ids[self.order], positions[self.order]
        cos, sin = self.rotary[0][positions], self.rotary[1][positions]
        x = self.backbone.embed_tokens(ids).flatten(0, 1)
        for number in range(len(self.products)):
            q, k, v = self._heads(number, x, size, cos, sin)
            keys, values = self.cache.layers[number].update(k, v)
            q = q.reshape(rows, self.groups, share * size, self.head_dim)
            attended = F.scaled_dot_product_attention(q, keys, values, attn_mask=bias, scale=self.scaling)
            x = self._rest(number, x, attended.view(rows, self.heads, size, self.head_dim).transpose(1, 2))
        head = self.model.base.get_output_embeddings()
        logits = linear(norm(x, self.backbone.norm), head.weight, head.bias).view(-1, size, len(head.weight))
        return logits if self.back is None else logits[self.back]

    def _heads(self, number: int, x: Tensor, tokens: int, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Query, key and value [R, heads, T, head_dim] of a layer, rotated, in slot order."""
        layer = self.backbone.layers[number]
        attention = layer.self_attn
        parts = self._apply(self.products[number][0], norm(x, layer.input_layernorm))
        q, k, v = (part.view(-1, tokens, part.shape[1] // self.head_dim, self.head_dim) for part in parts)
        if hasattr(attention, "q_norm"):
            q, k = norm(q, attention.q_norm), norm(k, attention.k_norm)
        half = self.head_dim // 2
        rotated = [torch.addcmul(part * cos, part.roll(half, dims=-1), sin) for part in (q, k)]
        q, k, v = (part if self.back is None else part[self.back] for part in (*rotated, v))
        return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)

    def _rest(self, number: int, x: Tensor, attended: Float[Tensor, "R T heads head_dim"]) -> Tensor:
        """Output projection and MLP of a layer, on top of the residual stream."""
        _, out, up, down = self.products[number]
        if self.order is not None:
            attended = attended[self.order]
        x = x + self._apply(out, attended.reshape(len(x), -1))[0]
        gate, value = self._apply(up, norm(x, self.backbone.layers[number].post_attention_layernorm))
        return x + self._apply(down, F.silu(gate).mul_(value))[0]


def _spans(adapters: Int[np.ndarray, " R"], tokens: int) -> tuple[np.ndarray, list[tuple[int, int, int]]]:
    """Rows sorted by adapter, and (adapter, first token, one past its last) of each."""
    found, counts = np.unique(adapters, return_counts=True)
    ends = np.cumsum(counts) * tokens
    spans = [(int(a), int(end - n * tokens), int(end)) for a, n, end in zip(found, counts, ends, strict=True)]
    return np.argsort(adapters, kind="stable"), spans
