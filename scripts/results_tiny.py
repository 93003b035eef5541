"""The table of the bundled team: `counterpoint train` for several seeds, before and after, with a paired interval.

    python scripts/results_tiny.py [--seeds 3] [--out runs/results-tiny] [key=value ...]

Runs that are on disk are not run again. Prints Markdown.
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
from counterpoint.store import read_episodes


def run(seed: int, out: Path, overrides: list[str]) -> Path:
    """Train one seed unless its summary is there; keeps the wall time and the peak memory beside the run."""
    folder = out / f"seed{seed}"
    if not (folder / "summary.json").exists():
        flags = ["--resume"] if (folder / "config.yaml").exists() else []
        start = time.time()
        command = [
            sys.executable,
            "-m",
            "counterpoint.cli",
            "train",
            f"seed={seed}",
            *overrides,
            "--out",
            str(folder),
            *flags,
        ]
        log = (out / f"seed{seed}.log").open("a")
        timed = ["/usr/bin/time", "-v", *command] if Path("/usr/bin/time").exists() else command
        subprocess.run(timed, check=True, stdout=log, stderr=log)
        (out / f"seed{seed}.seconds").write_text(f"{time.time() - start:.0f}\n")
    return folder


def right(folder: Path, phase: str, name: str) -> np.ndarray:
    """Which problems were answered right, in the order of their ids."""
    return right_answers(read_episodes(folder / phase / f"{name}.jsonl"))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("runs/results-tiny"))
    parser.add_argument("overrides", nargs="*")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    folders = [run(seed, args.out, args.overrides) for seed in range(args.seeds)]
    summaries = [json.loads((f / "summary.json").read_text()) for f in folders]
    columns = ("task set", "untrained", "trained", "difference [95 %]", "first answer", "calls before", "calls")
    columns += ("tokens before", "tokens")
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for name in summaries[0]["eval"]:
        differences = np.stack([right(f, "eval", name) - right(f, "untrained", name) for f in folders])
        mean, low, high = paired_bootstrap(differences, generator(0, "results", name), resamples=10_000)
        cells = [f"{_mean(summaries, phase, name, 'accuracy'):.3f}" for phase in ("untrained", "eval")]
        cells += [f"{mean:+.3f} [{low:+.3f}, {high:+.3f}]", f"{_mean(summaries, 'eval', name, 'initial_accuracy'):.3f}"]
        for key, digits in (("calls_per_problem", 2), ("tokens_per_problem", 0)):
            cells += [f"{_mean(summaries, phase, name, key):.{digits}f}" for phase in ("untrained", "eval")]
        print(f"| {name} | {' | '.join(cells)} |")
    for seed in range(args.seeds):
        seconds = args.out / f"seed{seed}.seconds"
        log = (args.out / f"seed{seed}.log").read_text()
        peak = [line.split()[-1] for line in log.splitlines() if "Maximum resident" in line]
        took = seconds.read_text().strip() if seconds.exists() else "?"
        print(f"\nseed {seed}: {took} s, peak {int(peak[-1]) // 1024 if peak else '?'} MB")


def _mean(summaries: list[dict], phase: str, name: str, key: str) -> float:
    return float(np.mean([s[phase][name][key] for s in summaries]))


if __name__ == "__main__":
    main()
