"""How much does a team lose when one agent says nothing? For every finished run of a comparison, agent by agent.

    python scripts/free_riders.py runs/credit-tiny [--task-set mini-gsm]

An agent whose silence costs nothing rode for free. Accuracy with everybody is the run's own evaluation; the muted ones are
measured from the last checkpoint with `evaluation.mute`. Intervals: paired bootstrap over problems and seeds.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from counterpoint.algorithms.stats import paired_bootstrap
from counterpoint.config import load_config
from counterpoint.evaluate import right_answers
from counterpoint.progress import Progress
from counterpoint.rng import generator
from counterpoint.store import Store, read_episodes
from counterpoint.train import evaluate_only, evaluation_config


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("comparison", type=Path)
    parser.add_argument("--task-set", default="mini-gsm")
    args = parser.parse_args()
    print("| entry | muted | accuracy with everybody % | without % | lost [95 %] |\n|---|---|---|---|---|")
    for entry in sorted(path for path in args.comparison.iterdir() if path.is_dir()):
        runs = sorted(folder for folder in entry.glob("seed*") if Store(folder).summary_file.exists())
        whole = np.stack([right_answers(read_episodes(Store(run).eval_file("eval", args.task_set))) for run in runs])
        for agent in load_config(runs[0] / "config.yaml").names:
            without = []
            for run in runs:
                words = [f"evaluation.mute=[{agent}]", f"tasks.eval=[{args.task_set}]"]
                config = evaluation_config(str(run), words)
                _, folder = evaluate_only(str(run), config, None, Progress(quiet=True))
                without.append(right_answers(read_episodes(Store(folder).eval_file("eval", args.task_set))))
            rest = np.stack(without)
            lost, low, high = paired_bootstrap(whole - rest, generator(0, entry.name, agent), resamples=4000)
            print(
                f"| {entry.name} | {agent} | {100 * whole.mean():.1f} | {100 * rest.mean():.1f} "
                f"| {100 * lost:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}] |",
                flush=True,
            )


if __name__ == "__main__":
    main()
