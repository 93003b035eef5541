"""Builds run directories with the real trainer, a scripted engine and a learner that only writes numbers down."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import counterpoint.train as training
from counterpoint.config import Config, load_config
from counterpoint.engines.scripted import ScriptedEngine
from counterpoint.records import Request, Sample
from counterpoint.rng import fold, uniform
from counterpoint.tasks.registry import load_tasks
from counterpoint.team import Team

SETS = ("mini-gsm", "mini-math", "mini-choice")
BASE = [
    "method={name: propose_review, value: immediate}",
    "tasks.eval=[mini-gsm, mini-math, mini-choice]",
    "evaluation.limit=40",
    "sampling.max_new_tokens=400",
]


class NumbersOnly:
    """A learner that learns nothing and reports what a real one would, as functions of its step."""

    def __init__(self, team: _Skill) -> None:
        self.team = team

    def step(self, samples: Sequence[Sample]) -> dict[str, float]:
        self.team.steps += 1
        t, metrics = self.team.steps, {"samples": float(len(samples))}
        for role in ("proposer", "reviewer"):
            wave = uniform(7, role, t)
            metrics[f"ratio_mean/{role}"] = 1 + 0.002 * (wave - 0.5)
            metrics[f"ratio_max/{role}"] = 1.05 + 0.1 * wave
            metrics[f"clip_fraction/{role}"] = 0.04 + 0.05 * wave
            metrics[f"grad_norm/{role}"] = 0.3 + 0.2 * wave
            metrics[f"nonfinite_updates/{role}"] = 0.0
        return metrics

    def save(self, folder: Path) -> None:
        (folder / "learner.txt").write_text(str(self.team.steps), encoding="utf-8")

    def load(self, folder: Path) -> None:
        self.team.steps = int((folder / "learner.txt").read_text(encoding="utf-8"))


class _Skill:
    """Writes solutions and reviews that get better with every step."""

    def __init__(self, golds: dict[str, tuple[str, str]], spoil: Callable[[str, int], str]) -> None:
        self.golds, self.spoil, self.steps = golds, spoil, 0

    def __call__(self, request: Request, seed: int) -> str:
        question = request.messages[-1].content
        gold, form = next(v for q, v in self.golds.items() if question.startswith(q))
        luck = uniform(seed, "luck")
        if request.tag.startswith("review"):
            pending = question.rsplit("Solution:", 1)[-1]
            right = f"Final answer: {form.format(gold)}" in pending
            said = right == (luck < 0.6 + 0.03 * min(self.steps, 10))
            return self.spoil(f"I solve it again and compare.\nVerdict: {'RIGHT' if said else 'WRONG'}", seed)
        if luck < 0.3 + 0.03 * min(self.steps, 12):
            return self.spoil(f"Step by step: {seed % 7} + {seed % 5}.\nFinal answer: {form.format(gold)}", seed)
        if luck > 0.97:
            return self.spoil("I am not sure where to begin.", seed)
        other = "ABCD"[seed % 4] if gold.isalpha() else str(seed % 60 + 61)
        return self.spoil(f"Perhaps {other}.\nFinal answer: {form.format(other)}", seed)


def golds() -> dict[str, tuple[str, str]]:
    """Question -> (gold, how it is written) of the bundled sets, longest question first."""
    found = {}
    for name in SETS:
        for split in ("train", "test"):
            for task in load_tasks(name, split):
                found[task.question] = (task.answer, "\\boxed{{{}}}" if task.kind == "math" else "{}")
    return dict(sorted(found.items(), key=lambda item: -len(item[0])))


def scripted_team(spoil: Callable[[str, int], str]) -> Callable[[Config], Team]:
    """What `build_team` is replaced by."""
    skill = _Skill(golds(), spoil)

    def build(config: Config, ranks: object = None) -> Team:
        learner: Any = NumbersOnly(skill)
        return Team(config.names, {}, ScriptedEngine(skill), learner)

    return build


def build_run(
    out: Path, *overrides: str, spoil: Callable[[str, int], str] = lambda text, seed: text, resume: bool = False
) -> dict[str, Any]:
    """Train in `out` for a few steps; returns the summary."""
    config = load_config(None, [*BASE, "steps=6", "dialogues=12", *overrides])
    with patch.object(training, "build_team", scripted_team(spoil)):
        return training.train(config, out, resume=resume)


HOSTILE = (
    "<script>window.hit=1</script>",
    "</script><script>window.hit=2</script>",
    '<img src=x onerror="window.hit=3">',
    "x" * 100_000,
    "\u202eevil\u2066 marks\u2069 \u200f\u200e\x1b[31mred\x00",
    "{{ 7*7 }} {% raw %} ${7*7} <!-- <script> --> ]]>",
)


def hostile(text: str, seed: int) -> str:
    """The reply with something nasty in front of it."""
    return f"{HOSTILE[fold(seed, 'nasty') % len(HOSTILE)]}\n{text}"


def drop_summary(run: Path) -> None:
    """Make a finished run look killed: no summary, half a line at the end of its files."""
    (run / "summary.json").unlink()
    for path in [run / "metrics.jsonl", *sorted((run / "train").glob("*.jsonl"))[-1:]]:
        text = path.read_bytes()
        path.write_bytes(text[: -len(text.splitlines()[-1]) // 2])


def strip_machine(run: Path) -> None:
    """As if copied from a machine with other paths: a model and a hook that do not exist here."""
    text = (run / "config.yaml").read_text(encoding="utf-8")
    text = re.sub(r"name: tiny", "name: /no/such/place/model", text)
    (run / "config.yaml").write_text(text, encoding="utf-8")
