"""Generation through transformers: continuous batching over slots, adapters mixed by row, one prefill a sibling group.

A request's prompt is run once, all but its last token, and its keys and values are copied to the slots of its G
siblings; every later token, the first sampled one included, comes from the same decode step. Log-probabilities are kept
from decoding. Rows that finish leave the batch and waiting rows take their place.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from counterpoint.engines.sampling import draw, uniforms
from counterpoint.engines.slots import SlotCache
from counterpoint.errors import ConfigError
from counterpoint.models import Model
from counterpoint.records import Completion, Request, Sampling
from counterpoint.rng import fold


@dataclass(slots=True)
class _Row:
    request: int
    sample: int
    seed: int
    adapter: int
    prompt: tuple[int, ...]
    ids: list[int] = field(default_factory=list)
    logps: list[float] = field(default_factory=list)


class HFEngine:
    """Samples from any number of base models in this process; each agent's requests go to its own model."""

    def __init__(self, models: dict[str, Model], *, max_rows: int = 256, prefill_tokens: int = 16384) -> None:
        self.models = models
        self.max_rows = max_rows
        self.prefill_tokens = prefill_tokens
        self.version = 0

    def publish(self, version: int | None = None) -> int:
        for model in _distinct(self.models):
            model.adapters.refresh()
        self.version = self.version + 1 if version is None else version
        return self.version

    def generate(
        self, requests: Sequence[Request], *, seeds: Sequence[int], sampling: Sampling
    ) -> list[list[Completion]]:
        if sampling.temperature == 0:
            return self._greedy(requests, sampling)
        return self._sample(requests, seeds, sampling)

    def _greedy(self, requests: Sequence[Request], sampling: Sampling) -> list[list[Completion]]:
        """Equal contexts have equal greedy replies: each is generated once."""
        distinct = {(r.agent, r.messages): Request(r.agent, r.messages, r.tag) for r in requests}
        replies = self._sample(list(distinct.values()), [0] * len(distinct), sampling)
        found = dict(zip(distinct, replies, strict=True))
        return [found[r.agent, r.messages] * r.n for r in requests]

    def _sample(self, requests: Sequence[Request], seeds: Sequence[int], sampling: Sampling) -> list[list[Completion]]:
        rows: list[list[_Row]] = []
        for index, (request, seed) in enumerate(zip(requests, seeds, strict=True)):
            rows.append(self._rows(index, request, seed, sampling))
        for model in _distinct(self.models):
            own = [group for group in rows if self.models[requests[group[0].request].agent] is model]
            if own:
                _Batch(model, own, sampling, self.max_rows, self.prefill_tokens).run()
        return [[self._completion(requests[row.request], row) for row in group] for group in rows]

    def _rows(self, index: int, request: Request, seed: int, sampling: Sampling) -> list[_Row]:
        model = self.models[request.agent]
        prompt = model.encode(request.messages)
        if len(prompt) + sampling.max_new_tokens > model.context:
            raise ConfigError(
                f"a prompt of {len(prompt)} tokens for {request.agent} ({request.tag}) and {sampling.max_new_tokens} new ones "
                f"do not fit the context of {model.context}; lower max_new_tokens, method.history or method.rounds"
            )
        adapter = model.adapters.names.index(request.agent)
        return [_Row(index, j, fold(seed, j), adapter, prompt) for j in range(request.n)]

    def _completion(self, request: Request, row: _Row) -> Completion:
        model = self.models[request.agent]
        stopped = row.ids[-1] in model.eos
        return Completion(
            text=model.decode(row.ids),
            prompt_ids=row.prompt,
            token_ids=tuple(row.ids),
            logprobs=tuple(row.logps),
            finish="stop" if stopped else "length",
            version=self.version,
        )


def _distinct(models: dict[str, Model]) -> list[Model]:
    return list({id(model): model for model in models.values()}.values())


