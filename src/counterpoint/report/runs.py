"""A run directory as the report reads it: whatever is there, of a finished, unfinished or killed run, from any machine."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from counterpoint.dialogue import Method
from counterpoint.errors import ConfigError, DataError
from counterpoint.methods import make_method
from counterpoint.records import Episode
from counterpoint.store import EPISODE, Store, slug
from counterpoint.tasks.spec import read_spec

PHASE_TITLES = {"untrained": "untrained", "eval": "trained", "train": "training"}


@dataclass(slots=True)
class Run:
    """Settings and small files of one run; episodes are streamed."""

    root: Path
    label: str
    config: dict[str, Any]
    method: Method
    creditable: bool  # False where the method's own hooks cannot be loaded here
    metrics: list[dict[str, Any]]
    timings: list[dict[str, Any]]
    summary: dict[str, Any]
    notes: list[str] = field(default_factory=list)

    @property
    def agents(self) -> tuple[str, ...]:
        return tuple(agent["name"] for agent in self.config["agents"])

    @property
    def done(self) -> int:
        """Steps whose metrics are on disk: the steps that are whole."""
        return max((int(line["step"]) for line in self.metrics), default=0)

    @property
    def status(self) -> str:
        total = int(self.config.get("steps", 0))
        if self.summary:
            return f"finished, {total} steps" if total else "finished, evaluation only"
        return f"unfinished: {self.done} of {total} steps"

    def train_files(self) -> list[tuple[int, Path]]:
        return sorted((int(p.stem), p) for p in (self.root / "train").glob("*.jsonl") if p.stem.isdigit())

    def phases(self) -> dict[str, dict[str, Path]]:
        """Evaluation files by phase (untrained, eval, eval-greedy, ...) and task set."""
        folders = [
            f for f in self.root.glob("*") if f.is_dir() and (f.name == "untrained" or f.name.split("-")[0] == "eval")
        ]
        names = {slug(name): name for name in map(set_name, self.config["tasks"]["eval"])}
        found = {f.name: {names.get(p.stem, p.stem): p for p in sorted(f.glob("*.jsonl"))} for f in folders}
        return {phase: found[phase] for phase in sorted(found, key=lambda p: (p != "untrained", p))}

    def episodes(self, path: Path, *, near: str = "") -> Iterator[Episode]:
        """Every whole episode of a file, one by one; lines that are none are counted in the notes.

        `near` passes over lines that do not have this text where their id stands, without reading them.
        """
        bad, wanted = 0, json.dumps(near, ensure_ascii=False)[1:-1].encode()
        with path.open("rb") as file:
            for line in file:
                if not line.endswith(b"\n"):
                    self.notes.append(f"{_short(path)}: its last line is unfinished and is left out")
                    continue
                if wanted not in line[: 1000 + len(wanted)]:
                    continue
                try:
                    yield EPISODE.validate_json(line)
                except ValidationError:
                    bad += 1
        if bad:
            self.notes.append(f"{_short(path)}: {bad} lines are not episodes and are left out")


def open_run(root: Path, label: str | None = None) -> Run:
    """Read a run directory's small files. Raises DataError where there is no run."""
    store = Store(root)
    if not store.config_file.is_file():
        raise DataError(f"no run in {root}: it has no config.yaml")
    config = yaml.safe_load(store.config_file.read_text(encoding="utf-8"))
    if not isinstance(config, dict) or not {"method", "tasks", "agents"} <= config.keys():
        raise DataError(f"{store.config_file} is not the resolved config of a run")
    notes: list[str] = []
    method, creditable = _method(config["method"], notes)
    summary = json.loads(store.summary_file.read_text(encoding="utf-8")) if store.summary_file.is_file() else {}
    metrics, timings = _lines(store.metrics_file, notes), _lines(store.timings_file, notes)
    return Run(root, label or root.name, config, method, creditable, metrics, timings, summary, notes)


def open_runs(roots: Sequence[Path]) -> list[Run]:
    """Several runs with labels that tell them apart: the folder's name, with its parent's where two are equal.

    A folder that is no run stands for the runs in it, as `compare` lays them out: ENTRY/seedK.
    """
    roots = [run.resolve() for root in roots for run in _inside(root)]
    if len(set(roots)) < len(roots):
        raise DataError("a run directory is named twice")
    names = [root.name for root in roots]
    labels = [n if names.count(n) == 1 else f"{r.parent.name}/{n}" for n, r in zip(names, roots, strict=True)]
    if len(set(labels)) < len(labels):
        labels = [str(root) for root in roots]
    return [open_run(root, label) for root, label in zip(roots, labels, strict=True)]


def _inside(root: Path) -> list[Path]:
    if (root / "config.yaml").is_file():
        return [root]
    found = sorted(file.parent for pattern in ("*", "*/*") for file in root.glob(f"{pattern}/config.yaml"))
    return found or [root]


def phase_title(phase: str) -> str:
    """How a phase is called on the page: eval-greedy reads "trained, greedy"."""
    return PHASE_TITLES.get(phase) or f"trained, {phase.removeprefix('eval-')}"


def set_name(spec: Any) -> str:
    """A task set's name, from its entry in the config."""
    return read_spec(spec).label


def flat(data: Any, prefix: str = "") -> dict[str, Any]:
    """Settings as {"method.rounds": 5, ...}."""
    if isinstance(data, Mapping) and data:
        return {k: v for key, value in data.items() for k, v in flat(value, f"{prefix}{key}.").items()}
    if isinstance(data, list) and any(isinstance(item, Mapping | list) for item in data):
        return {k: v for i, value in enumerate(data) for k, v in flat(value, f"{prefix}{i}.").items()}
    return {prefix.removesuffix("."): data}


def _method(data: Mapping[str, Any], notes: list[str]) -> tuple[Method, bool]:
    """The run's method; without its hooks where those do not exist on this machine."""
    try:
        return make_method(data), True
    except ConfigError as error:
        plain = {key: value for key, value in data.items() if key not in ("hooks", "agent_hooks")}
        if len(plain) == len(data):
            raise
        method = make_method(plain)
        notes.append(f"credit and rewards are not shown: {error}")
        return method, False


def _lines(path: Path, notes: list[str]) -> list[dict[str, Any]]:
    """The whole JSON lines of a file, if it exists."""
    if not path.is_file():
        return []
    found = []
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], start=1):
        try:
            found.append(json.loads(line))
        except ValueError:
            notes.append(f"{_short(path)}, line {number}: not JSON, left out")
    return found


def _short(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"
