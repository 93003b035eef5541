"""The written-out forward pass: every family it knows gives what transformers gives, merged or not, in any row order."""

import numpy as np
import pytest
import torch

from counterpoint import kernels
from counterpoint.engines.fused import FusedForward, _spans
from counterpoint.engines.hf import HFEngine, PlainForward
from counterpoint.kernels import BLOCK, FEW, LARGE_WEIGHT, Packed, linear
from counterpoint.llama import fits
from counterpoint.records import Message, Request, Sampling
from counterpoint.rng import fold
from tests.conftest import FAMILY_NAMES as NAMES


def asked(n):
    return [Request(NAMES[(i * 7) % 3], (Message("user", f"{i} + " * (1 + i % 5)),), "t", n) for i in range(13)]


@pytest.mark.parametrize(
    ("merged_mb", "large"), [(256, LARGE_WEIGHT), (0, LARGE_WEIGHT), (0, 0)], ids=["merged", "thin", "packed"]
)
@pytest.mark.parametrize("n", [1, 3])
def test_same_tokens_and_log_probabilities_as_transformers(family, merged_mb, large, n, monkeypatch):
    monkeypatch.setattr(kernels, "LARGE_WEIGHT", large)
    model = family()
    assert fits(model)
    fused = HFEngine(dict.fromkeys(NAMES, model), max_rows=12, merged_mb=merged_mb)
    plain = HFEngine(dict.fromkeys(NAMES, model), max_rows=12, fused=False)
    kinds = [type(next(iter(e.forwards.values()))) for e in (fused, plain)]
    assert kinds == [FusedForward, PlainForward]
    seeds = [fold(3, i) for i in range(13)]
    sampling = Sampling(temperature=0.8, max_new_tokens=12)
    for one, other in zip(
        fused.generate(asked(n), seeds=seeds, sampling=sampling),
        plain.generate(asked(n), seeds=seeds, sampling=sampling),
        strict=True,
    ):
        assert [c.token_ids for c in one] == [c.token_ids for c in other]
        for a, b in zip(one, other, strict=True):
            assert a.logprobs == pytest.approx(b.logprobs, abs=2e-5)


def test_new_weights_are_used_after_a_refresh_only(family):
    model = family()
    engine = HFEngine(dict.fromkeys(NAMES, model))
    ask = [Request("b/x", (Message("user", "1 + 2"),), "t", 4)]

    def replies():
        return [c.logprobs for c in engine.generate(ask, seeds=[1], sampling=Sampling(max_new_tokens=8))[0]]

    before = replies()
    with torch.no_grad():
        model.adapters.parameters("b/x")["0.B"].add_(0.5)
    assert replies() == before
    engine.publish()
    assert replies() != before


def test_what_the_pass_does_not_know_is_left_to_transformers(family):
    assert not fits(family(targets=("q_proj", "lm_head")))
    model = family()
    model.base.config.hidden_act = "gelu"
    assert not fits(model)
    assert isinstance(next(iter(HFEngine({"a/x": model}).forwards.values())), PlainForward)


def test_rows_are_sorted_by_adapter():
    order, spans = _spans(np.array([2, 2, 0, 2]), 3)
    assert spans == [(0, 0, 3), (2, 3, 12)]
    assert order.tolist() == [2, 0, 1, 3]


@pytest.mark.parametrize("onednn", [True, False])
@pytest.mark.parametrize("rows", [1, BLOCK - 1, BLOCK, FEW, 3 * BLOCK, 512, 513, 1111])
@pytest.mark.parametrize("width", [40, LARGE_WEIGHT // 24 + 1])
@pytest.mark.parametrize("bias", [True, False])
def test_linear_is_the_linear_product(rows, width, bias, onednn, monkeypatch):
    """Whatever this processor takes."""
    monkeypatch.setattr(kernels, "ONEDNN", onednn and hasattr(torch.ops.mkldnn, "_linear_pointwise"))
    draw = torch.Generator().manual_seed(rows)
    x, weight = torch.randn(rows, 24, generator=draw), torch.randn(width, 24, generator=draw)
    b = torch.randn(width, generator=draw) if bias else None
    torch.testing.assert_close(linear(x, weight, b), torch.nn.functional.linear(x, weight, b), atol=1e-5, rtol=1e-5)
    cube = x[None].expand(2, -1, -1)
    torch.testing.assert_close(linear(cube, weight, b)[1], linear(x, weight, b), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("large", [0, LARGE_WEIGHT])
@pytest.mark.parametrize("rows", [1, 8, 13, FEW, FEW + 1])
@pytest.mark.parametrize("bias", [True, False])
def test_packed_weights_are_the_linear_product(rows, bias, large, monkeypatch):
    monkeypatch.setattr(kernels, "LARGE_WEIGHT", large)
    draw = torch.Generator().manual_seed(rows)
    x, b = torch.randn(rows, 24, generator=draw), torch.randn(100, generator=draw) if bias else None
    weights = [torch.randn(n, 24, generator=draw) for n in (40, 60)]
    packed = Packed(weights, b)
    assert (packed.own is not None) == (kernels.PACKS and large == 0)
    torch.testing.assert_close(packed(x), torch.nn.functional.linear(x, torch.cat(weights), b), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(Packed(weights[:1])(x), torch.nn.functional.linear(x, weights[0]), atol=1e-5, rtol=1e-5)
