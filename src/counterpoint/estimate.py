"""What a run will take, before it is started: calls, tokens, FLOPs, memory and time, from its settings alone.

Dialogues are played on an engine that only counts: everybody always speaks, and every reply has as many tokens as are
allowed. So replies and new tokens are upper bounds, counterfactual dialogues included: where a controller keeps silent, what
it would have said is a fork in the place of the utterance. FLOPs, with N parameters in products and width A of the attention
summed over layers, of a request with P prompt tokens, G siblings and T new tokens each:
    generation   2 N (P + G T) + 4 A (P^2/2 + G (P T + T^2/2))
    learning     4 N (P + G T) + 12 A (...)     forward, and backward to the activations: the weights are frozen
The output layer counts for new tokens only, adapters are left out.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from counterpoint import prompts
from counterpoint.config import Config
from counterpoint.controllers.fixed import FixedController
from counterpoint.errors import DataError
from counterpoint.models import ModelSettings, device_of, dtype_of
from counterpoint.packing import CHUNK
from counterpoint.play import Job, fork_jobs, play
from counterpoint.probe import TOKEN, CountingEngine, Load, Loads, Reader, loads_of, merged
from counterpoint.records import Episode, Sampling, Task
from counterpoint.shape import Shape, shape_of
from counterpoint.store import Store, whole_lines
from counterpoint.tasks.registry import BUNDLED, load_tasks
from counterpoint.tasks.sets import SETS
from counterpoint.tasks.spec import read_spec

QUESTION = 100  # tokens of a question that is not at hand
PROBES = 16  # dialogues played where agents have different models: who begins is drawn


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of a run; `prompt` counts a prompt once for all its siblings, as it is computed."""

    name: str
    dialogues: float
    replies: float
    prompt: float
    new: float
    flops: float
    learns: bool = False


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of one base model on each device; cache and activations None where the model's shape is unknown."""

    model: str
    shape: Shape
    dtype: str
    weights: float
    adapters: float | None
    cache: float | None
    activations: float | None

    @property
    def peak(self) -> float | None:
        """Weights, adapters, and whichever is larger of generating and learning, which take turns."""
        if self.adapters is None or self.cache is None or self.activations is None:
            return None
        return self.weights + self.adapters + max(self.cache, self.activations)


@dataclass(frozen=True, slots=True)
class Estimate:
    """All of it."""

    phases: tuple[Phase, ...]
    memory: tuple[Memory, ...]
    notes: tuple[str, ...]

    @property
    def flops(self) -> float:
        return sum(phase.flops for phase in self.phases)

    def generated(self, *, training: bool) -> tuple[float, float, float]:
        """Replies, prompt tokens and new tokens of training, or of evaluation; learning makes none of its own."""
        own = [p for p in self.phases if p.name.startswith("training") == training and not p.learns]
        return sum(p.replies for p in own), sum(p.prompt for p in own), sum(p.new for p in own)


@dataclass(frozen=True, slots=True)
class Rate:
    """How fast: FLOP/s of one device, or new tokens a second of playing and of learning."""

    source: str
    flops: float = 0.0
    play: float = 0.0
    learn: float = 0.0

    def text(self, devices: int) -> str:
        """What time was reckoned from."""
        pace = (
            f"{self.flops:.3g} FLOP/s"
            if self.flops
            else f"{self.play:.4g} new tokens/s played, {self.learn:.4g} learned"
        )
        return f"time on {devices} device{'s' * (devices > 1)}, each with {pace}, {self.source}; sharing costs nothing here"

    def seconds(self, estimate: Estimate, phase: Phase, devices: int) -> float:
        """Time of a phase on so many devices, none waiting for another."""
        if self.flops:
            return phase.flops / (self.flops * devices)
        made = estimate.generated(training=True)[2] if phase.learns else phase.new
        return made / ((self.learn if phase.learns else self.play) * devices)


def estimate(config: Config, *, parameters: int | None = None, reply_tokens: int | None = None) -> Estimate:
    """Count a run. `parameters` replaces the size of every model; `reply_tokens` the length of replies, no bound then."""
    chosen = {agent.name: agent.model or config.model for agent in config.agents}
    shapes = {model: shape_of(model, config.lora, parameters=parameters) for model in dict.fromkeys(chosen.values())}
    count = _Count(config, chosen, shapes, reply_tokens)
    phases = [*count.evaluation("untrained", when=config.evaluation.untrained)]
    phases += count.training() if config.steps else []
    also = config.evaluation.also
    phases += count.evaluation("eval")
    phases += count.evaluation(f"eval-{also}", when=also not in ("none", config.evaluation.strategy))
    memory = [_memory(config, model, shape, count) for model, shape in shapes.items()]
    return Estimate(tuple(phases), tuple(memory), tuple(dict.fromkeys(count.notes)))


