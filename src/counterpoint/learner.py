"""Samples in, better adapters out: minibatches -> loss -> one optimizer per adapter.

Siblings share their prompt: a row is [prompt | reply 1 | ... | reply G] under a mask in which each reply sees the prompt
and itself, so a prompt is run once, forward and backward. Rows of several adapters ride in one batch. Log-probabilities
are computed at reply positions only, in chunks of the vocabulary's size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import Field
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from counterpoint.algorithms import policy_loss
from counterpoint.engines.sampling import log_softmax
from counterpoint.errors import ConfigError
from counterpoint.hooks import Hook, load_hook
from counterpoint.models import Model
from counterpoint.records import Sample, Sampling
from counterpoint.rng import generator
from counterpoint.settings import Settings

Algorithm = Literal["gspo", "grpo", "dr_grpo", "reinforce_pp"]


class LearnerSettings(Settings):
    """How adapters learn from samples."""

    algorithm: Algorithm = "gspo"
    """Policy loss: gspo (sequence ratio), grpo, dr_grpo or reinforce_pp (token ratios)."""
    loss: Hook | None = None
    """A loss of your own: (logp, old_logp, mask, advantage, *, denominator) -> (loss, stats); replaces `algorithm`."""
    lr: float = Field(default=3e-4, gt=0)
    """Adam's learning rate."""
    minibatches: int = Field(default=4, ge=1)
    """Optimizer steps a batch is split into; from the second on the importance ratio differs from 1."""
    epochs: int = Field(default=1, ge=1)
    """Passes over a batch."""
    clip_low: float = Field(default=0.1, gt=0)
    """Ratios below 1 - clip_low are clipped."""
    clip_high: float = Field(default=0.1, gt=0)
    """Ratios above 1 + clip_high are clipped."""
    log_ratio_clamp: float = Field(default=2.0, gt=0)
    """Bound on the log-ratio before it is exponentiated."""
    grad_clip: float = Field(default=0.5, gt=0)
    """Largest gradient norm of one adapter."""
    kl: float = Field(default=0.0, ge=0)
    """Weight of KL(adapter || base); the reference is the adapter switched off."""
    token_budget: int = Field(default=8192, ge=64)
    """Tokens of one micro-batch; changes memory and speed, not gradients."""
    activation_checkpointing: bool = False
    """Recompute activations in the backward pass: less memory, more time."""


@dataclass(frozen=True, slots=True)
class _Row:
    """Siblings of one prompt under one adapter."""

    agent: str
    prompt: tuple[int, ...]
    samples: tuple[Sample, ...]

    @property
    def width(self) -> int:
        return len(self.prompt) + sum(len(s.token_ids) - 1 for s in self.samples)


