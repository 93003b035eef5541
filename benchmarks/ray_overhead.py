"""What Ray adds: seconds of a call through replicas beyond the engine's own, at a known cost of every request.

    python benchmarks/ray_overhead.py [--replicas 2] [--requests 64] [--seconds 0.05] [--calls 5]

The inner engine sleeps a fixed time for each request. What it takes for the longest share alone, in this process, is the
engine's own work, for replicas work side by side; whatever lies above is splitting, sending, waking and collecting.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Mapping, Sequence
from functools import partial

from counterpoint.engines.base import Engine
from counterpoint.engines.ray import RayEngine, split
from counterpoint.engines.scripted import ScriptedEngine
from counterpoint.models import Model
from counterpoint.records import Completion, Message, Request, Sampling
from counterpoint.rng import fold

REPLY = "Natalia sold 48 / 2 = 24 clips in May.\nFinal answer: 72\n" * 4


class Sleeping(ScriptedEngine):
    """Takes its time over every request."""

    def __init__(self, seconds: float) -> None:
        super().__init__(lambda request, seed: REPLY)
        self.seconds = seconds

    def _complete(self, request: Request, seed: int, sampling: Sampling) -> Completion:
        time.sleep(self.seconds / request.n)
        return super()._complete(request, seed, sampling)


def opened(seconds: float) -> tuple[Sleeping, Mapping[str, Model]]:
    return Sleeping(seconds), {}


def timed(engine: Engine, requests: Sequence[Request], seeds: Sequence[int]) -> float:
    start = time.perf_counter()
    engine.generate(requests, seeds=seeds, sampling=Sampling())
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=0.05)
    parser.add_argument("--calls", type=int, default=5)
    args = parser.parse_args()
    engine = RayEngine(partial(opened, args.seconds), replicas=args.replicas, cpus=0)
    asked = [
        Request(f"agent{k % 2}/proposer", (Message("user", "How many clips did she sell? " * (8 + k % 7)),), "t", 4)
        for k in range(args.requests)
    ]
    seeds = [fold(0, k) for k in range(args.requests)]
    longest = max(split(asked, args.replicas), key=len)
    share = [asked[k] for k in longest], [seeds[k] for k in longest]
    alone, whole = [], []
    timed(engine, asked[: args.replicas], seeds[: args.replicas])
    for _ in range(args.calls):
        engine.publish()
        alone.append(timed(Sleeping(args.seconds), *share))
        whole.append(timed(engine, asked, seeds))
    own, typical = statistics.median(alone), statistics.median(whole)
    print(
        f"{args.replicas} replicas, {args.requests} requests x 4 replies: {typical:.3f} s a call, "
        f"{own:.3f} s of it the engine's: {100 * (typical / own - 1):.1f} % more "
        f"(lowest {100 * (min(whole) / own - 1):.1f} %, highest {100 * (max(whole) / own - 1):.1f} %)"
    )
    engine.close()


if __name__ == "__main__":
    main()