def one_line(found: Estimate, *, flops: float = 200e12) -> str:
    """For a dry run: replies and tokens, and the hours of one GPU at an effective rate."""
    (replies, prompt, new), (measured_replies, _, measured_new) = (found.generated(training=t) for t in (True, False))
    hours = found.flops / flops / 3600
    return (
        f"dry run: at most {replies:,.0f} replies, {prompt:,.0f} prompt and {new:,.0f} new tokens in training (forks "
        f"included), {measured_replies:,.0f} replies and {measured_new:,.0f} new tokens in evaluation; {found.flops:.2g} FLOP, "
        f"{hours:,.2g} GPU hours at {flops / 1e12:g} TFLOP/s"
        + "".join(f"; {m.model}: {m.shape.source}" for m in found.memory if not m.shape.known)
    )


def from_run(folder: Path) -> Rate:
    """Rates that a run had: new tokens, forks included, a second of playing and a second of learning."""
    path = Store(folder).timings_file
    lines = [json.loads(line) for line in whole_lines(path)] if path.is_file() else []
    if not lines:
        raise DataError(f"{folder} tells no rate: it has no timings of a training step")
    tokens, playing, learning = (
        sum(sum(line.get(name, 0.0) for name in names) for line in lines)
        for names in (("tokens",), ("play", "forks"), ("learn",))
    )
    if not tokens or not playing or not learning:
        raise DataError(f"{folder} tells no rate: {tokens} tokens, {playing} s of playing, {learning} s of learning")
    return Rate(f"as {folder} had it", play=tokens / playing, learn=tokens / learning)


def measured(config: Config, *, share: float = 0.5) -> Rate:
    """A share of what one square product does here, in the model's precision."""
    device = torch.device(device_of(config.model.device))
    dtype = dtype_of(config.model.dtype, device)
    size = 8192 if device.type == "cuda" else 1024
    a = torch.ones(size, size, dtype=dtype, device=device)
    best = min(_seconds_of_product(a) for _ in range(4))
    return Rate(f"{share:g} of a product measured here on {device}, {dtype}", flops=share * 2 * size**3 / best)


def _seconds_of_product(a: torch.Tensor) -> float:
    start = time.perf_counter()
    float((a @ a)[0, 0])  # reading a number waits for the device
    return time.perf_counter() - start


# ---- counting ----------------------------------------------------------------------------------------------------


