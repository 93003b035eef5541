"""Samples packed for one forward pass: siblings share their prompt under a block mask; log-probabilities in chunks.

A row is [prompt | reply 1 | ... | reply G]. Each reply sees the prompt and itself, its positions go on from the prompt's end,
so every reply is scored as if it stood alone while the prompt is run once, forward and backward.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from counterpoint.engines.sampling import log_softmax
from counterpoint.errors import ConfigError
from counterpoint.kernels import linear
from counterpoint.models import Model
from counterpoint.records import Sample

CHUNK = 1 << 24  # logits alive at a time


@dataclass(frozen=True, slots=True)
class Row:
    """Siblings of one prompt under one adapter."""

    agent: str
    prompt: tuple[int, ...]
    samples: tuple[Sample, ...]

    @property
    def width(self) -> int:
        return len(self.prompt) + sum(len(s.token_ids) - 1 for s in self.samples)


@dataclass(slots=True)
class Targets:
    """What is known of the N replies of a micro-batch, M tokens in all, in order."""

    ids: Int[Tensor, " M"]
    mask: Bool[Tensor, "N T"]  # reply tokens of every sequence
    old_logp: Float[Tensor, "N T"]
    advantage: Float[Tensor, " N"]


@dataclass(slots=True)
class Packed:
    """The tokens of one micro-batch."""

    ids: Int[Tensor, "B L"]
    positions: Int[Tensor, "B L"]
    attention: Bool[Tensor, "B 1 L L"]
    row_of: Int[Tensor, " M"]  # the row of what predicts each reply token
    at: Int[Tensor, " M"]  # its column


def rows_of(samples: Sequence[Sample]) -> list[Row]:
    """Siblings together, in order of first appearance."""
    found: dict[tuple[str, tuple[int, ...]], list[Sample]] = {}
    for sample in samples:
        if not sample.token_ids:
            raise ConfigError(f"a sample of {sample.agent} has no tokens; the engine must return at least EOS")
        found.setdefault((sample.agent, sample.prompt_ids), []).append(sample)
    return [Row(agent, prompt, tuple(group)) for (agent, prompt), group in found.items()]


def micro_batches(rows: Sequence[Row], budget: int, *, apart: bool = False) -> Iterator[list[Row]]:
    """Rows of similar width together, each batch within `budget` tokens, padding included (one row always fits).

    `apart` keeps the rows of each adapter to themselves.
    """
    batch: list[Row] = []
    for row in sorted(rows, key=lambda r: (r.agent if apart else "", -r.width, r.agent, r.prompt)):
        full = bool(batch) and batch[0].width * (len(batch) + 1) > budget
        if full or (apart and batch and batch[0].agent != row.agent):
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def targets_of(rows: Sequence[Row], device: torch.device) -> Targets:
    """Targets, old log-probabilities and advantages of a micro-batch."""
    sequences = [s for row in rows for s in row.samples]
    sizes = torch.tensor([len(s.token_ids) for s in sequences])
    mask = torch.arange(int(sizes.max()))[None] < sizes[:, None]
    old = torch.zeros(mask.shape).masked_scatter_(mask, torch.tensor([p for s in sequences for p in s.old_logp]))
    return Targets(
        torch.tensor([i for s in sequences for i in s.token_ids], device=device),
        mask.to(device),
        old.to(device),
        torch.tensor([s.advantage for s in sequences], dtype=torch.float32, device=device),
    )


def pack(rows: Sequence[Row], device: torch.device) -> Packed:
    """A micro-batch as padded rows under a block mask."""
    width = max(row.width for row in rows)
    ids = torch.zeros(len(rows), width, dtype=torch.long)
    positions = torch.zeros_like(ids)
    segment = torch.full_like(ids, -1)  # 0 prompt, 1.. replies, -1 padding
    row_of: list[int] = []
    at: list[int] = []
    for b, row in enumerate(rows):
        p = len(row.prompt)
        ids[b, :p] = torch.tensor(row.prompt)
        positions[b, :p] = torch.arange(p)
        segment[b, :p] = 0
        start = p
        for j, sample in enumerate(row.samples, start=1):
            t = len(sample.token_ids)
            ids[b, start : start + t - 1] = torch.tensor(sample.token_ids[:-1])
            positions[b, start : start + t - 1] = torch.arange(p, p + t - 1)
            segment[b, start : start + t - 1] = j
            row_of += [b] * t
            at += [p - 1, *range(start, start + t - 1)]
            start += t - 1
    causal = torch.ones(width, width, dtype=torch.bool).tril()
    seen = (segment[:, None, :] == 0) | (segment[:, None, :] == segment[:, :, None])
    return Packed(
        ids.to(device),
        positions.to(device),
        (causal & seen)[:, None].to(device),
        torch.tensor(row_of, device=device),
        torch.tensor(at, device=device),
    )


def token_logp(model: Model, hidden: Tensor, targets: Tensor, temperature: float) -> Tensor:
    """log-probabilities of `targets` [M] from hidden states [M, H]; logits live only a chunk at a time."""
    size = max(1, CHUNK // model.vocab_size)
    head = model.base.get_output_embeddings()
    if model.plain_head and type(head) is torch.nn.Linear:
        logp: Tensor = _TokenLogp.apply(hidden, head.weight, head.bias, targets, temperature, size)  # type: ignore[no-untyped-call]
        return logp

    def chunk(h: Tensor, ids: Tensor) -> Tensor:
        return log_softmax(model.head(h), temperature).gather(-1, ids[:, None])[:, 0]

    if len(hidden) <= size:
        return chunk(hidden, targets)
    parts = zip(torch.split(hidden, size), torch.split(targets, size), strict=True)
    return torch.cat([checkpoint(chunk, h, ids, use_reentrant=False) for h, ids in parts])


class _TokenLogp(torch.autograd.Function):
    """log softmax(h W^T + b)[y] under a frozen head. The gradient, (W_y - sum_v p_v W_v) / temperature a token, is taken
    along forward, so that no logits are kept or computed twice."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, temperature: float, size: int
    ) -> Tensor:
        values, slopes = [], []
        for h, ids in zip(torch.split(hidden, size), torch.split(targets, size), strict=True):
            logp = log_softmax(linear(h, weight, bias), temperature)
            values.append(logp.gather(-1, ids[:, None])[:, 0])
            if ctx.needs_input_grad[0]:
                mean = linear(logp.exp_().to(weight.dtype), weight.T)
                slopes.append((weight[ids] - mean).div_(temperature or 1.0))
        if slopes:
            ctx.save_for_backward(torch.cat(slopes))
        return torch.cat(values)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None, None, None]:
        (slopes,) = ctx.saved_tensors
        return (grads[0][:, None] * slopes).to(slopes.dtype), None, None, None, None, None
