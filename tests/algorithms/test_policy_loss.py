"""Policy losses against hand-worked vectors, and the faults other implementations had (G1 to G8, T1)."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.algorithms import policy_loss
from counterpoint.algorithms.policy_loss import contributing, dr_grpo, grpo, gspo, gspo_token, kl, reinforce_pp

CLIP = {"clip_low": 0.2, "clip_high": 0.2}
LOSSES = {
    "gspo": gspo,
    "gspo_token": gspo_token,
    "grpo": grpo,
    "dr_grpo": lambda *args, **kwargs: dr_grpo(*args, **kwargs, max_tokens=8),
    "reinforce_pp": reinforce_pp,
}


def tensor(*rows):
    return torch.tensor(rows, dtype=torch.float64)


def batch(rows=6, tokens=5, seed=0, shift=0.3):
    """Rows of different lengths; old and new policies near each other."""
    rng = torch.Generator().manual_seed(seed)
    old = -torch.rand(rows, tokens, generator=rng, dtype=torch.float64) * 3
    logp = old + shift * torch.randn(rows, tokens, generator=rng, dtype=torch.float64)
    lengths = torch.randint(1, tokens + 1, (rows,), generator=rng)
    mask = torch.arange(tokens)[None, :] < lengths[:, None]
    return logp, old, mask, torch.randn(rows, generator=rng, dtype=torch.float64)


def loss_and_grad(loss, logp, *args, **kwargs):
    leaf = logp.clone().requires_grad_()
    value, stats = loss(leaf, *args, **kwargs)
    value.backward()
    return value.item(), leaf.grad, stats


def test_gspo_clipping_oracle():
    # s = e^-.4, e^.4, e^-.4, e^.4 = .67032, 1.49182, .67032, 1.49182; band [.8, 1.2]; A = -1, 1, 1, -1
    # -min: .8, -1.2, -.67032, 1.49182; mean of the four = .105376
    # rows 0 and 1 are pushed further out and get no gradient; rows 2 and 3 get -s A / 4 = -.16758, .37296
    shifts = tensor(-0.4, 0.4, -0.4, 0.4)[:, None]
    args = (torch.zeros(4, 1, dtype=torch.float64), torch.ones(4, 1, dtype=torch.bool), tensor(-1.0, 1.0, 1.0, -1.0))
    value, grad, stats = loss_and_grad(gspo, shifts, *args, **CLIP, denominator=4)
    assert value == pytest.approx(0.105376, abs=5e-7)
    assert grad[:, 0].tolist() == pytest.approx([0.0, 0.0, -0.16758, 0.37296], abs=5e-6)
    assert stats["clip_fraction"].item() == 0.5
    assert stats["ratio_max"].item() == pytest.approx(math.exp(0.4))
    assert stats["ratio_mean"].item() == pytest.approx((2 * math.exp(0.4) + 2 * math.exp(-0.4)) / 4)


@pytest.mark.parametrize("name", ["gspo", "gspo_token"])
def test_gspo_on_policy(name):
    """Section 12: s = 1 and dL/dlogp = -A_i / (N |y_i|) at every token."""
    logp, _, mask, advantage = batch()
    _, grad, stats = loss_and_grad(LOSSES[name], logp, logp, mask, advantage, **CLIP, denominator=6)
    expected = torch.where(mask, -advantage[:, None] / (6 * mask.sum(-1, keepdim=True)), 0.0)
    torch.testing.assert_close(grad, expected, rtol=0, atol=1e-15)
    assert stats["ratio_mean"].item() == stats["ratio_max"].item() == 1.0
    assert stats["approx_kl"].item() == 0.0


def test_gspo_equals_gspo_token():
    """G5: same loss, same gradient, to rounding; clipped rows and clamped rows included."""
    for seed, shift in [(0, 0.1), (1, 0.5), (2, 4.0)]:
        args = batch(seed=seed, shift=shift)
        a, grad_a, _ = loss_and_grad(gspo, *args, **CLIP, denominator=6)
        b, grad_b, _ = loss_and_grad(gspo_token, *args, **CLIP, denominator=6)
        assert a == pytest.approx(b, abs=1e-14)
        torch.testing.assert_close(grad_a, grad_b, rtol=0, atol=1e-15)


def test_gspo_token_takes_an_advantage_per_token():
    logp, _, mask, _ = batch()
    advantage = torch.randn(6, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(9))
    _, grad, _ = loss_and_grad(gspo_token, logp, logp, mask, advantage, **CLIP, denominator=6)
    torch.testing.assert_close(grad, torch.where(mask, -advantage / (6 * mask.sum(-1, keepdim=True)), 0.0))


def test_g1_sequence_ratio_with_token_sum_is_another_loss():
    """G1, G5: GSPO means over tokens first; a token sum (DAPO's aggregation) weighs long rows more and cannot pass."""
    logp, old, mask, advantage = batch(shift=0.02)
    value, _, _ = loss_and_grad(gspo, logp, old, mask, advantage, **CLIP, denominator=6)
    delta = torch.where(mask, logp - old, 0.0)
    ratio = (delta.sum(-1) / mask.sum(-1)).exp()
    by_hand = -(ratio * advantage).mean().item()
    token_mean = -((ratio * advantage) * mask.sum(-1)).sum().item() / mask.sum().item()
    assert value == pytest.approx(by_hand, abs=1e-15)
    assert abs(value - token_mean) > 0.05


def test_g2_mean_form_on_a_long_sequence():
    """G2: 2800 tokens each .001 lower: exp(mean) = .9990, not exp(sum) = .06."""
    old = torch.full((1, 2800), -1.0, dtype=torch.float64)
    _, _, stats = loss_and_grad(
        gspo, old - 0.001, old, torch.ones(1, 2800, dtype=torch.bool), tensor(1.0), **CLIP, denominator=1
    )
    assert stats["ratio_mean"].item() == pytest.approx(math.exp(-0.001), abs=1e-9)


def test_g3_opposite_tokens_cancel_and_extremes_stay_finite():
    old, mask = torch.zeros(1, 2, dtype=torch.float64), torch.ones(1, 2, dtype=torch.bool)
    _, _, stats = loss_and_grad(gspo, tensor([100.0, -100.0]), old, mask, tensor(1.0), **CLIP, denominator=1)
    assert stats["ratio_mean"].item() == 1.0
    value, grad, _ = loss_and_grad(gspo, tensor([800.0, 800.0]), old, mask, tensor(-1.0), **CLIP, denominator=1)
    assert value == pytest.approx(math.exp(2))  # the sequence mean is clamped to 2
    assert grad.tolist() == [[0.0, 0.0]]
    loose = {**CLIP, "denominator": 1, "log_ratio_clamp": None}
    value, grad, _ = loss_and_grad(gspo, tensor([800.0, 800.0]), old, mask, tensor(-1.0), **loose)
    assert math.isinf(value)
    assert torch.isinf(grad).all()


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("junk", [float("nan"), float("inf"), -float("inf"), 1e30])
def test_g4_masked_positions_change_nothing(name, junk):
    """G4: whatever stands at masked positions (rows without a token too), value stays, gradient is exactly 0."""
    logp, old, mask, advantage = batch()
    mask[3] = False
    dirty, dirty_old = torch.where(mask, logp, junk), torch.where(mask, old, -junk)
    clean = loss_and_grad(LOSSES[name], logp, old, mask, advantage, **CLIP, denominator=5)
    spoilt = loss_and_grad(LOSSES[name], dirty, dirty_old, mask, advantage, **CLIP, denominator=5)
    assert spoilt[0] == clean[0]
    assert torch.equal(spoilt[1], clean[1])
    assert (spoilt[1][~mask] == 0).all()
    assert all(torch.equal(spoilt[2][key], clean[2][key]) for key in clean[2])
    assert torch.isfinite(spoilt[1]).all()


def test_g4_kl_ignores_masked_positions():
    logp, ref, mask, _ = batch()
    leaf = torch.where(mask, logp, math.nan).requires_grad_()
    value = kl(leaf, torch.where(mask, ref, math.inf), mask, denominator=6)
    value.backward()
    assert value.item() == kl(logp, ref, mask, denominator=6).item()
    assert (leaf.grad[~mask] == 0).all()
    assert torch.isfinite(leaf.grad).all()


def test_g6_kl_by_hand():
    """G6: log-ratios new - old = (ln 2, 0 | -ln 2): k3 of KL(old||new) is 2-1-ln2 = .306853, 0, .5-1+ln2 = .193147."""
    old = torch.zeros(2, 2, dtype=torch.float64)
    logp = tensor([math.log(2), 0.0], [-math.log(2), 5.0])
    mask = torch.tensor([[True, True], [True, False]])
    for name in LOSSES:
        _, _, stats = loss_and_grad(LOSSES[name], logp, old, mask, tensor(1.0, 1.0), **CLIP, denominator=2)
        assert stats["approx_kl"].item() == pytest.approx((0.3068528 + 0.0 + 0.1931472) / 3, abs=1e-6)
    # kl(pi || ref) has d = ref - pi = (-ln 2, 0 | ln 2): .193147, 0, .306853; mean of each row, then of the rows
    assert kl(logp, old, mask, denominator=2).item() == pytest.approx((0.1931472 / 2 + 0.3068528) / 2, abs=1e-6)
    assert kl(old, old, mask, denominator=2).item() == 0.0


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=6), st.lists(st.floats(-5, 5), min_size=6, max_size=6))
def test_kl_is_never_negative(a, b):
    logp, ref = tensor(a), tensor(b[: len(a)])
    assert kl(logp, ref, torch.ones_like(logp, dtype=torch.bool), denominator=1).item() >= 0


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("sizes", [(6,), (1, 5), (2, 2, 2), (3, 1, 2), (1,) * 6])
def test_g7_every_split_gives_the_same_gradient(name, sizes):
    """G7: micro-batches padded to widths of their own, accumulated: same loss and gradient."""
    args = batch(seed=4)
    whole, grad, _ = loss_and_grad(LOSSES[name], *args, **CLIP, denominator=6)
    total, parts = 0.0, []
    for piece in zip(*(torch.split(x, sizes) for x in args), strict=True):
        width = int(piece[2].sum(-1).max())
        cut = [x[:, :width] if x.ndim == 2 else x for x in piece]
        value, part, _ = loss_and_grad(LOSSES[name], *cut, **CLIP, denominator=6)
        total += value
        parts.append(torch.nn.functional.pad(part, (0, 5 - width)))
    assert total == pytest.approx(whole, abs=1e-12)
    torch.testing.assert_close(torch.cat(parts), grad, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", LOSSES)
def test_t1_denominator_counts_contributing_rows(name):
    """T1: rows masked out (truncated, say) neither add to the loss nor dilute it."""
    logp, old, mask, advantage = batch(seed=5)
    mask[1] = mask[4] = False
    keep = [0, 2, 3, 5]
    assert contributing(mask) == 4
    a = loss_and_grad(LOSSES[name], logp, old, mask, advantage, **CLIP, denominator=contributing(mask))
    b = loss_and_grad(LOSSES[name], logp[keep], old[keep], mask[keep], advantage[keep], **CLIP, denominator=4)
    assert a[0] == pytest.approx(b[0], abs=1e-15)
    torch.testing.assert_close(a[1][keep], b[1], rtol=0, atol=1e-15)


def test_grpo_by_hand():
    # ratios 2, 1 | .5: A = 1 | -1; band [.8, 1.2]. Row 0: (min(2, 1.2) + 1) / 2 = 1.1; row 1: min(-.5, -.8) = -.8
    # loss = -(1.1 - .8) / 2 = -.15; gradients: clipped token 0, then -1/(2*2) = -.25; row 1 clipped 0
    logp, old = tensor([math.log(2), 0.0], [math.log(0.5), 9.0]), torch.zeros(2, 2, dtype=torch.float64)
    mask = torch.tensor([[True, True], [True, False]])
    value, grad, stats = loss_and_grad(grpo, logp, old, mask, tensor(1.0, -1.0), **CLIP, denominator=2)
    assert value == pytest.approx(-0.15)
    assert grad.tolist() == [[0.0, -0.25], [0.0, 0.0]]
    assert stats["clip_fraction"].item() == pytest.approx(2 / 3)
    assert stats["tokens"].item() == 3
    # Dr. GRPO, max_tokens 4: -(1.2 + 1 - .8) / (4 * 2) = -.175
    value, _, _ = loss_and_grad(dr_grpo, logp, old, mask, tensor(1.0, -1.0), **CLIP, denominator=2, max_tokens=4)
    assert value == pytest.approx(-0.175)


def test_dual_clip_bounds_negative_rows():
    # ratio 10, A = -1: plain loss 10; dual clip 3 holds it at 3, with no gradient. A = +1 is not touched.
    args = (torch.zeros(1, 1, dtype=torch.float64), torch.ones(1, 1, dtype=torch.bool))
    for sign, expected in [(-1.0, 3.0), (1.0, -1.2)]:
        value, grad, _ = loss_and_grad(
            grpo, tensor([math.log(10)]), *args, tensor(sign), **CLIP, denominator=1, dual_clip=3.0
        )
        assert value == pytest.approx(expected)
        assert grad.tolist() == [[0.0]]
    value, _, _ = loss_and_grad(grpo, tensor([math.log(10)]), *args, tensor(-1.0), **CLIP, denominator=1)
    assert value == pytest.approx(10.0)


def test_reinforce_pp_puts_the_kl_in_the_reward():
    # old - ref = (.1, .2, .3): reward-to-go of the penalty .6, .5, .3; A = 1, beta = .5: A_t = .7, .75, .85
    old, mask = torch.zeros(1, 3, dtype=torch.float64), torch.ones(1, 3, dtype=torch.bool)
    ref = tensor([-0.1, -0.2, -0.3])
    value, grad, _ = loss_and_grad(
        reinforce_pp, old, old, mask, tensor(1.0), **CLIP, denominator=1, ref_logp=ref, kl_weight=0.5
    )
    assert value == pytest.approx(-(0.7 + 0.75 + 0.85) / 3)
    assert grad[0].tolist() == pytest.approx([-0.7 / 3, -0.75 / 3, -0.85 / 3])


def test_on_policy_every_loss_is_the_policy_gradient():
    """At ratio 1 the gradient is -A grad log pi: no clip, no clamp acts."""
    logp, _, mask, advantage = batch(seed=7)
    for name, weight in [
        ("grpo", 1 / mask.sum(-1, keepdim=True)),
        ("reinforce_pp", 1 / mask.sum(-1, keepdim=True)),
        ("dr_grpo", 1 / 8),
    ]:
        _, grad, _ = loss_and_grad(LOSSES[name], logp, logp, mask, advantage, **CLIP, denominator=6)
        torch.testing.assert_close(grad, torch.where(mask, -advantage[:, None] * weight / 6, 0.0))


def test_no_rows_is_zero():
    empty = torch.zeros(0, 3, dtype=torch.float64)
    for name in LOSSES:
        value, _ = LOSSES[name](empty, empty, empty.bool(), torch.zeros(0, dtype=torch.float64), **CLIP, denominator=1)
        assert value.item() == 0.0


def test_annotations_are_checked():
    """The import hook of conftest.py is on: a wrong shape is refused where it enters."""
    logp, old, mask, advantage = batch()
    with pytest.raises(Exception, match="gspo"):
        gspo(logp, old[:, :2], mask, advantage, **CLIP, denominator=1)
    assert "jaxtyping" in repr(policy_loss.__loader__)
