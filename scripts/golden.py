"""Rewrite tests/golden/: transcripts of the scripted team, and the training curve of the bundled model's first steps."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import torch

from counterpoint.config import load_config
from counterpoint.methods import make_method
from counterpoint.records import Episode, Task
from counterpoint.testing import play_all
from counterpoint.train import train

FOLDER = Path(__file__).parents[1] / "tests" / "golden"
TASKS = tuple(Task(f"q{i}", f"What is {i} + 4?", str(i + 4), "number") for i in range(4))
CURVE = [
    "steps=2",
    "dialogues=8",
    "tasks.eval=[mini-gsm]",
    "evaluation.limit=16",
    "evaluation.also=none",
    "model.device=cpu",
]
KEPT = (
    "accuracy",
    "calls_per_problem",
    "reward/proposer",
    "reward/reviewer",
    "learn/ratio_max/proposer",
    "learn/grad_norm/proposer",
)


def transcripts() -> dict[str, list[list[str]]]:
    """What was said and decided, a line each, for the default and the published fidelity."""
    found = {}
    for name, settings in {
        "default": {},
        "outcome": {"value": "outcome"},
        "published": {"fidelity": "published"},
    }.items():
        episodes, forks, _ = play_all(make_method({"name": "propose_review", **settings}), TASKS)
        found[name] = [_lines(episode) for episode in [*episodes, *forks]]
    return found


def _lines(episode: Episode) -> list[str]:
    said = [f"{t.group}.{t.sample} {t.agent} {t.tag}: {t.completion.text}" for t in episode.turns]
    decided = [f"{d.controller} {d.state} -> {d.action} (before {d.group})" for d in episode.decisions]
    return [episode.id, *said, *decided, f"answer {episode.answer}"]


def curve() -> list[dict[str, float]]:
    """Metrics of the first steps of the bundled team, and its measured accuracy."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        summary = train(load_config(None, CURVE), Path(folder) / "run")
        lines = (Path(folder) / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    steps = [{key: json.loads(line)[key] for key in KEPT} for line in lines]
    return [*steps, {"accuracy": summary["eval"]["mini-gsm"]["accuracy"]}]


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, data in {"transcripts": transcripts(), "curve": curve()}.items():
        (FOLDER / f"{name}.json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
        print(f"wrote tests/golden/{name}.json")
