"""Drawing one token a row, each row from its own keyed stream of uniforms."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from counterpoint.records import Sampling

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def uniforms(seeds: Int[np.ndarray, " R"], steps: Int[np.ndarray, " R"]) -> Float[np.ndarray, " R"]:
    """The draw number `steps[r]` of stream `seeds[r]`, in [0, 1): splitmix64 of seed + (step + 1) * golden ratio."""
    with np.errstate(over="ignore"):
        x = seeds.astype(np.uint64) + (steps.astype(np.uint64) + np.uint64(1)) * _GOLDEN
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x ^= x >> np.uint64(31)
    return np.asarray((x >> np.uint64(11)).astype(np.float64) * 2.0**-53)


def log_softmax(logits: Float[Tensor, "*B V"], temperature: float) -> Float[Tensor, "*B V"]:
    """log pi at the sampling temperature, in float32; the one formula engine and learner share. Greedy reads as 1."""
    return torch.log_softmax(logits.float() / (temperature or 1.0), dim=-1)


def draw(
    logits: Float[Tensor, "R V"], u: Float[Tensor, " R"], sampling: Sampling
) -> tuple[Int[Tensor, " R"], Float[Tensor, " R"]]:
    """Token ids and their log-probabilities by inverse CDF, in float64 so that rounding seldom moves a draw; greedy at 0.

    With top_p or top_k the draw is from the truncated distribution, the log-probability from the full one.
    """
    logp = log_softmax(logits, sampling.temperature)
    if sampling.temperature == 0:
        ids = logits.argmax(dim=-1)
    else:
        cdf = _truncated(logp, sampling).double().exp().cumsum(dim=-1)
        total = cdf[:, -1:].contiguous()
        ids = torch.searchsorted(cdf, u.to(cdf.dtype)[:, None] * total, right=True)
        last = torch.searchsorted(cdf, total)  # the last token that has any mass: where rounding may lead past the end
        ids = torch.minimum(ids, last)[:, 0]
    return ids, logp.gather(-1, ids[:, None])[:, 0]


def _truncated(logp: Float[Tensor, "R V"], sampling: Sampling) -> Float[Tensor, "R V"]:
    if sampling.top_k:
        kth = logp.topk(min(sampling.top_k, logp.shape[-1]), dim=-1).values[:, -1:]
        logp = logp.masked_fill(logp < kth, -torch.inf)
    if sampling.top_p < 1:
        ordered, index = logp.sort(dim=-1, descending=True)
        before = ordered.exp().cumsum(dim=-1) - ordered.exp()
        drop = torch.zeros_like(logp, dtype=torch.bool).scatter(-1, index, before >= sampling.top_p)
        logp = logp.masked_fill(drop, -torch.inf)
    return logp
