"""Samples in, better adapters out: minibatches -> loss -> one optimizer per adapter.

Rows are packed (packing.py); rows of several adapters ride in one batch, and every adapter's loss is the mean over its own
sequences of the whole minibatch, however that is split into micro-batches and over ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import Field
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from counterpoint.algorithms import policy_loss
from counterpoint.hooks import Hook, load_hook
from counterpoint.llama import fits
from counterpoint.models import Model, distinct
from counterpoint.packing import Row, Targets, micro_batches, pack, rows_of, targets_of, token_logp
from counterpoint.ranks import ALONE, Ranks
from counterpoint.records import Sample, Sampling
from counterpoint.rng import generator
from counterpoint.settings import Settings
from counterpoint.teacher_forced import TeacherForced

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
    token_budget: int = Field(default=4096, ge=64)
    """Tokens of one micro-batch; changes memory and speed, not gradients."""
    activation_checkpointing: bool = False
    """Recompute activations in the backward pass: less memory, more time."""
    fused: bool = True
    """Learn with the written-out forward and backward pass where the model allows it (Llama family, CPU, float32)."""


class Learner:
    """Adam per adapter over one or several base models."""

    def __init__(
        self,
        models: Mapping[str, Model],
        *,
        settings: LearnerSettings,
        sampling: Sampling,
        seed: int,
        exact_logprobs: bool = True,
        ranks: Ranks = ALONE,
    ) -> None:
        self.ranks = ranks
        self.models, self.settings, self.sampling, self.seed = dict(models), settings, sampling, seed
        self.exact_logprobs = exact_logprobs
        self.steps = 0
        self.parameters = {agent: model.adapters.parameters(agent) for agent, model in models.items()}
        self.optimizers = {
            agent: torch.optim.Adam(parameters.values(), lr=settings.lr)
            for agent, parameters in self.parameters.items()
        }
        self.written: dict[int, TeacherForced] = {}  # by id of the models that have a written-out pass
        for model in distinct(models):
            ranks.shard(model.base.base_model.layers, model.adapters.own())
            if settings.fused and not ranks.sharded and model.adapters.merges and fits(model):
                self.written[id(model)] = TeacherForced(model, recompute=settings.activation_checkpointing)
            elif settings.activation_checkpointing:
                _recompute_activations(model)

    def step(self, samples: Sequence[Sample]) -> dict[str, float]:
        """Several optimizer steps on one batch; metrics by role, and how many updates were refused."""
        meter = Meter()
        rows = rows_of(samples if self.exact_logprobs else self.rescored(samples, meter))
        for epoch in range(self.settings.epochs):
            order = generator(self.seed, "minibatch", self.steps, epoch).permutation(len(rows))
            count = min(self.settings.minibatches, len(rows))
            for k in range(count):
                self._update([rows[i] for i in order[k::count]], meter, first=k == 0 and epoch == 0)
        self.steps += 1
        meter = Meter.joined(self.ranks.gather(meter, "the learning of the others"))
        return meter.means() | {"samples": float(len(samples)), "rows": float(len(rows))}

    @torch.no_grad()
    def rescored(self, samples: Sequence[Sample], meter: Meter) -> list[Sample]:
        """The samples with old log-probabilities of this learner's own; meters how far off theirs were."""
        done: dict[int, Sample] = {}
        for model, micro in self._micro(rows_of(samples)):
            targets = targets_of(micro, model.device)
            logp = self.logp(model, micro, targets)
            gaps = (logp - targets.old_logp).abs()
            for sample, own, gap in zip((s for row in micro for s in row.samples), logp, gaps, strict=True):
                count = len(sample.token_ids)
                done[id(sample)] = replace(sample, old_logp=tuple(own[:count].tolist()))
                meter.add(sample.agent, "engine_logp_gap", float(gap[:count].mean()), weight=count)
                meter.highest(sample.agent, "engine_logp_gap_max", float(gap[:count].max()))
        return [done[id(sample)] for sample in samples]

    def _update(self, rows: Sequence[Row], meter: Meter, *, first: bool) -> None:
        """One optimizer step of every adapter that has rows here."""
        present = sorted({row.agent for row in rows})
        for agent in present:
            for parameter in self.parameters[agent].values():
                parameter.requires_grad_(True)
                parameter.grad = None
        self.accumulate(rows, meter, first=first)
        for agent in present:
            parameters = list(self.parameters[agent].values())
            self.ranks.sum_gradients(parameters, f"the gradients of {agent}")
            norm = torch.nn.utils.clip_grad_norm_(parameters, self.settings.grad_clip)
            if torch.isfinite(norm):
                self.optimizers[agent].step()
                meter.add(agent, "grad_norm", float(norm))
            meter.add(agent, "nonfinite_updates", float(not torch.isfinite(norm)))
            for parameter in parameters:
                parameter.requires_grad_(False)
                parameter.grad = None

    def accumulate(self, rows: Sequence[Row], meter: Meter, *, first: bool = False) -> None:
        """Add the gradients of this rank's share of one minibatch, whatever way it is split into micro-batches."""
        counts: dict[str, int] = {}
        for row in rows:
            counts[row.agent] = counts.get(row.agent, 0) + len(row.samples)
        own = list(self._micro(self.ranks.share(rows)))
        for model, micro in own:
            self._backward(model, micro, counts, meter, first)
        if self.ranks.sharded:
            self._keep_pace(rows, counts, [id(model) for model, _ in own])

    def _keep_pace(self, rows: Sequence[Row], counts: Mapping[str, int], own: Sequence[int]) -> None:
        """Run every sharded model as often as the rank that runs it most, on a row whose gradient counts nothing."""
        for model in distinct(self.models):
            done = self.ranks.gather(own.count(id(model)), "how often the others learn")
            row = next((row for row in rows if self.models[row.agent] is model), None)
            for _ in range(max(done) - done[self.ranks.rank]):
                assert row is not None
                self._backward(model, [row], counts, Meter(), first=False, weight=0.0)

    def _micro(self, rows: Sequence[Row]) -> Iterator[tuple[Model, list[Row]]]:
        """Micro-batches within the token budget, one model after the other."""
        for model in distinct({row.agent: self.models[row.agent] for row in rows}):
            own = [row for row in rows if self.models[row.agent] is model]
            for micro in micro_batches(own, self.settings.token_budget, apart=model.adapters.merges):
                yield model, micro

    def _backward(
        self,
        model: Model,
        rows: Sequence[Row],
        counts: Mapping[str, int],
        meter: Meter,
        first: bool,
        weight: float = 1.0,
    ) -> None:
        targets, ref = targets_of(rows, model.device), None
        if self.settings.kl:
            with torch.no_grad():
                ref = self.logp(model, rows, targets, base=True)
        with self._routed(model, rows):  # the backward pass may run layers again
            logp = self.logp(model, rows, targets)
            torch.autograd.backward(self._loss_of(rows, targets, logp, ref, counts, meter, first) * weight)

    def _loss_of(
        self,
        rows: Sequence[Row],
        targets: Targets,
        logp: Tensor,
        ref: Tensor | None,
        counts: Mapping[str, int],
        meter: Meter,
        first: bool,
    ) -> Tensor:
        """The sum over adapters of their own mean losses; `counts` are their sequences in the whole minibatch."""
        old, mask = targets.old_logp, targets.mask
        total = logp.new_zeros(())
        for agent in sorted({row.agent for row in rows}):
            own = torch.tensor([s.agent == agent for row in rows for s in row.samples], device=logp.device)
            loss, stats = self._loss()(
                logp[own], old[own], mask[own], targets.advantage[own], denominator=float(counts[agent])
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

    def logp(self, model: Model, rows: Sequence[Row], targets: Targets, *, base: bool = False) -> Tensor:
        """log pi of every reply token at the sampling temperature, [N sequences, T]; `base`: with the adapter off."""
        if id(model) in self.written:  # micro-batches of one adapter
            hidden = self.written[id(model)].hidden(rows, None if base else rows[0].agent)
        else:
            packed = pack(rows, model.device)
            with self._routed(model, rows, base=base):
                hidden = model.hidden(packed.ids, packed.positions, packed.attention)[packed.row_of, packed.at]
        values = token_logp(model, hidden, targets.ids, self.sampling.temperature)
        return hidden.new_zeros(targets.mask.shape, dtype=torch.float32).masked_scatter(targets.mask, values)

    def _routed(self, model: Model, rows: Sequence[Row], *, base: bool = False) -> AbstractContextManager[None]:
        """Inside, every forward of the model has one row of the batch a `rows`, under its own adapter or none."""
        names = model.adapters.names
        numbers = [-1 if base else names.index(row.agent) for row in rows]
        return model.adapters.routed(torch.tensor(numbers, device=model.device), live=True)

    # ---- state ---------------------------------------------------------------------------------------------------

    def save(self, folder: Path) -> None:
        """Adapters in PEFT's format and the optimizer's moments as safetensors."""
        for model in distinct(self.models):
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
        for model in distinct(self.models):
            model.adapters.load(folder / "adapters")
        tensors = load_file(str(folder / "optimizer.safetensors"))
        self.steps = int(tensors.pop("steps"))
        for key, value in tensors.items():
            agent, name, moment = key.split("|")
            parameter = self.parameters[agent][name]
            place = value if moment == "step" else value.to(parameter.device)
            self.optimizers[agent].state[parameter][moment] = place


def _recompute_activations(model: Model) -> None:
    """Run every decoder layer under a checkpoint while gradients are on; with LoRA only the adapters need them."""
    for layer in model.base.base_model.layers:
        plain = layer.forward

        def forward(*args: Any, _plain: Any = plain, **kwargs: Any) -> Any:
            if not torch.is_grad_enabled():
                return _plain(*args, **kwargs)
            return checkpoint(_plain, *args, use_reentrant=False, **kwargs)

        layer.forward = forward


class Meter:
    """Means of metrics by role, weighed by what they were counted over."""

    def __init__(self) -> None:
        self.sums: dict[str, float] = {}
        self.weights: dict[str, float] = {}  # a total has none
        self.peaks: dict[str, float] = {}

    def add(self, agent: str, name: str, value: float, *, weight: float = 1.0, mean: bool = True) -> None:
        key = f"{name}/{agent.split('/')[-1]}"
        self.sums[key] = self.sums.get(key, 0.0) + value * weight
        if mean:
            self.weights[key] = self.weights.get(key, 0.0) + weight

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
        weights = {k: self.weights.get(k, 1.0) for k in self.sums}
        return {k: v / weights[k] if weights[k] else 0.0 for k, v in self.sums.items()} | self.peaks

    @classmethod
    def joined(cls, parts: Sequence[Meter]) -> Meter:
        """The meter of what was counted in parts."""
        whole = cls()
        for part in parts:
            for key, value in part.sums.items():
                whole.sums[key] = whole.sums.get(key, 0.0) + value
            for key, value in part.weights.items():
                whole.weights[key] = whole.weights.get(key, 0.0) + value
            for key, value in part.peaks.items():
                whole.peaks[key] = max(whole.peaks.get(key, -torch.inf), value)
        return whole