class Learner:
    """Adam per adapter over one or several base models."""

    def __init__(
        self, models: Mapping[str, Model], *, settings: LearnerSettings, sampling: Sampling, seed: int
    ) -> None:
        self.models, self.settings, self.sampling, self.seed = dict(models), settings, sampling, seed
        self.steps = 0
        self.parameters = {agent: model.adapters.parameters(agent) for agent, model in models.items()}
        self.optimizers = {
            agent: torch.optim.Adam(parameters.values(), lr=settings.lr)
            for agent, parameters in self.parameters.items()
        }
        if settings.activation_checkpointing:
            for model in {id(m): m for m in models.values()}.values():
                _recompute_activations(model)

    def step(self, samples: Sequence[Sample]) -> dict[str, float]:
        """Several optimizer steps on one batch; metrics by role, and how many updates were refused."""
        meter = _Meter()
        rows = _rows(samples)
        for epoch in range(self.settings.epochs):
            order = generator(self.seed, "minibatch", self.steps, epoch).permutation(len(rows))
            count = min(self.settings.minibatches, len(rows))
            for k in range(count):
                self._update([rows[i] for i in order[k::count]], meter, first=k == 0 and epoch == 0)
        self.steps += 1
        return meter.means() | {"samples": float(len(samples)), "rows": float(len(rows))}

    def _update(self, rows: Sequence[_Row], meter: _Meter, *, first: bool) -> None:
        """One optimizer step of every adapter that has rows here."""
        present = sorted({row.agent for row in rows})
        for agent in present:
            for parameter in self.parameters[agent].values():
                parameter.requires_grad_(True)
                parameter.grad = None
        self.accumulate(rows, meter, first=first)
        for agent in present:
            parameters = list(self.parameters[agent].values())
            norm = torch.nn.utils.clip_grad_norm_(parameters, self.settings.grad_clip)
            if torch.isfinite(norm):
                self.optimizers[agent].step()
                meter.add(agent, "grad_norm", float(norm))
            meter.add(agent, "nonfinite_updates", float(not torch.isfinite(norm)))
            for parameter in parameters:
                parameter.requires_grad_(False)
                parameter.grad = None

    def accumulate(self, rows: Sequence[_Row], meter: _Meter, *, first: bool = False) -> None:
        """Add the gradients of one minibatch, whatever way it is split into micro-batches."""
        counts: dict[str, int] = {}
        for row in rows:
            counts[row.agent] = counts.get(row.agent, 0) + len(row.samples)
        for model in {id(self.models[row.agent]): self.models[row.agent] for row in rows}.values():
            own = [row for row in rows if self.models[row.agent] is model]
            for micro in _micro_batches(own, self.settings.token_budget):
                self._backward(model, micro, counts, meter, first)

    def _backward(
        self, model: Model, rows: Sequence[_Row], counts: Mapping[str, int], meter: _Meter, first: bool
    ) -> None:
        batch = _pack(rows, model)
        ref = None
        if self.settings.kl:
            with torch.no_grad():
                ref = self.logp(model, batch, torch.full_like(batch.adapter, -1))
        with model.adapters.routed(batch.adapter, live=True):  # the backward pass may run layers again
            logp = self._routed_logp(model, batch)
            self._loss_of(rows, batch, logp, ref, counts, meter, first).backward()

    def _loss_of(
        self,
        rows: Sequence[_Row],
        batch: _Packed,
        logp: Tensor,
        ref: Tensor | None,
        counts: Mapping[str, int],
        meter: _Meter,
        first: bool,
    ) -> Tensor:
        """The sum over adapters of their own mean losses; `counts` are their sequences in the whole minibatch."""
        old, mask = batch.old_logp, batch.mask
        total = logp.new_zeros(())
        for agent in sorted({row.agent for row in rows}):
            own = torch.tensor([s.agent == agent for row in rows for s in row.samples], device=logp.device)
            loss, stats = self._loss()(
                logp[own], old[own], mask[own], batch.advantage[own], denominator=float(counts[agent])
            )
            if ref is not None:
                penalty = policy_loss.kl(logp[own], ref[own], mask[own], denominator=float(counts[agent]))
                loss = loss + self.settings.kl * penalty
                meter.add(agent, "kl", float(penalty.detach()), mean=False)
            total = total + loss
            meter.add(agent, "loss", float(loss.detach()), mean=False)
            meter.stats(agent, stats)
            if first:
                gap = (logp[own].detach() - old[own]).abs().masked_fill(~mask[own], 0.0)
                meter.highest(agent, "on_policy_logp_gap", float(gap.max()))
        return total

    def _loss(self) -> Callable[..., tuple[Tensor, dict[str, Tensor]]]:
        s = self.settings
        if s.loss is not None:
            return load_hook(s.loss)
        options: dict[str, Any] = {
            "clip_low": s.clip_low, "clip_high": s.clip_high, "log_ratio_clamp": s.log_ratio_clamp,
        }  # fmt: skip
        if s.algorithm == "dr_grpo":
            options["max_tokens"] = float(self.sampling.max_new_tokens)
        function = getattr(policy_loss, s.algorithm)
        return lambda *args, **kw: function(*args, **options, **kw)

    def logp(self, model: Model, batch: _Packed, adapter: Tensor) -> Tensor:
        """log pi of every reply token at the sampling temperature, [N sequences, T], row b under adapter[b]."""
        with model.adapters.routed(adapter, live=True):
            return self._routed_logp(model, batch)

    def _routed_logp(self, model: Model, batch: _Packed) -> Tensor:
        hidden = model.hidden(batch.ids, batch.positions, batch.attention)
        picked = hidden[batch.row_of, batch.at]
        values = _token_logp(model, picked, batch.targets, self.sampling.temperature)
        return picked.new_zeros(batch.mask.shape, dtype=torch.float32).masked_scatter(batch.mask, values)

    # ---- state ---------------------------------------------------------------------------------------------------

    def save(self, folder: Path) -> None:
        """Adapters in PEFT's format and the optimizer's moments as safetensors."""
        for model in {id(m): m for m in self.models.values()}.values():
            model.adapters.save(folder / "adapters")
        tensors: dict[str, Tensor] = {}
        for agent, optimizer in self.optimizers.items():
            for name, parameter in self.parameters[agent].items():
                for key, value in optimizer.state.get(parameter, {}).items():
                    tensors[f"{agent}|{name}|{key}"] = value.detach().cpu().contiguous()
        tensors["steps"] = torch.tensor(self.steps)
        save_file(tensors, str(folder / "optimizer.safetensors"))

    def load(self, folder: Path) -> None:
        """Continue exactly where `save` stopped."""
        for model in {id(m): m for m in self.models.values()}.values():
            model.adapters.load(folder / "adapters")
        tensors = load_file(str(folder / "optimizer.safetensors"))
        self.steps = int(tensors.pop("steps"))
        for key, value in tensors.items():
            agent, name, moment = key.split("|")
            parameter = self.parameters[agent][name]
            place = value if moment == "step" else value.to(parameter.device)
            self.optimizers[agent].state[parameter][moment] = place


@dataclass(slots=True)
class _Packed:
    ids: Tensor  # [B, L]
    positions: Tensor  # [B, L]
    attention: Tensor  # [B, 1, L, L] bool
    adapter: Tensor  # [B]
    row_of: Tensor  # [M] row of every reply token's predictor
    at: Tensor  # [M] its column
    targets: Tensor  # [M]
    mask: Tensor  # [N, T] reply tokens of every sequence
    old_logp: Tensor  # [N, T]
    advantage: Tensor  # [N]


