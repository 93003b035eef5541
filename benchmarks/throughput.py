"""Whole training and evaluation dialogues a second, side by side with the plain loop, in one run.

    python benchmarks/throughput.py [--model tiny|PATH.gguf] [--dialogues 64] [--plain 4] [--device cpu] [--phase evaluate]

Both sides: 2 agents, 5 rounds, everybody always speaks, 4 candidates in training, the same limit on new tokens. The plain
loop's rate does not depend on the number of dialogues, so it is measured on `--plain` of them.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from pathlib import Path
from statistics import median

import torch
from plain_loop import measure

from counterpoint.config import load_config
from counterpoint.evaluate import Player, evaluate_set
from counterpoint.models import model_path
from counterpoint.progress import Progress
from counterpoint.run import Run
from counterpoint.step import take_step
from counterpoint.store import Store
from counterpoint.train import prepare

ALWAYS = "{name: fixed, p_speak: 1.0}"


def always_speaking(model: str, dialogues: int, new_tokens: int, device: str) -> list[str]:
    """Settings of the run that is timed: everybody always speaks, nothing is evaluated."""
    return [
        f"model.name={model}", f"model.device={device}", f"dialogues={dialogues}", "steps=99", "tasks.eval=[]",
        f"sampling.max_new_tokens={new_tokens}",
        f"method.propose_controller={ALWAYS}", f"method.review_controller={ALWAYS}",
    ]  # fmt: skip


def prepared(folder: str, model: str, dialogues: int, new_tokens: int, device: str) -> Run:
    """An always speaking team before its first step."""
    measured = ["tasks.eval=[mini-gsm]", f"evaluation.limit={dialogues}"]
    config = load_config(None, always_speaking(model, dialogues, new_tokens, device) + measured)
    return prepare(config, Store(Path(folder)), Progress(quiet=True))


def step_seconds(run: Run, steps: int) -> list[float]:
    """The time of each of the first steps."""
    seconds = []
    for step in range(1, steps + 1):
        run.step = step
        start = time.perf_counter()
        take_step(run)
        seconds.append(time.perf_counter() - start)
    return seconds


def training(run: Run, steps: int = 3) -> dict[str, float]:
    """Whole steps with store and grading, after one warm-up step."""
    seconds = step_seconds(run, steps + 1)
    timings = [json.loads(line) for line in run.store.timings_file.read_text().splitlines()][1:]
    total = {k: sum(t[k] for t in timings) for k in ("play", "forks", "credit", "learn", "store")}
    whole = sum(total.values())
    return {
        "train dialogues/s": run.config.dialogues / median(seconds[1:]),
        "tokens/s in play": sum(t["tokens"] for t in timings) / (total["play"] + total["forks"]),
        **{f"share of {k}": v / whole for k, v in total.items()},
    }


def evaluation(run: Run, times: int = 3) -> dict[str, float]:
    """Whole evaluations, written and measured."""
    config = run.config
    player = Player(
        config.method, config.names, run.team.engine, run.controllers, config.sampling.record(), 0, config.width
    )
    seconds = []
    for k in range(times):
        start = time.perf_counter()
        evaluate_set(player, "mini-gsm", run.eval_tasks["mini-gsm"], store=run.store, phase=f"eval{k}")
        seconds.append(time.perf_counter() - start)
    return {"evaluate dialogues/s": config.dialogues / median(seconds)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--dialogues", type=int, default=64)
    parser.add_argument("--plain", type=int, default=4)
    parser.add_argument("--new-tokens", type=int, default=48)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--phase", choices=("train", "evaluate", "both"), default="both")
    args = parser.parse_args()
    from counterpoint.tasks.registry import load_tasks

    tasks = load_tasks("mini-gsm", "train")[: args.plain]
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, model {args.model}")
    mine = {}
    with tempfile.TemporaryDirectory() as folder:
        run = prepared(folder, args.model, args.dialogues, args.new_tokens, args.device)
        if args.phase != "evaluate":
            mine |= training(run)
        if args.phase != "train":
            mine |= evaluation(run)
    for name, value in mine.items():
        print(f"counterpoint: {name} {value:.3g}")
    for phase, train in (("train", True), ("evaluate", False)):
        if args.phase not in (phase, "both"):
            continue
        rate, tokens = measure(model_path(args.model), tasks, new_tokens=args.new_tokens, train=train)
        ratio = mine[f"{phase} dialogues/s"] / rate
        print(
            f"plain loop: {phase} dialogues/s {rate:.3g}, tokens/s {tokens:.3g}; counterpoint is {ratio:.1f} x as fast"
        )
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MB (both sides)")


if __name__ == "__main__":
    main()
