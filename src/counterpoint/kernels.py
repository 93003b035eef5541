"""The linear product on the CPU in float32: by oneDNN where the processor has AVX-512, by MKL elsewhere.

torch itself always takes MKL, which keeps to AVX2 on processors that are not Intel's: half the rate. Few rows of a large weight
are bound by how fast the weight is read, and oneDNN reads one that was put into its own order faster (`Packed`). Outputs agree
up to rounding.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

_MKLDNN: bool = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")  # type: ignore[no-untyped-call]
ONEDNN: bool = _MKLDNN and torch.backends.cpu.get_cpu_capability().startswith("AVX512")
PACKS: bool = _MKLDNN and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
BLOCK = 32
"""oneDNN compiles a kernel for every shape it meets, and keeps it: only multiples of this many rows are shown to it."""
LARGEST = 512
LARGE_WEIGHT = 1 << 18
"""From this many weights on fewer rows than a block are worth a block."""
FEW = 64
"""Up to this many rows MKL multiplies a large weight faster as W x^T, copying the small result included."""
PACKED_BLOCK = 8
"""Packed weights meet multiples of this many rows only."""


def linear(
    x: Float[Tensor, "*N in"], weight: Float[Tensor, "out in"], bias: Float[Tensor, " out"] | None = None
) -> Float[Tensor, "*N out"]:
    """x W^T + b, without a gradient."""
    flat = x.reshape(-1, x.shape[-1])
    large = weight.numel() >= LARGE_WEIGHT
    if not (x.device.type == "cpu" and x.dtype == weight.dtype == torch.float32):
        return F.linear(x, weight, bias)
    if not ONEDNN:
        return (
            _transposed(flat, weight, bias).view(*x.shape[:-1], -1)
            if large and len(flat) <= FEW
            else F.linear(x, weight, bias)
        )
    if len(flat) < BLOCK and not large:
        return F.linear(x, weight, bias)
    if len(flat) <= LARGEST:
        return _padded(flat, BLOCK, weight, bias).view(*x.shape[:-1], -1)
    out = flat.new_empty(len(flat), len(weight))
    for part, rows in zip(torch.split(out, LARGEST), torch.split(flat, LARGEST), strict=True):
        part.copy_(_padded(rows, BLOCK, weight, bias))
    return out.view(*x.shape[:-1], -1)


class Packed:
    """Frozen weights of one input, end to end; where they are large also as a copy in oneDNN's own order, for few rows."""

    def __init__(
        self, weights: Sequence[Float[Tensor, "out in"]], bias: Float[Tensor, " sum_out"] | None = None
    ) -> None:
        self.weights, self.bias = weights, bias
        whole = weights[0] if len(weights) == 1 else torch.cat(list(weights))
        fits = whole.device.type == "cpu" and whole.dtype == torch.float32 and whole.numel() >= LARGE_WEIGHT
        self.own: Tensor | None = torch.ops.mkldnn._reorder_linear_weight(whole, BLOCK) if PACKS and fits else None

    def __call__(self, x: Float[Tensor, "N in"]) -> Float[Tensor, "N sum_out"]:
        """x W^T + b of every weight, without a gradient."""
        if self.own is not None and len(x) <= FEW:
            return _padded(x, PACKED_BLOCK, self.own, self.bias)
        parts = [linear(x, weight) for weight in self.weights]
        out = parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)
        return out if self.bias is None else out.add_(self.bias)


def _padded(x: Tensor, block: int, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The product of whole blocks of rows."""
    missing = -len(x) % block
    return _onednn(F.pad(x, (0, 0, 0, missing)) if missing else x, weight, bias)[: len(x)]


def _onednn(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    out: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return out


def _transposed(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    out = (weight @ x.T).T.contiguous()
    return out if bias is None else out.add_(bias)