def _recompute_activations(model: Model) -> None:
    """Run every decoder layer under a checkpoint while gradients are on; with LoRA only the adapters need them."""
    for layer in model.base.base_model.layers:
        plain = layer.forward

        def forward(*args: Any, _plain: Any = plain, **kwargs: Any) -> Any:
            if not torch.is_grad_enabled():
                return _plain(*args, **kwargs)
            return checkpoint(_plain, *args, use_reentrant=False, **kwargs)

        layer.forward = forward


def _rows(samples: Sequence[Sample]) -> list[_Row]:
    """Siblings together, in order of first appearance."""
    found: dict[tuple[str, tuple[int, ...]], list[Sample]] = {}
    for sample in samples:
        if not sample.token_ids:
            raise ConfigError(f"a sample of {sample.agent} has no tokens; the engine must return at least EOS")
        found.setdefault((sample.agent, sample.prompt_ids), []).append(sample)
    return [_Row(agent, prompt, tuple(group)) for (agent, prompt), group in found.items()]


def _micro_batches(rows: Sequence[_Row], budget: int) -> Iterator[list[_Row]]:
    """Rows of similar width together, each batch within `budget` tokens, padding included (one row always fits)."""
    batch: list[_Row] = []
    for row in sorted(rows, key=lambda r: (-r.width, r.agent, r.prompt)):
        if batch and batch[0].width * (len(batch) + 1) > budget:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def _pack(rows: Sequence[_Row], model: Model) -> _Packed:
    width = max(row.width for row in rows)
    sequences = [s for row in rows for s in row.samples]
    longest = max(len(s.token_ids) for s in sequences)
    ids = torch.zeros(len(rows), width, dtype=torch.long)
    positions = torch.zeros_like(ids)
    segment = torch.full_like(ids, -1)  # 0 prompt, 1.. replies, -1 padding
    mask = torch.zeros(len(sequences), longest, dtype=torch.bool)
    old = torch.zeros(len(sequences), longest)
    row_of, at, targets = [], [], []
    n = 0
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
            targets += sample.token_ids
            mask[n, :t] = True
            old[n, :t] = torch.tensor(sample.old_logp)
            start += t - 1
            n += 1
    causal = torch.ones(width, width, dtype=torch.bool).tril()
    seen = (segment[:, None, :] == 0) | (segment[:, None, :] == segment[:, :, None])
    names = model.adapters.names
    device = model.device
    return _Packed(
        ids.to(device),
        positions.to(device),
        (causal & seen)[:, None].to(device),
        torch.tensor([names.index(row.agent) for row in rows], device=device),
        torch.tensor(row_of, device=device),
        torch.tensor(at, device=device),
        torch.tensor(targets, device=device),
        mask.to(device),
        old.to(device),
        torch.tensor([s.advantage for s in sequences], dtype=torch.float32, device=device),
    )


def _token_logp(model: Model, hidden: Tensor, targets: Tensor, temperature: float) -> Tensor:
    """log-probabilities of `targets` [M] from hidden states [M, H]; logits live only a chunk at a time."""

    def chunk(h: Tensor, ids: Tensor) -> Tensor:
        return log_softmax(model.head(h), temperature).gather(-1, ids[:, None])[:, 0]

    size = max(1, (1 << 24) // model.vocab_size)
    if len(hidden) <= size:
        return chunk(hidden, targets)
    parts = zip(hidden.split(size), targets.split(size), strict=True)
    return torch.cat([checkpoint(chunk, h, ids, use_reentrant=False) for h, ids in parts])


class _Meter:
    """Means of metrics by role, weighed by what they were counted over."""

    def __init__(self) -> None:
        self.sums: dict[str, float] = {}
        self.weights: dict[str, float] = {}
        self.peaks: dict[str, float] = {}

    def add(self, agent: str, name: str, value: float, *, weight: float = 1.0, mean: bool = True) -> None:
        key = f"{name}/{agent.split('/')[-1]}"
        self.sums[key] = self.sums.get(key, 0.0) + value * weight
        self.weights[key] = self.weights.get(key, 0.0) + weight if mean else 1.0

    def highest(self, agent: str, name: str, value: float) -> None:
        key = f"{name}/{agent.split('/')[-1]}"
        self.peaks[key] = max(self.peaks.get(key, -torch.inf), value)

    def stats(self, agent: str, stats: Mapping[str, Tensor]) -> None:
        weight = float(stats.get("counted", torch.tensor(1.0)))
        for name in ("ratio_mean", "clip_fraction", "approx_kl"):
            if name in stats:
                self.add(agent, name, float(stats[name]), weight=weight)
        if "ratio_max" in stats:
            self.highest(agent, "ratio_max", float(stats["ratio_max"]))

    def means(self) -> dict[str, float]:
        return {k: v / self.weights[k] if self.weights[k] else 0.0 for k, v in self.sums.items()} | self.peaks
