"""How close a training step comes to what the machine can do: phases, rates against measured ceilings, memory, scaling.

    python benchmarks/limits.py [--model tiny|PATH.gguf] [--dialogues 64] [--new-tokens 48] [--rounds 5] [--scaling]

Ceilings are measured here, first: the rate of one large matrix product (the faster of torch's own and oneDNN's), and the rate
at which a large array is read. A decode step has to move the weights and the keys and values it looks at, and to multiply;
its ceiling is whichever takes longer at the measured rates. Learning has to multiply: 2 N per token forward and 2 N for the
gradient of the activations (N weights of the linear layers, all frozen), and attention's own products. A model that gets
every answer wrong has groups without a signal and learns from none of them, so learning is also timed alone, on every reply
of a step.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from throughput import always_speaking

from counterpoint.config import load_config
from counterpoint.kernels import linear
from counterpoint.layout import alike
from counterpoint.packing import rows_of
from counterpoint.progress import Progress
from counterpoint.records import Completion, Request, Sample
from counterpoint.run import Run
from counterpoint.step import take_step
from counterpoint.store import Store
from counterpoint.train import prepare

MEMORY = """
import resource, sys, torch
sys.path.insert(0, {here!r})
from limits import make
from throughput import always_speaking
from counterpoint.step import take_step
run = make(always_speaking({model!r}, 16, 48, "cpu") + ["agents={agents}"])
run.step = 1
take_step(run)
adapter = sum(p.numel() for p in run.team.learner.parameters[sorted(run.team.models)[0]].values())
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, len(run.team.models), adapter)
"""


def make(settings: list[str]) -> Run:
    return prepare(load_config(None, settings), Store(Path(tempfile.mkdtemp())), Progress(quiet=True))


def median(function: Callable[[], Any], repeats: int = 7) -> float:
    """Seconds of one call."""
    function()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return sorted(times)[repeats // 2]


def ceilings(device: str) -> tuple[float, float]:
    """(FLOP/s of a matrix product, bytes/s of reading) of this device, in float32."""
    x, w = torch.randn(2048, 2048, device=device), torch.randn(2048, 2048, device=device)
    flops = 2 * 2048**3 / min(median(lambda: x @ w), median(lambda: linear(x, w)))
    big = torch.ones(1 << 26, device=device)
    return flops, big.numel() * 4 / median(lambda: big.sum())


class Watch:
    """Seconds by phase, and the work that decoding and learning could not have avoided."""

    def __init__(self, run: Run) -> None:
        self.seconds: dict[str, float] = dict.fromkeys(("generate", "prefill", "decode", "learn"), 0.0)
        self.decode_flops = self.decode_bytes = self.learn_flops = 0.0
        self.prefill_flops = 0.0
        self.tokens = {"prompt": 0, "new": 0, "learn": 0}
        model = next(iter(run.team.models.values()))
        config = model.base.config
        self.layers, self.width = config.num_hidden_layers, config.num_attention_heads * config.head_dim
        self.kv_bytes = 2 * config.num_key_value_heads * config.head_dim * 4 * self.layers  # a cached token
        head = model.base.get_output_embeddings().weight.numel()
        self.weights = sum(layer.base_layer.weight.numel() for layer in model.adapters.layers)
        self.head = head
        engine = run.team.engine
        forward = next(iter(engine.forwards.values()))  # type: ignore[attr-defined]
        self.replies: list[Sample] = []  # of the last steps, with advantages 1, -1, 1, ...
        self._wrap(engine, "generate", "generate", self._generated)
        self._wrap(forward, "prefill", "prefill", self._prefilled)
        self._wrap(forward, "decode", "decode", self._decoded)
        self._wrap(run.team.learner, "step", "learn", self._learned)

    def _wrap(self, thing: Any, method: str, phase: str, count: Callable[..., None] | None) -> None:
        plain = getattr(thing, method)

        def timed(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            result = plain(*args, **kwargs)
            self.seconds[phase] += time.perf_counter() - start
            if count:
                count(*args, result)
            return result

        setattr(thing, method, timed)

    def _generated(self, requests: list[Request], replies: list[list[Completion]]) -> None:
        self.replies += [
            Sample(request.agent, c.prompt_ids, c.token_ids, c.logprobs, (-1.0) ** j)
            for request, group in zip(requests, replies, strict=True)
            for j, c in enumerate(group)
        ]

    def _prefilled(self, prompts: list[tuple[int, ...]], adapters: np.ndarray, first: int, _: None) -> None:
        for adapter in set(adapters.tolist()):
            own = [prompt for prompt, of in zip(prompts, adapters, strict=True) if of == adapter and prompt]
            tokens = sum(map(len, own)) - sum(shared * (len(members) - 1) for shared, members in alike(own))
            self.tokens["prompt"] += tokens
            self.prefill_flops += 2.0 * self.weights * tokens

    def _decoded(self, ids: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor, _: torch.Tensor) -> None:
        rows, seen = ids.numel(), mask.shape[0] * mask.shape[2]
        looked = float(mask.sum())  # pairs of a new token and what it may see
        self.tokens["new"] += rows
        self.decode_flops += 2.0 * (self.weights + self.head) * rows + 4.0 * self.width * self.layers * looked
        self.decode_bytes += 4.0 * (self.weights + self.head) + self.kv_bytes * seen

    def _learned(self, samples: list[Sample], _: dict[str, float]) -> None:
        for row in rows_of(samples):
            prompt, replies = len(row.prompt), [len(s.token_ids) for s in row.samples]
            pairs = prompt * prompt / 2 + sum(t * prompt + t * t / 2 for t in replies)
            self.tokens["learn"] += prompt + sum(replies)
            self.learn_flops += 4.0 * self.weights * row.width + 4.0 * self.head * sum(replies)
            self.learn_flops += 3 * 4.0 * self.width * self.layers * pairs

    def learned(self, flops: float) -> str:
        """How far learning was from the rate `flops` of products."""
        ideal = self.learn_flops / flops
        return (
            f"{self.learn_flops / 1e9:.0f} GFLOP = {ideal:.2f} s at the ceiling, took {self.seconds['learn']:.2f} s: "
            f"{ideal / self.seconds['learn']:.0%} of it"
        )


def phases(model: str, dialogues: int, new_tokens: int, rounds: int, device: str, steps: int = 3) -> None:
    flops, bandwidth = ceilings(device)
    print(f"ceilings: {flops / 1e9:.0f} GFLOP/s, {bandwidth / 1e9:.1f} GB/s read")
    run = make([*always_speaking(model, dialogues, new_tokens, device), f"method.rounds={rounds}"])
    run.step = 1
    take_step(run)
    watch, wall = Watch(run), 0.0
    for step in range(2, 2 + steps):
        run.step = step
        start = time.perf_counter()
        take_step(run)
        wall += time.perf_counter() - start
    lines = [json.loads(line) for line in run.store.timings_file.read_text().splitlines()][1:]
    total = {k: sum(line[k] for line in lines) for k in ("play", "forks", "credit", "learn", "store")}
    s = watch.seconds
    shares = {
        "driver": total["play"] + total["forks"] - s["generate"],
        "prefill": s["prefill"],
        "decode": s["decode"],
        "rest of generation (draws, records, slots)": s["generate"] - s["prefill"] - s["decode"],
        "learn": s["learn"],
        "grade and credit": total["credit"],
        "store": total["store"],
    }
    print(f"{wall / steps:.2f} s a step of {dialogues} dialogues")
    for name, value in shares.items():
        print(f"  {name}: {value / wall:.1%}")
    print(f"decode {watch.tokens['new'] / s['decode']:.0f} tokens/s")
    compute, memory = watch.decode_flops / flops, watch.decode_bytes / bandwidth
    binding = "matrix products" if compute > memory else "memory"
    print(
        f"decode: {watch.decode_flops / 1e9:.0f} GFLOP = {compute:.2f} s, "
        f"{watch.decode_bytes / 1e9:.1f} GB = {memory:.2f} s at the ceilings, took {s['decode']:.2f} s: "
        f"{max(compute, memory) / s['decode']:.0%} of its ceiling ({binding})"
    )
    print(f"prefill: {watch.prefill_flops / flops / s['prefill']:.0%} of the rate of matrix products")
    if s["learn"]:
        print(f"learn, in these steps: {watch.learned(flops)}")
    watch.replies, watch.learn_flops, s["learn"] = [], 0.0, 0.0
    run.step += 1
    take_step(run)
    watch.learn_flops, s["learn"] = 0.0, 0.0
    run.team.learner.step(watch.replies)
    print(f"learn, every reply of a step: {watch.learned(flops)}")


def memory(model: str) -> None:
    """Peak of a process that takes one step, by the number of agents."""
    found = []
    for agents in (2, 4, 8):
        code = MEMORY.format(here=str(Path(__file__).parent), model=model, agents=agents)
        out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        peak, adapters, size = (int(v) for v in out.split()[-3:])
        found.append((adapters, peak))
        print(f"{agents} agents, {adapters} adapters of {size:,} parameters: peak {peak / 2**20:.0f} MB")
    growth = (found[-1][1] - found[0][1]) / (found[-1][0] - found[0][0])
    print(f"each further adapter: {growth / 2**20:.2f} MB = {growth / (16 * size):.2f} x its parameters x 16 bytes")


def scaling(model: str, device: str) -> None:
    """Seconds of a step against the number of dialogues, rounds and candidates, the others as they are."""
    base = always_speaking(model, 32, 48, device)
    cases = [(f"dialogues={n}", [f"dialogues={n}"]) for n in (8, 16, 32, 64, 128)]
    cases += [(f"rounds={n}", [f"method.rounds={n}"]) for n in (1, 3, 5, 7)]
    cases += [(f"candidates={n}", [f"method.candidates={n}"]) for n in (2, 4, 8)]
    for name, settings in cases:
        run = make(base + settings)
        times = []
        for step in range(1, 4):
            run.step = step
            start = time.perf_counter()
            take_step(run)
            times.append(time.perf_counter() - start)
        print(f"{name}: {min(times[1:]):.2f} s")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--dialogues", type=int, default=64)
    parser.add_argument("--new-tokens", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--scaling", action="store_true")
    parser.add_argument("--no-memory", action="store_true", help="leave the processes that measure memory out")
    args = parser.parse_args()
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, model {args.model}")
    phases(args.model, args.dialogues, args.new_tokens, args.rounds, args.device)
    if args.device == "cpu" and not args.no_memory:
        memory(args.model)
    if args.scaling:
        scaling(args.model, args.device)


if __name__ == "__main__":
    main()