class _Count:
    """Counts the phases of one config, and notes what had to be assumed."""

    def __init__(
        self,
        config: Config,
        chosen: Mapping[str, ModelSettings],
        shapes: Mapping[ModelSettings, Shape],
        reply_tokens: int | None,
    ) -> None:
        self.config, self.chosen, self.shapes, self.reply_tokens = config, chosen, shapes, reply_tokens
        self.readers = {model: Reader(model) for model in shapes}
        self.loads: set[Load] = set()  # of every phase, for the memory
        self.notes = [] if reply_tokens is None else [f"replies of {reply_tokens} tokens: no upper bound"]
        for model, shape in shapes.items():
            if not shape.known:
                self.notes.append(
                    f"{model.name}: {shape.parameters:,} parameters, {shape.source}; without its config.json attention is "
                    "not counted, and cache, activations and adapters are unknown"
                )
            if not self.readers[model].exact:
                self.notes.append(f"{model.name}: no tokenizer here, prompts counted at 4 characters a token")
        if config.engine.name != "hf":
            self.notes.append(
                f"engine {config.engine.name} holds weights and cache of its own, apart from the memory here"
            )

    def training(self) -> list[Phase]:
        config = self.config
        dialogues = config.steps * config.dialogues
        task = self._task(config.tasks.train, "train")
        episodes, forks = self._play("train/1", task, config.sampling.record(), config.method.siblings)
        share = dialogues / len(episodes)
        played, counterfactual = loads_of(episodes, share), loads_of(forks, share)
        learned = merged([played, counterfactual]) if config.method.learns_from_forks else played
        phases = [self._phase("training: dialogues", dialogues, played)]
        if forks:
            phases.append(self._phase("training: forks", dialogues * len(forks) / len(episodes), counterfactual))
        return [*phases, self._phase("training: learning", dialogues, learned, learns=True)]

    def evaluation(self, name: str, *, when: bool = True) -> list[Phase]:
        config = self.config
        sampling = (config.evaluation.sampling or config.sampling).record()
        parts: list[Loads] = []
        dialogues = 0
        for spec in config.tasks.eval if when else ():
            size = self._size(spec)
            if size is None:
                self.notes.append(f"{spec}: its size is not known before it is read, evaluation on it is not counted")
                continue
            episodes, _ = self._play(name, self._task(spec, "test"), sampling, 1)
            parts.append(loads_of(episodes, size / len(episodes)))
            dialogues += size
        return [self._phase(name, dialogues, merged(parts))] if dialogues else []

    def _play(self, phase: str, task: Task, sampling: Sampling, n: int) -> tuple[list[Episode], list[Episode]]:
        """Dialogues on the counting engine, and their forks."""
        config = self.config
        length = self.reply_tokens or sampling.max_new_tokens
        engine = CountingEngine({agent: self.readers[model] for agent, model in self.chosen.items()}, length)
        controllers = dict.fromkeys(config.method.controllers(config.names), FixedController())  # everybody speaks

        def run(jobs: Sequence[Job]) -> list[Episode]:
            return list(
                play(
                    config.method, jobs, agents=config.names, engine=engine, controllers=controllers,
                    sampling=sampling, seed=config.seed, n=n,
                )
            )  # fmt: skip

        episodes = run([Job(f"{phase}/{i}", task) for i in range(1 if len(self.shapes) == 1 else PROBES)])
        return episodes, run([job for e in episodes for job in fork_jobs(config.method, e)]) if n > 1 else []

    def _phase(self, name: str, dialogues: float, loads: Loads, *, learns: bool = False) -> Phase:
        self.loads |= loads.keys()
        passes = self.config.learner.epochs if learns else 1
        return Phase(
            name,
            dialogues,
            replies=sum(count * load.siblings for load, count in loads.items()) * passes,
            prompt=sum(count * load.prompt for load, count in loads.items()) * passes,
            new=sum(count * load.siblings * load.new for load, count in loads.items()) * passes,
            flops=sum(count * self._flops(load, learns=learns) for load, count in loads.items()) * passes,
            learns=learns,
        )

    def _flops(self, load: Load, *, learns: bool) -> float:
        shape = self.shapes[self.chosen[load.agent.split("/")[0]]]
        settings = self.config.learner
        again = (settings.kl > 0) + (not self.config.engine.exact_logprobs) + settings.activation_checkpointing
        dense, looking = (4 + 2 * again, 12 + 4 * again) if learns else (2, 4)
        new = load.siblings * load.new
        products = shape.body * (load.prompt + new) + shape.head * new
        return dense * products + looking * shape.attention * load.seen

    def _task(self, spec: Any, split: str) -> Task:
        """The longest question of a bundled set; one of an assumed length for any other."""
        source = read_spec(spec).source
        if source in BUNDLED:
            return max(load_tasks(spec, split), key=lambda task: len(prompts.question(task)))
        kind = read_spec(spec).kind or (SETS[source].kind if source in SETS else "number")
        self.notes.append(f"{read_spec(spec).label}: questions taken as {QUESTION} tokens")
        return Task("probe", TOKEN * QUESTION, "1", kind)

    def _size(self, spec: Any) -> int | None:
        """Problems that are measured; an upper bound where a limit is all that is known."""
        settings = read_spec(spec)
        known: int | None = settings.size if settings.source.startswith("rg:") else None
        if settings.source in BUNDLED:
            known = len(load_tasks(spec, settings.split or "test"))
        elif settings.source in SETS:
            known = SETS[settings.source].counts.get(settings.split or "test")
        bounds = [n for n in (known, settings.limit, self.config.evaluation.limit or None) if n is not None]
        return min(bounds) if bounds else None


# ---- memory ------------------------------------------------------------------------------------------------------


def _memory(config: Config, model: ModelSettings, shape: Shape, count: _Count) -> Memory:
    """Cache of the widest batch; activations of a micro-batch, what a layer keeps for its backward pass counted as
    8 hidden + 4 inner a token, and the logits of one chunk three times over."""
    dtype = dtype_of(model.dtype, torch.device(device_of(model.device)))
    names = [agent for agent, own in count.chosen.items() if own == model]
    adapters = shape.adapter * len(names) * len(config.method.roles) * (16 if config.steps else 4)
    own = [load for load in count.loads if load.agent.split("/")[0] in names]
    rows = int(getattr(config.engine, "max_rows", 1))
    longest = max((min(rows, config.width * x.siblings) * (x.new + x.prompt / x.siblings) for x in own), default=0.0)
    kept = 8 * shape.hidden + 4 * shape.inner
    layers = shape.layers * (shape.hidden if config.learner.activation_checkpointing else kept)
    widest = max((x.prompt + x.siblings * x.new for x in own), default=0)  # one row always fits
    activations = max(config.learner.token_budget, widest) * layers * dtype.itemsize + 3 * 4 * CHUNK
    return Memory(
        model.name,
        shape,
        str(dtype).removeprefix("torch."),
        weights=float(shape.parameters * dtype.itemsize),
        adapters=float(adapters) if shape.known else None,
        cache=longest * shape.cache * dtype.itemsize if shape.known else None,
        activations=(float(activations) if config.steps else 0.0) if shape.known else None,
    )
