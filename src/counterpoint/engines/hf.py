"""Generation through transformers: continuous batching over slots, adapters mixed by row, siblings on one prompt.

The G siblings of a request are one row of the batch: their prompt is run once and kept once, and each decode step feeds the
row G tokens, one a sibling, under a mask in which a sibling sees the prompt and its own tokens. The prompt's last token is
fed with the first decode step, so every logit comes from one place. Log-probabilities are kept from decoding. Rows whose
siblings have all finished leave the batch and waiting rows take their place.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from jaxtyping import Int
from pydantic import Field
from torch import Tensor

from counterpoint.engines.base import EngineSettings, Roster, Versioned, encode
from counterpoint.engines.fused import FusedForward
from counterpoint.engines.sampling import draw, uniforms
from counterpoint.engines.slots import SlotCache
from counterpoint.errors import ConfigError
from counterpoint.llama import fits
from counterpoint.models import Model, distinct
from counterpoint.records import Completion, Request, Sampling
from counterpoint.rng import fold


class HFSettings(EngineSettings):
    """transformers in this process."""

    max_rows: int = Field(default=256, ge=1)
    """Sequences decoded side by side."""
    prefill_tokens: int = Field(default=8192, ge=64)
    """Prompt tokens of one prefill."""
    fused: bool = True
    """Generate with the written-out forward pass where the model allows it (Llama family, CPU, float32)."""
    merged_mb: int = Field(default=256, ge=0)
    """The written-out pass merges adapters into copies of the weights while all copies fit in this many megabytes."""

    def open(self, roster: Roster, models: Mapping[str, Model]) -> HFEngine:
        if roster.sharded:
            raise ConfigError(
                "ranks.shard=true, and engine 'hf' generates with the learner's weights, which then lie in parts; set "
                "ranks.shard=false, or engine=vllm or engine=ray"
            )
        engine = HFEngine(models, **self.model_dump(exclude={"name"}))
        if roster.overlap and not all(isinstance(forward, FusedForward) for forward in engine.forwards.values()):
            raise ConfigError(
                "overlap=true, and here engine 'hf' generates with the very modules that learn; set overlap=false, or "
                "engine=vllm or engine=ray"
            )
        return engine


@dataclass(slots=True)
class _Group:
    """The siblings of one request."""

    request: int
    adapter: int
    prompt: tuple[int, ...]
    seeds: tuple[int, ...]  # [G]
    ids: list[list[int]]  # [G][T]
    logps: list[list[float]]


class HFEngine(Versioned):
    """Samples from any number of base models in this process; each agent's requests go to its own model."""

    def __init__(
        self,
        models: Mapping[str, Model],
        *,
        max_rows: int = 256,
        prefill_tokens: int = 8192,
        fused: bool = True,
        merged_mb: int = 256,
    ) -> None:
        self.models = models
        self.max_rows = max_rows
        self.prefill_tokens = prefill_tokens
        self.forwards: dict[int, Forward] = {
            id(model): FusedForward(model, merged_bytes=merged_mb << 20)
            if fused and fits(model)
            else PlainForward(model)
            for model in distinct(models)
        }

    def publish(self, version: int | None = None) -> int:
        for model in distinct(self.models):
            model.adapters.refresh()
        return super().publish(version)

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
        groups = [
            self._group(i, request, seed, sampling)
            for i, (request, seed) in enumerate(zip(requests, seeds, strict=True))
        ]
        parts: dict[tuple[int, int], list[_Group]] = {}
        for group in groups:
            request = requests[group.request]
            parts.setdefault((id(self.models[request.agent]), request.n), []).append(group)
        for own in parts.values():
            model = self.models[requests[own[0].request].agent]
            _Batch(model, self.forwards[id(model)], own, sampling, self.max_rows, self.prefill_tokens).run()
        return [self._completions(requests[group.request], group) for group in groups]

    def _group(self, index: int, request: Request, seed: int, sampling: Sampling) -> _Group:
        model = self.models[request.agent]
        prompt = encode(model, request, sampling, model.context)
        adapter = model.adapters.names.index(request.agent)
        n = request.n
        seeds = tuple(fold(seed, j) for j in range(n))
        return _Group(index, adapter, prompt, seeds, [[] for _ in range(n)], [[] for _ in range(n)])

    def _completions(self, request: Request, group: _Group) -> list[Completion]:
        model = self.models[request.agent]
        return [
            Completion(
                text=model.decode(ids),
                prompt_ids=group.prompt,
                token_ids=tuple(ids),
                logprobs=tuple(logps),
                finish="stop" if ids[-1] in model.eos else "length",
                version=self.version,
            )
            for ids, logps in zip(group.ids, group.logps, strict=True)
        ]