class _Batch:
    """One call's worth of rows on one model: rows 0 .. live-1 of every array are in play."""

    def __init__(
        self, model: Model, groups: list[list[_Row]], sampling: Sampling, max_rows: int, prefill_tokens: int
    ) -> None:
        self.model, self.sampling, self.prefill_tokens = model, sampling, prefill_tokens
        self.waiting = sorted(groups, key=lambda g: (-len(g[0].prompt), g[0].request))
        longest = len(self.waiting[0][0].prompt)
        slots = max(max(len(g) for g in groups), min(max_rows, sum(len(g) for g in groups)))
        _check_window(model, longest + sampling.max_new_tokens)
        self.cache = SlotCache(
            layers=model.base.config.get_text_config().num_hidden_layers,
            slots=slots,
            length=longest + sampling.max_new_tokens,
            device=model.device,
        )
        self.cache_name = _cache_argument(model.base)
        self.rows: list[_Row] = []
        self.next_ids = np.zeros(slots, dtype=np.int64)
        self.lengths = np.zeros(slots, dtype=np.int64)  # tokens already in the cache
        self.seeds = np.zeros(slots, dtype=np.int64)
        self.steps = np.zeros(slots, dtype=np.int64)  # tokens already sampled
        self.adapters = np.zeros(slots, dtype=np.int64)
        self.eos = np.array(model.eos)

    @torch.no_grad()
    def run(self) -> None:
        with self.model.adapters.routed(torch.zeros(0, dtype=torch.long, device=self.model.device), live=False):
            while self.waiting or self.rows:
                self._admit()
                self._route()
                while self._step():
                    pass

    def _admit(self) -> None:
        """Prefill waiting groups, longest first, while slots and the token budget allow."""
        taken: list[list[_Row]] = []
        free = self.cache.slots - len(self.rows)
        while self.waiting and len(self.waiting[0]) <= free:
            width = len((taken or self.waiting)[0][0].prompt)
            if taken and width * (len(taken) + 1) > self.prefill_tokens:
                self._prefill(taken)
                taken = []
            group = self.waiting.pop(0)
            free -= len(group)
            taken.append(group)
        if taken:
            self._prefill(taken)

    def _prefill(self, groups: list[list[_Row]]) -> None:
        device = self.model.device
        first = len(self.rows)
        new = [row for group in groups for row in group]
        source = np.repeat(np.arange(len(groups)), [len(g) for g in groups])
        width = max(len(g[0].prompt) for g in groups) - 1
        if width:
            ids = np.zeros((len(groups), width), dtype=np.int64)
            for i, group in enumerate(groups):
                ids[i, : len(group[0].prompt) - 1] = group[0].prompt[:-1]
            slots = torch.arange(first, first + len(new), device=device)
            self.cache.start_prefill(torch.from_numpy(source).to(device), slots)
            adapters = self.model.adapters
            adapters.set_mask(adapters.mask(torch.tensor([g[0].adapter for g in groups], device=device)))
            self._forward(torch.from_numpy(ids).to(device), logits_to_keep=1)
        for slot, row in enumerate(new, start=first):
            self.next_ids[slot] = row.prompt[-1]
            self.lengths[slot] = len(row.prompt) - 1
            self.seeds[slot], self.steps[slot], self.adapters[slot] = row.seed, 0, row.adapter
        self.rows += new

    def _route(self) -> None:
        adapters = self.model.adapters
        rows = torch.from_numpy(self.adapters[: len(self.rows)]).to(self.model.device)
        adapters.set_mask(adapters.mask(rows))

    def _step(self) -> bool:
        """Decode one token a row; False when rows left the batch and it may be refilled."""
        live, device = len(self.rows), self.model.device
        at = torch.from_numpy(self.lengths[:live].copy()).to(device)
        seen = int(self.lengths[:live].max()) + 1
        mask = (torch.arange(seen, device=device)[None] <= at[:, None])[:, None, None]
        self.cache.start_decode(at, seen)
        ids = torch.from_numpy(self.next_ids[:live, None].copy()).to(device)
        logits = self._forward(ids, position_ids=at[:, None], attention_mask=mask, logits_to_keep=1)[:, -1]
        u = torch.from_numpy(uniforms(self.seeds[:live], self.steps[:live])).to(device)
        sampled, logp = draw(logits, u, self.sampling)
        return self._record(sampled.cpu().numpy(), logp.cpu().numpy())

    def _record(self, sampled: np.ndarray, logp: np.ndarray) -> bool:
        live = len(self.rows)
        for row, token, value in zip(self.rows, sampled.tolist(), logp.tolist(), strict=True):
            row.ids.append(token)
            row.logps.append(value)
        self.next_ids[:live] = sampled
        self.lengths[:live] += 1
        self.steps[:live] += 1
        done = np.isin(sampled, self.eos) | (self.steps[:live] >= self.sampling.max_new_tokens)
        if not done.any():
            return True
        self._leave(np.flatnonzero(done))
        return False

    def _leave(self, done: np.ndarray) -> None:
        """Fill the holes of finished rows with the last live ones."""
        left = len(self.rows) - len(done)
        gone = set(done.tolist())
        holes = [i for i in done.tolist() if i < left]
        movers = [i for i in range(left, len(self.rows)) if i not in gone]
        if movers:
            device = self.model.device
            used = int(self.lengths[movers].max())
            self.cache.move(torch.tensor(movers, device=device), torch.tensor(holes, device=device), used)
            for array in (self.next_ids, self.lengths, self.seeds, self.steps, self.adapters):
                array[holes] = array[movers]
            for hole, mover in zip(holes, movers, strict=True):
                self.rows[hole] = self.rows[mover]
        del self.rows[left:]

    def _forward(self, ids: Tensor, **inputs: Any) -> Tensor:
        inputs[self.cache_name] = self.cache
        logits: Tensor = self.model.adapters.peft(input_ids=ids, use_cache=True, **inputs).logits
        return logits


def _cache_argument(base: Any) -> str:
    """transformers renamed `past_key_values` to `cache` in 5.x."""
    return "cache" if "cache" in inspect.signature(type(base).forward).parameters else "past_key_values"


def _check_window(model: Model, length: int) -> None:
    window = getattr(model.base.config.get_text_config(), "sliding_window", None)
    if window and length > window:
        raise ConfigError(
            f"model {model.settings.name!r} attends within a window of {window} tokens and a dialogue needs {length}; "
            "the hf engine does not slide: lower max_new_tokens, method.history or method.rounds"
        )
