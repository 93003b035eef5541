"""Does a team learn under vLLM as it does under transformers? Same config, several seeds, one after the other.

    python scripts/results_vllm.py [--seeds 3] [--out runs/results-vllm]      (needs vllm: docs/scaling.md)

Prints accuracy before and after for each engine, and the paired bootstrap interval of their difference.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from counterpoint.algorithms.stats import paired_bootstrap
from counterpoint.evaluate import right_answers
from counterpoint.rng import generator
from counterpoint.store import Store, read_episodes

SETTINGS = ["steps=20", "dialogues=48", "tasks.eval=[mini-gsm]", "evaluation.also=none"]
ENGINES = {"hf": ["engine.name=hf"], "vllm": ["engine={name: vllm, compile: false, cache_gib: 0.5}"]}


def right(folder: Path, phase: str) -> np.ndarray:
    return right_answers(read_episodes(Store(folder).eval_file(phase, "mini-gsm")))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("runs/results-vllm"))
    args = parser.parse_args()
    found: dict[str, list[np.ndarray]] = {}
    for seed in range(args.seeds):
        for engine, own in ENGINES.items():
            folder = args.out / engine / f"seed{seed}"
            start = time.perf_counter()
            if not Store(folder).summary_file.exists():
                words = ["train", *SETTINGS, *own, f"seed={seed}", "--out", str(folder), "--quiet"]
                subprocess.run([sys.executable, "-m", "counterpoint", *words], check=True, stdout=subprocess.DEVNULL)
            before, after = right(folder, "untrained"), right(folder, "eval")
            found.setdefault(engine, []).append(after)
            lines = [json.loads(line) for line in Store(folder).metrics_file.read_text().splitlines()]
            gap = max((v for line in lines for k, v in line.items() if "engine_logp_gap_max" in k), default=0.0)
            print(
                f"{engine}, seed {seed}: {before.mean():.3f} -> {after.mean():.3f}, largest log-probability gap {gap:.1e}, "
                f"{time.perf_counter() - start:.0f} s",
                flush=True,
            )
    both = {engine: np.stack(rows) for engine, rows in found.items()}
    for engine, values in both.items():
        mean, low, high = paired_bootstrap(values, generator(0, engine), resamples=4000)
        print(f"{engine}: {mean:.3f} [{low:.3f}, {high:.3f}]")
    mean, low, high = paired_bootstrap(both["vllm"] - both["hf"], generator(0, "difference"), resamples=4000)
    print(f"vllm - hf: {mean:+.3f} [{low:+.3f}, {high:+.3f}]")


if __name__ == "__main__":
    main()