class _Batch:
    """One call's groups of one size on one model: rows 0 .. live-1 of every array are in play."""

    def __init__(
        self,
        model: Model,
        forward: Forward,
        groups: list[_Group],
        sampling: Sampling,
        max_rows: int,
        prefill_tokens: int,
    ) -> None:
        self.model, self.forward, self.sampling, self.prefill_tokens = model, forward, sampling, prefill_tokens
        self.siblings = len(groups[0].seeds)
        self.waiting = sorted(groups, key=lambda g: (-len(g.prompt), g.request))
        longest = len(self.waiting[0].prompt)
        slots = min(len(groups), max(1, max_rows // self.siblings))
        _check_window(model, longest + sampling.max_new_tokens)
        self.cache = SlotCache(
            layers=model.base.config.get_text_config().num_hidden_layers,
            slots=slots,
            length=longest - 1 + self.siblings * sampling.max_new_tokens,
            device=model.device,
        )
        self.rows: list[_Group] = []
        self.next_ids = np.zeros((slots, self.siblings), dtype=np.int64)
        self.seeds = np.zeros((slots, self.siblings), dtype=np.int64)
        self.done = np.zeros((slots, self.siblings), dtype=bool)
        self.prompts = np.zeros(slots, dtype=np.int64)  # prompt tokens in the cache: all but the last
        self.steps = np.zeros(slots, dtype=np.int64)  # decode steps taken
        self.adapters = np.zeros(slots, dtype=np.int64)
        self.eos = np.array(model.eos)

    @torch.no_grad()
    def run(self) -> None:
        with self.forward.on(self.cache):
            while self.waiting or self.rows:
                self._admit()
                self.forward.route(self.adapters[: len(self.rows)], self.siblings)
                while self._step():
                    pass

    def _admit(self) -> None:
        """Prefill waiting groups, longest first, while slots and the token budget allow."""
        free = self.cache.slots - len(self.rows)
        while self.waiting and free:
            count = min(free, max(1, self.prefill_tokens // len(self.waiting[0].prompt)))
            taken, self.waiting = self.waiting[:count], self.waiting[count:]
            free -= len(taken)
            self._prefill(taken)

    def _prefill(self, groups: list[_Group]) -> None:
        first = len(self.rows)
        width = max(len(g.prompt) for g in groups) - 1
        if width:
            adapters = np.array([g.adapter for g in groups])
            self.forward.prefill([g.prompt[:-1] for g in groups], adapters, first)
        for slot, group in enumerate(groups, start=first):
            self.next_ids[slot], self.seeds[slot], self.done[slot] = group.prompt[-1], group.seeds, False
            self.prompts[slot], self.steps[slot], self.adapters[slot] = len(group.prompt) - 1, 0, group.adapter
        self.rows += groups

    def _tensor(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(array.copy()).to(self.model.device)

    def _step(self) -> bool:
        """Decode one token a sibling; False when rows left the batch and it may be refilled."""
        live, size = len(self.rows), self.siblings
        prompts, steps = self._tensor(self.prompts[:live])[:, None], self._tensor(self.steps[:live])[:, None]
        own = torch.arange(size, device=self.model.device)
        at = prompts + steps * size + own  # [live, G] where the new tokens go: siblings interleaved, step by step
        seen = int((self.prompts[:live] + (self.steps[:live] + 1) * size).max())
        past = torch.arange(seen, device=self.model.device)[None] - prompts  # [live, S] place after the prompt
        mine = (past[:, None] % size == own[:, None]) & (past < (steps + 1) * size)[:, None]
        mask = (past < 0)[:, None] | mine  # [live, G, S]
        self.cache.start_decode(at, seen)
        positions = (prompts + steps).expand(-1, size)
        ids = self._tensor(self.next_ids[:live])
        logits = self.forward.decode(ids, positions, mask)
        u = uniforms(self.seeds[:live].ravel(), self.steps[:live].repeat(size))
        sampled, logp = draw(logits.flatten(0, 1), self._tensor(u), self.sampling)
        return self._record(sampled.cpu().numpy().reshape(live, size), logp.cpu().numpy().reshape(live, size))

    def _record(self, sampled: np.ndarray, logp: np.ndarray) -> bool:
        live = len(self.rows)
        for row, done, tokens, values in zip(
            self.rows, self.done.tolist(), sampled.tolist(), logp.tolist(), strict=False
        ):
            for j, finished in enumerate(done):
                if not finished:
                    row.ids[j].append(tokens[j])
                    row.logps[j].append(values[j])
        self.next_ids[:live] = sampled
        self.steps[:live] += 1
        self.done[:live] |= np.isin(sampled, self.eos) | (self.steps[:live] >= self.sampling.max_new_tokens)[:, None]
        over = self.done[:live].all(axis=1)
        if over.any():
            self._leave(np.flatnonzero(over).tolist())
        return bool(self.rows) and not over.any()

    def _leave(self, over: list[int]) -> None:
        """Fill the holes of finished rows with the last live ones."""
        left = len(self.rows) - len(over)
        gone = set(over)
        holes = [i for i in over if i < left]
        movers = [i for i in range(left, len(self.rows)) if i not in gone]
        if movers:
            used = int((self.prompts[movers] + self.steps[movers] * self.siblings).max())
            self.cache.move(self._tensor(np.array(movers)), self._tensor(np.array(holes)), used)
            for array in (self.next_ids, self.seeds, self.done, self.prompts, self.steps, self.adapters):
                array[holes] = array[movers]
            for hole, mover in zip(holes, movers, strict=True):
                self.rows[hole] = self.rows[mover]
        del self.rows[left:]


class Forward(Protocol):
    """What a batch asks of a model: prompts into the cache, then logits token by token."""

    def on(self, cache: SlotCache) -> AbstractContextManager[None]:
        """Inside, the passes work on this cache with the adapters' weights as of their last refresh."""
        ...

    def prefill(self, prompts: Sequence[Sequence[int]], adapters: Int[np.ndarray, " R"], first: int) -> None:
        """Keys and values of prompt i, under adapter number adapters[i], into slot first + i."""
        ...

    def route(self, adapters: Int[np.ndarray, " R"], tokens: int) -> None:
        """The next decode steps have rows of `tokens` tokens, row r under adapter number adapters[r]."""
        ...

    def decode(self, ids: Int[Tensor, "R G"], positions: Int[Tensor, "R G"], mask: Tensor) -> Tensor:
        """Logits [R, G, V] of the next tokens; `mask` [R, G, S] is True where a token may look."""
        ...


class PlainForward:
    """Any model that transformers can run; adapters by the hooks of lora.py."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.cache_name = _cache_argument(model.base)

    @contextmanager
    def on(self, cache: SlotCache) -> Iterator[None]:
        self.cache = cache
        with self.model.adapters.routed(torch.zeros(0, dtype=torch.long, device=self.model.device), live=False):
            yield

    def route(self, adapters: Int[np.ndarray, " R"], tokens: int) -> None:
        rows = torch.from_numpy(adapters.copy()).to(self.model.device)
        self.model.adapters.set_mask(self.model.adapters.mask(rows))

    def prefill(self, prompts: Sequence[Sequence[int]], adapters: Int[np.ndarray, " R"], first: int) -> None:
        ids = torch.zeros(len(prompts), max(len(p) for p in prompts), dtype=torch.long)
        for row, prompt in zip(ids, prompts, strict=True):
            row[: len(prompt)] = torch.tensor(prompt)
        self.route(adapters, ids.shape[1])
        self.cache.start_prefill(torch.arange(first, first + len(prompts), device=self.model.device))
        self._run(ids.to(self.model.device), logits_to_keep=1)

    def decode(self, ids: Int[Tensor, "R G"], positions: Int[Tensor, "R G"], mask: Tensor) -> Tensor:
        return self._run(ids, position_ids=positions, attention_mask=mask[:, None])

    def _run(self, ids: Tensor, **inputs: Any) -> Tensor:
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
