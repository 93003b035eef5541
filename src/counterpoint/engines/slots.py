"""A preallocated key-value cache of slots: rows join, leave and move without a concatenation.

Row r occupies slot r of every layer; its prompt lies at positions 0, 1, ... with no padding on the left, and what is decoded
follows it.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin


class _SlotLayer(CacheLayerMixin):
    is_sliding = False

    def __init__(self, cache: SlotCache) -> None:
        super().__init__()
        self.owner = cache

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        slots, length = self.owner.slots, self.owner.length
        self.keys = key_states.new_zeros(slots, key_states.shape[1], length, key_states.shape[3])
        self.values = value_states.new_zeros(slots, value_states.shape[1], length, value_states.shape[3])
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        assert self.keys is not None
        assert self.values is not None
        owner, rows = self.owner, len(key_states)
        if owner.prefilling is not None:
            width = key_states.shape[2]
            self.keys[owner.prefilling, :, :width] = key_states
            self.values[owner.prefilling, :, :width] = value_states
            return key_states, value_states
        index = owner.rows[:rows, None]
        self.keys[index, :, owner.at] = key_states.transpose(1, 2)
        self.values[index, :, owner.at] = value_states.transpose(1, 2)
        return self.keys[:rows, :, : owner.seen], self.values[:rows, :, : owner.seen]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return query_length, 0

    def get_seq_length(self) -> int:
        return 0

    def get_max_length(self) -> int:
        return -1


class SlotCache(Cache):
    """`slots` rows of at most `length` tokens, for a model of `layers` attention layers."""

    def __init__(self, *, layers: int, slots: int, length: int, device: torch.device) -> None:
        super().__init__(layers=[_SlotLayer(self) for _ in range(layers)])
        self.slots, self.length = slots, length
        self.rows = torch.arange(slots, device=device)
        self.prefilling: Int[Tensor, " R"] | None = None
        self.at: Int[Tensor, "R G"] = self.rows[:0, None]
        self.seen = 0

    def start_prefill(self, rows: Int[Tensor, " R"]) -> None:
        """The next forward is over whole prompts, row i of it for slot `rows[i]`."""
        self.prefilling = rows

    def start_decode(self, at: Int[Tensor, "R G"], seen: int) -> None:
        """The next forward adds G tokens a row, at positions at[r] of slot r; attention sees `seen` positions."""
        self.prefilling, self.at, self.seen = None, at, seen

    def move(self, source: Int[Tensor, " K"], target: Int[Tensor, " K"], used: int) -> None:
        """Copy the first `used` positions of slots `source` over slots `target`."""
        for layer in self.layers:
            layer.keys[target, :, :used] = layer.keys[source, :, :used]
            layer.values[target, :, :used] = layer.values[source, :, :used]
