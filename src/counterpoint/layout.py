"""Token sequences that share their beginnings, end to end without padding: every beginning once, then every continuation.

Learning (teacher_forced.py) takes prompts as beginnings and replies as continuations; the prefill of generation
(engines/fused.py) what several prompts begin with alike, and the rest of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the tokens lie: B beginnings of at most P tokens, S continuations of at most T."""

    ids: Int[Tensor, " N"]
    positions: Int[Tensor, " N"]
    beginning_at: Int[Tensor, " N1"]  # place of each token of the first part in [B * P]
    continuation_at: Int[Tensor, " N2"]  # and of the second part in [S * T]
    siblings: Int[Tensor, " B"]  # continuations of each beginning
    shape: tuple[int, int, int, int]  # B, P, S, T
    bias: Float[Tensor, "S 1 T P+T"]  # 0 where a continuation's token may look, -inf elsewhere
    whole: Int[Tensor, "S L"]  # the tokens of [beginning | continuation]; where one ends earlier, some token

    @classmethod
    def of(
        cls, beginnings: Sequence[Sequence[int]], continuations: Sequence[Sequence[int]], siblings: Sequence[int]
    ) -> Layout:
        """The first `siblings[0]` continuations go on from the first beginning, and so on; a beginning may be empty, a
        continuation may not."""
        row_of = np.repeat(np.arange(len(beginnings)), siblings)
        before, sizes = np.array([len(b) for b in beginnings]), np.array([len(c) for c in continuations])
        p, t = int(before.max()), int(sizes.max())
        own = [np.arange(n) for n in before], [np.arange(n) for n in sizes]
        beginning_at = np.concatenate([b * p + at for b, at in enumerate(own[0])])
        continuation_at = np.concatenate([s * t + at for s, at in enumerate(own[1])])
        shifted = [at + before[row] for at, row in zip(own[1], row_of, strict=True)]
        seen = np.concatenate(
            [
                np.broadcast_to((np.arange(p) < before[row_of][:, None])[:, None], (len(sizes), t, p)),
                np.broadcast_to(np.tri(t, dtype=bool), (len(sizes), t, t)),
            ],
            axis=2,
        )
        at, shared = np.arange((before[row_of] + sizes).max()), before[row_of][:, None]
        first = (before.cumsum() - before)[row_of][:, None], (before.sum() + sizes.cumsum() - sizes)[:, None]
        whole = np.where(at < shared, first[0] + at, first[1] + at - shared).clip(max=before.sum() + sizes.sum() - 1)
        return cls(
            torch.tensor([i for part in (*beginnings, *continuations) for i in part]),
            torch.from_numpy(np.concatenate([*own[0], *shifted])),
            torch.from_numpy(beginning_at),
            torch.from_numpy(continuation_at),
            torch.tensor(siblings),
            (len(beginnings), p, len(sizes), t),
            torch.zeros(seen.shape).masked_fill_(torch.from_numpy(~seen), -torch.inf)[:, None],
            torch.from_numpy(whole),
        )


def alike(sequences: Sequence[Sequence[int]]) -> list[tuple[int, list[int]]]:
    """Sequences grouped by what they begin with: how many tokens a group has in common, and which sequences it is of.

    Sorted, neighbours with at least h tokens in common are one group; h is such that the fewest tokens are left when every
    common beginning counts once. At least one token of every sequence stays its own; a sequence has at least one.
    """
    order = sorted(range(len(sequences)), key=lambda i: tuple(sequences[i]))
    common = [_common(sequences[a], sequences[b]) for a, b in pairwise(order)]
    best, saved = [(0, [i]) for i in order], 0
    for least in sorted({c for c in common if c}):
        groups = [(0, [order[0]])]
        for i, with_last in zip(order[1:], common, strict=True):
            shared, members = groups[-1]
            if with_last >= least:
                members.append(i)
                groups[-1] = min(shared or with_last, with_last), members
            else:
                groups.append((0, [i]))
        saving = sum(shared * (len(members) - 1) for shared, members in groups)
        if saving > saved:
            best, saved = groups, saving
    return best


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    """How many first tokens are equal, short of either's last."""
    most = max(0, min(len(a), len(b)) - 1)
    return next((i for i in range(most) if a[i] != b[i]), most)
