"""The forward pass of generation for decoders of the Llama family, written out: a handful of kernels a layer.

Prefill runs what the prompts of an adapter begin with alike once, and no padding (ragged.py). In decoding query, key and value
are one matrix product, gate and up another. Adapters are merged into copies of the weights where these copies are small
(`merged_bytes`), so that a row costs what the base model costs; otherwise prefill merges as it goes, and decoding adds thin
products to the base's own, as in training. Anything else runs through transformers (hf.py); both give the same logits up to
rounding.

With merged adapters rows are decoded sorted by adapter, so that each adapter's rows are one slice; the cache stays in slot order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from counterpoint.engines.slots import SlotCache
from counterpoint.kernels import Packed, linear
from counterpoint.layout import Layout, alike
from counterpoint.llama import linears, products
from counterpoint.lora import Linears
from counterpoint.models import Model
from counterpoint.ragged import RaggedForward


@dataclass(slots=True)
class _Product:
    """The adapters of linear layers of one input: one matrix an adapter for all of them, or thin products beside."""

    merged: Float[Tensor, "K out in"] | None = None
    below: Float[Tensor, "nKr in"] | None = None  # where not merged: every A of every adapted layer, end to end
    above: list[tuple[slice, Float[Tensor, "out Kr"]]] = field(default_factory=list)  # and where each layer's B adds


class FusedForward:
    """Prefill and decode over a SlotCache; decoded rows are routed to adapters by `route`."""

    def __init__(self, model: Model, *, merged_bytes: int) -> None:
        self.model = model
        self.ragged = RaggedForward(model)
        self.heads, self.groups = self.ragged.heads, self.ragged.groups
        self.head_dim, self.scaling = self.ragged.head_dim, self.ragged.scaling
        self.backbone = model.base.model
        size = sum(m.weight.numel() * m.weight.element_size() for m in linears(model))
        self.merges = size * len(model.adapters.names) <= merged_bytes
        self.linears = products(model)
        self.packed = [] if self.merges else [[Packed(m.weights, m.bias) for m in layer] for layer in self.linears]
        head = model.base.get_output_embeddings()
        self.head = Packed([head.weight], head.bias)
        self.parameters: list[dict[str, Tensor]] = []  # of every adapter, as last refreshed
        self.products: list[list[_Product]] = []
        self.weights_of = -1
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
            self.parameters = [adapters.refreshed_parameters(name) for name in adapters.names]
            self.products = [[self._product(own) for own in layer] for layer in self.linears]
            self.weights_of = adapters.refreshed
        self.ragged.rotary.reach(cache.length + 1)
        yield

    def _product(self, own: Linears) -> _Product:
        if self.merges:
            return _Product(merged=torch.stack([own.merged(1.0, own.pairs(p)) for p in self.parameters]))
        stacks = self.model.adapters.stacks
        adapted = [(own.span(i), *stacks[index]) for i, index in enumerate(own.indices) if index is not None]
        below = torch.cat([a for _, a, _ in adapted]) if adapted else None
        return _Product(below=below, above=[(span, b) for span, _, b in adapted])

    # ---- rows ----------------------------------------------------------------------------------------------------

    def prefill(self, prompts: Sequence[Sequence[int]], adapters: Int[np.ndarray, " R"], first: int) -> None:
        """Keys and values of prompt i, under adapter `adapters[i]`, into slot first + i."""
        for adapter in sorted(set(adapters.tolist())):
            rows = [i for i, prompt in enumerate(prompts) if adapters[i] == adapter and prompt]
            groups = alike([prompts[i] for i in rows])
            members = [rows[i] for _, group in groups for i in group]
            if not members:
                continue
            layout = Layout.of(
                [prompts[rows[group[0]]][:shared] for shared, group in groups],
                [prompts[rows[i]][shared:] for shared, group in groups for i in group],
                [len(group) for _, group in groups],
            )
            self.cache.start_prefill(first + torch.tensor(members))
            self._fill(layout, adapter)

    def _fill(self, layout: Layout, adapter: int) -> None:
        """Run the tokens under one adapter; rows go where the cache was told."""
        whole = layout.whole.flatten()

        def product(number: int, which: int, x: Tensor) -> Tensor:
            own, merged = self.linears[number][which], self.products[number][which].merged
            weight = own.merged(1.0, own.pairs(self.parameters[adapter])) if merged is None else merged[adapter]
            return linear(x, weight, own.bias)

        def keep(number: int, both: Tensor) -> None:
            rows = both.index_select(0, whole).view(*layout.whole.shape, -1, self.head_dim).transpose(1, 2)
            self.cache.layers[number].update(*torch.split(rows, self.groups, dim=1))

        self.ragged.keys_and_values(layout, product, keep)

    def route(self, adapters: Int[np.ndarray, " R"], tokens: int) -> None:
        """The next decode steps have rows of `tokens` tokens, row r under adapter `adapters[r]`."""
        if not self.merges:
            rows = torch.from_numpy(adapters.copy())
            self.blocks = self.model.adapters.mask(rows)[:, 0].repeat_interleave(tokens, dim=0)
            return
        order, self.spans = _spans(adapters, tokens)
        ordered = bool((order == np.arange(len(order))).all())
        self.order = None if ordered else torch.from_numpy(order)
        self.back = None if ordered else torch.from_numpy(np.argsort(order))

    def decode(self, ids: Int[Tensor, "R G"], positions: Int[Tensor, "R G"], mask: Tensor) -> Float[Tensor, "R G V"]:
        """Logits of the next token; `mask` [R, G, S] is True where a token may look."""
        rows, size = ids.shape
        bias = torch.zeros(mask.shape).masked_fill_(~mask, -torch.inf)[:, None]
        share = self.heads // self.groups
        if share > 1:  # heads that share keys and values are more queries of one head
            bias = bias.repeat(1, 1, share, 1)
        if self.order is not None:
            ids, positions = ids[self.order], positions[self.order]
        cos, sin = self.ragged.rotary.at(positions.flatten())
        x = self.backbone.embed_tokens(ids).flatten(0, 1)
        for number in range(len(self.products)):
            heads = self.ragged.rotated_heads(number, x, cos, sin, self._decoding)
            heads = heads.view(rows, size, -1, self.head_dim)
            if self.back is not None:
                heads = heads[self.back]
            q, k, v = torch.split(heads.transpose(1, 2), [self.heads, self.groups, self.groups], dim=1)
            keys, values = self.cache.layers[number].update(k, v)
            q = q.reshape(rows, self.groups, share * size, self.head_dim)
            attended = F.scaled_dot_product_attention(q, keys, values, attn_mask=bias, scale=self.scaling)
            attended = attended.view(rows, self.heads, size, self.head_dim).transpose(1, 2)
            if self.order is not None:
                attended = attended[self.order]
            x = self.ragged.rest(number, x, attended.reshape(len(x), -1), self._decoding)
        logits = self.head(self.ragged.normed(x)).view(rows, size, -1)
        return logits if self.back is None else logits[self.back]

    def _decoding(self, number: int, which: int, x: Float[Tensor, "N in"]) -> Float[Tensor, "N out"]:
        """A product of rows routed to their adapters."""
        own, product = self.linears[number][which], self.products[number][which]
        if product.merged is not None:
            parts = [linear(x[first:last], product.merged[k], own.bias) for k, first, last in self.spans]
            return parts[0] if len(parts) == 1 else torch.cat(parts)
        whole = self.packed[number][which](x)
        if product.below is not None:
            below = linear(x, product.below).view(len(x), len(product.above), -1).mul_(self.blocks[:, None])
            for k, (span, b) in enumerate(product.above):
                whole[:, span].addmm_(below[:, k], b.T)
        return whole


def _spans(adapters: Int[np.ndarray, " R"], tokens: int) -> tuple[np.ndarray, list[tuple[int, int, int]]]:
    """Rows sorted by adapter, and (adapter, first token, one past its last) of each."""
    found, counts = np.unique(adapters, return_counts=True)
    ends = np.cumsum(counts) * tokens
    spans = [(int(a), int(end - n * tokens), int(end)) for a, n, end in zip(found, counts, ends, strict=True)]
    return np.argsort(adapters, kind="stable"), spans
