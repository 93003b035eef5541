"""The linear product on the CPU in float32: by oneDNN where the processor has AVX-512, by MKL elsewhere.

torch itself always takes MKL, which keeps to AVX2 on processors that are not Intel's: half the rate. Outputs agree up to
rounding.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

ONEDNN: bool = (
    torch.backends.cpu.get_cpu_capability().startswith("AVX512")
    and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    and hasattr(torch.ops.mkldnn, "_linear_pointwise")
)
BLOCK = 32
"""oneDNN compiles a kernel for every shape it meets, and keeps it: only multiples of this many rows are shown to it."""
LARGEST = 512
LARGE_WEIGHT = 1 << 18
"""From this many weights on fewer rows than a block are worth a block."""
FEW = 64
"""Up to this many rows MKL multiplies a large weight faster as W x^T, copying the small result included."""


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
        return _padded(flat, weight, bias).view(*x.shape[:-1], -1)
    out = flat.new_empty(len(flat), len(weight))
    for part, rows in zip(torch.split(out, LARGEST), torch.split(flat, LARGEST), strict=True):
        part.copy_(_padded(rows, weight, bias))
    return out.view(*x.shape[:-1], -1)


def _padded(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The product of at most LARGEST rows, as whole blocks."""
    missing = -len(x) % BLOCK
    return _onednn(F.pad(x, (0, 0, 0, missing)) if missing else x, weight, bias)[: len(x)]


def _onednn(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    out: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return out


def _transposed(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    out = (weight @ x.T).T.contiguous()
    return out if bias is None else out.add_(bias)
