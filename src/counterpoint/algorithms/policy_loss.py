"""Clipped policy-gradient losses over sampled tokens: GSPO, GSPO-token, GRPO, Dr. GRPO, REINFORCE++; the k3 KL.

Every loss is a sum over rows divided by `denominator`, the number of contributing sequences in the *whole* batch, so
the gradients of micro-batches add up to the gradient of the batch for every split. Positions outside `mask` add exactly
0 to value and gradient, whatever they hold (nan and inf included); rows without a token add nothing.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

Stats = dict[str, Tensor]


def gspo(
    logp: Float[Tensor, "B T"],
    old_logp: Float[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    advantage: Float[Tensor, " B"],
    *,
    clip_low: float,
    clip_high: float,
    denominator: float,
    log_ratio_clamp: float | None = 2.0,
) -> tuple[Float[Tensor, ""], Stats]:
    """Group sequence policy optimization (arXiv 2507.18071, eq. 5 to 7).

    s_i  = exp( (1/|y_i|) sum_t [ log pi(y_it) - log pi_old(y_it) ] )
    loss = -(1/denominator) sum_i min( s_i A_i, clip(s_i, 1 - clip_low, 1 + clip_high) A_i )

    `log_ratio_clamp` bounds the *sequence mean* log-ratio (TRACER: 2). A clamp per token would break the cancellation
    of opposite tokens; no clamp (None) lets exp overflow.
    """
    difference = _masked_difference(logp, old_logp, mask)
    ratio = torch.exp(_clamp(difference.sum(-1) / _lengths(mask), log_ratio_clamp))
    surrogate, clipped = _clipped_surrogate(ratio, advantage, clip_low, clip_high)
    rows = mask.any(-1)
    loss = -torch.where(rows, surrogate, 0.0).sum() / denominator
    return loss, _stats(ratio, clipped, rows, difference, mask)


def gspo_token(
    logp: Float[Tensor, "B T"],
    old_logp: Float[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    advantage: Float[Tensor, " B"] | Float[Tensor, "B T"],
    *,
    clip_low: float,
    clip_high: float,
    denominator: float,
    log_ratio_clamp: float | None = 2.0,
) -> tuple[Float[Tensor, ""], Stats]:
    """GSPO-token (arXiv 2507.18071, eq. 13 to 14): the sequence ratio, with an advantage of its own for each token.

    s_it = sg[s_i] pi(y_it) / sg[pi(y_it)]        sg: stop gradient
    loss = -(1/denominator) sum_i (1/|y_i|) sum_t min( s_it A_it, clip(s_it, 1 - clip_low, 1 + clip_high) A_it )

    With one advantage per row it has the value and the gradient of `gspo`.
    """
    difference = _masked_difference(logp, old_logp, mask)
    mean = difference.sum(-1) / _lengths(mask)
    clamped = _clamp(mean, log_ratio_clamp)
    moving = torch.where((clamped == mean)[:, None], difference - difference.detach(), 0.0)
    ratio = torch.exp(clamped.detach()[:, None] + moving)
    advantages = advantage if advantage.ndim == 2 else advantage[:, None].expand_as(logp)
    surrogate, clipped = _clipped_surrogate(ratio, torch.where(mask, advantages, 0.0), clip_low, clip_high)
    loss = -_sequence_means(surrogate, mask).sum() / denominator
    return loss, _stats(ratio, clipped, mask, difference, mask)


def grpo(
    logp: Float[Tensor, "B T"],
    old_logp: Float[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    advantage: Float[Tensor, " B"],
    *,
    clip_low: float,
    clip_high: float,
    denominator: float,
    log_ratio_clamp: float | None = 20.0,
    dual_clip: float | None = None,
) -> tuple[Float[Tensor, ""], Stats]:
    """Group relative policy optimization (arXiv 2402.03300, eq. 3), token ratios, mean over each sequence.

    r_it = pi(y_it) / pi_old(y_it)
    loss = -(1/denominator) sum_i (1/|y_i|) sum_t min( r_it A_i, clip(r_it, 1 - clip_low, 1 + clip_high) A_i )

    `dual_clip` c (arXiv 1912.09729) bounds rows with A < 0 from below by c A. The clamp acts on each token.
    """
    ratio, difference = _token_ratio(logp, old_logp, mask, log_ratio_clamp)
    surrogate, clipped = _clipped_surrogate(ratio, advantage[:, None].expand_as(ratio), clip_low, clip_high)
    if dual_clip is not None:
        floor = (dual_clip * advantage)[:, None].expand_as(ratio)
        surrogate = torch.where((advantage < 0)[:, None], torch.maximum(surrogate, floor), surrogate)
    loss = -_sequence_means(surrogate, mask).sum() / denominator
    return loss, _stats(ratio, clipped, mask, difference, mask)


def dr_grpo(
    logp: Float[Tensor, "B T"],
    old_logp: Float[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    advantage: Float[Tensor, " B"],
    *,
    clip_low: float,
    clip_high: float,
    denominator: float,
    max_tokens: float,
    log_ratio_clamp: float | None = 20.0,
) -> tuple[Float[Tensor, ""], Stats]:
    """Dr. GRPO (arXiv 2503.20783, sec. 3.2): GRPO without the division by the length of the reply.

    loss = -(1/denominator) sum_i (1/max_tokens) sum_t min( r_it A_i, clip(r_it, 1 - clip_low, 1 + clip_high) A_i )

    `max_tokens` is a constant of the run (the generation limit). Its other half, advantages without division by the
    group's std, is the caller's choice (`advantage.py`).
    """
    ratio, difference = _token_ratio(logp, old_logp, mask, log_ratio_clamp)
    surrogate, clipped = _clipped_surrogate(ratio, advantage[:, None].expand_as(ratio), clip_low, clip_high)
    loss = -torch.where(mask, surrogate, 0.0).sum() / (max_tokens * denominator)
    return loss, _stats(ratio, clipped, mask, difference, mask)


def reinforce_pp(
    logp: Float[Tensor, "B T"],
    old_logp: Float[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    advantage: Float[Tensor, " B"],
    *,
    clip_low: float,
    clip_high: float,
    denominator: float,
    ref_logp: Float[Tensor, "B T"] | None = None,
    kl_weight: float = 0.0,
    log_ratio_clamp: float | None = 20.0,
) -> tuple[Float[Tensor, ""], Stats]:
    """REINFORCE++ (arXiv 2501.03262): token ratios, the KL penalty inside the reward, no critic.

    A_it = A_i - kl_weight sum_{u >= t} [ log pi_old(y_iu) - log pi_ref(y_iu) ]
    loss = -(1/denominator) sum_i (1/|y_i|) sum_t min( r_it A_it, clip(r_it, 1 - clip_low, 1 + clip_high) A_it )

    `advantage` is standardised over the whole batch (`advantage.batch_standardise`) by the caller, before the KL term
    is taken off. With `kl_weight` 0 the loss is `grpo`'s: the two differ in the advantage alone.
    """
    ratio, difference = _token_ratio(logp, old_logp, mask, log_ratio_clamp)
    advantages = advantage[:, None].expand_as(ratio)
    if ref_logp is not None:
        drift = _masked_difference(old_logp, ref_logp, mask).detach()
        advantages = advantages - kl_weight * drift.flip(-1).cumsum(-1).flip(-1)
    surrogate, clipped = _clipped_surrogate(ratio, advantages, clip_low, clip_high)
    loss = -_sequence_means(surrogate, mask).sum() / denominator
    return loss, _stats(ratio, clipped, mask, difference, mask)


def kl(
    logp: Float[Tensor, "B T"],
    ref_logp: Float[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    *,
    denominator: float,
) -> Float[Tensor, ""]:
    """The k3 estimate of KL(pi || pi_ref) on tokens sampled from pi (arXiv 2402.03300, eq. 4), mean over each sequence.

    d_t = log pi_ref(y_t) - log pi(y_t);   k3 = exp(d_t) - d_t - 1 >= 0, and 0 where the policies agree
    """
    d = _masked_difference(ref_logp, logp, mask)
    return _sequence_means(torch.expm1(d) - d, mask).sum() / denominator


def contributing(mask: Bool[Tensor, "B T"]) -> int:
    """Rows with at least one token: what `denominator` counts, over the whole batch; dropped rows do not dilute."""
    return int(mask.any(-1).sum())


def _masked_difference(a: Tensor, b: Tensor, mask: Tensor) -> Tensor:
    """a - b inside the mask, exactly 0 with gradient exactly 0 outside: selected, never multiplied."""
    return torch.where(mask, a, 0.0) - torch.where(mask, b, 0.0)


def _lengths(mask: Tensor) -> Tensor:
    return mask.sum(-1).clamp(min=1)


def _sequence_means(values: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, values, 0.0).sum(-1) / _lengths(mask)


def _clamp(log_ratio: Tensor, bound: float | None) -> Tensor:
    return log_ratio if bound is None else log_ratio.clamp(-bound, bound)


def _token_ratio(logp: Tensor, old_logp: Tensor, mask: Tensor, clamp: float | None) -> tuple[Tensor, Tensor]:
    difference = _masked_difference(logp, old_logp, mask)
    return torch.exp(_clamp(difference, clamp)), difference


def _clipped_surrogate(ratio: Tensor, advantage: Tensor, low: float, high: float) -> tuple[Tensor, Tensor]:
    """min(r A, clip(r) A), and where the clip holds the gradient back."""
    plain = ratio * advantage
    surrogate = torch.minimum(plain, ratio.clamp(1 - low, 1 + high) * advantage)
    return surrogate, ((ratio > 1 + high) & (advantage > 0)) | ((ratio < 1 - low) & (advantage < 0))


@torch.no_grad()
def _stats(ratio: Tensor, clipped: Tensor, counted: Tensor, difference: Tensor, mask: Tensor) -> Stats:
    """Means over what the ratio is defined on (rows for GSPO, tokens otherwise); "counted" and "tokens" weigh them.

    approx_kl is k3 of KL(pi_old || pi) over tokens; its log-ratios are cut at +/-20 to stay finite.
    """
    total, tokens = counted.sum().clamp(min=1), mask.sum().clamp(min=1)
    d = difference.clamp(-20.0, 20.0)
    return {
        "ratio_mean": torch.where(counted, ratio, 0.0).sum() / total,
        "ratio_max": torch.where(counted, ratio, 0.0).max() if ratio.numel() else ratio.new_zeros(()),
        "clip_fraction": (clipped & counted).sum() / total,
        "approx_kl": torch.where(mask, torch.expm1(d) - d, 0.0).sum() / tokens,
        "counted": counted.sum(),
        "tokens": mask.sum(),
    }
