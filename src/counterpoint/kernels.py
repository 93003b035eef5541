"""The linear product on the CPU in float32: by oneDNN, which uses AVX-512 on every processor that has it.

torch itself takes MKL here, which keeps to AVX2 on processors that are not Intel's: half the rate. Outputs agree up to rounding.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

ONEDNN: bool = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")  # type: ignore[no-untyped-call]
BLOCK = 32
"""oneDNN compiles a kernel for every shape it meets, and keeps it: only multiples of this many rows are shown to it."""
BLOCKS = (512, 256, 128, 64)


def linear(
    x: Float[Tensor, "*N in"], weight: Float[Tensor, "out in"], bias: Float[Tensor, " out"] | None = None
) -> Float[Tensor, "*N out"]:
    """x W^T + b, without a gradient."""
    flat = x.reshape(-1, x.shape[-1])
    if len(flat) < BLOCK or not (ONEDNN and x.device.type == "cpu" and x.dtype == weight.dtype == torch.float32):
        return F.linear(x, weight, bias)
    if len(flat) % BLOCK == 0 and len(flat) <= BLOCKS[0]:
        return _onednn(flat, weight, bias).view(*x.shape[:-1], -1)
    out = flat.new_empty(len(flat), len(weight))
    at = 0
    for size in BLOCKS:
        while len(flat) - at >= size:
            out[at : at + size] = _onednn(flat[at : at + size], weight, bias)
            at += size
    if at < len(flat):
        out[at:] = F.linear(flat[at:], weight, bias)
    return out.view(*x.shape[:-1], -1)


def _onednn(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    out: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return out
