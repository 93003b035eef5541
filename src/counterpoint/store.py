"""The run directory: everything a run writes, appended or moved into place so that a killed run loses nothing whole."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from counterpoint.errors import DataError, ResumeError
from counterpoint.records import Episode

EPISODE: TypeAdapter[Episode] = TypeAdapter(Episode)
T = TypeVar("T")


class Store:
    """Paths and files of one run; see DESIGN.md for the layout."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.config_file = root / "config.yaml"
        self.metrics_file = root / "metrics.jsonl"
        self.timings_file = root / "timings.jsonl"
        self.summary_file = root / "summary.json"
        self.checkpoints = root / "checkpoints"

    def check(self, config_yaml: str, *, resume: bool) -> None:
        """Whether a run with these settings may use the directory: a fresh one, or with `resume` its own. Writes nothing."""
        if not self.config_file.exists():
            if resume:
                raise ResumeError(f"nothing to resume in {self.root}: it has no config.yaml")
            return
        if not resume:
            raise ResumeError(f"{self.root} already holds a run; add --resume to continue it or choose another --out")
        difference = _difference(self.config_file.read_text(encoding="utf-8"), config_yaml)
        if difference:
            raise ResumeError(f"{self.root} was started with other settings: {difference}; use another --out")

    def claim(self, config_yaml: str) -> None:
        """Write the settings that the directory belongs to from now on."""
        if not self.config_file.exists():
            self.root.mkdir(parents=True, exist_ok=True)
            write_text(self.config_file, config_yaml)

    # ---- episodes and metrics ------------------------------------------------------------------------------------

    def train_file(self, step: int) -> Path:
        return self.root / "train" / f"{step:06d}.jsonl"

    def eval_file(self, phase: str, name: str) -> Path:
        return self.root / phase / f"{slug(name)}.jsonl"

    def failed_file(self, phase: str, name: str) -> Path:
        """Dialogues that an engine's errors broke off: kept, and counted nowhere."""
        return self.root / "failed" / phase / f"{slug(name)}.jsonl"

    def append_episodes(self, path: Path, episodes: Iterable[Episode]) -> Iterator[Episode]:
        """Write each episode as it comes, flushed one by one, and pass it on."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            for episode in episodes:
                file.write(EPISODE.dump_json(episode) + b"\n")
                file.flush()
                yield episode

    def restart(self, path: Path) -> None:
        """Drop a file that is written anew."""
        path.unlink(missing_ok=True)

    def append_line(self, path: Path, record: Mapping[str, Any]) -> None:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record, sort_keys=True) + "\n")

    def rewind(self, step: int, *, ahead: bool = False) -> None:
        """Forget what was written after `step`: it will be written again, the same. `ahead` keeps the next step's dialogues."""
        for path in (self.metrics_file, self.timings_file):
            if path.exists():
                kept = [line for line in whole_lines(path) if json.loads(line)["step"] <= step]
                write_text(path, "".join(f"{line}\n" for line in kept))
        for file in (self.root / "train").glob("*.jsonl"):
            if int(file.stem) > step + ahead:
                file.unlink()

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        write_text(self.summary_file, json.dumps(summary, indent=1, sort_keys=True) + "\n")

    # ---- checkpoints ---------------------------------------------------------------------------------------------

    def newest_checkpoint(self) -> tuple[int, Path] | None:
        """The last one that was moved into place, with its step."""
        whole = sorted(p for p in self.checkpoints.glob("*") if p.name.isdigit())
        return (int(whole[-1].name), whole[-1]) if whole else None

    def start_checkpoint(self) -> Path:
        """An empty folder to write a checkpoint into, beside the finished ones."""
        folder = self.checkpoints / "writing"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder

    def finish_checkpoint(self, folder: Path, step: int, *, keep: int) -> None:
        """Move it into place, then drop all but the newest `keep`."""
        for path in folder.rglob("*"):
            if path.is_file():
                sync(path)
        folder.rename(self.checkpoints / f"{step:06d}")
        sync(self.checkpoints)
        whole = sorted(p for p in self.checkpoints.glob("*") if p.name.isdigit())
        for old in whole[:-keep]:
            shutil.rmtree(old)


class ReadOnlyStore(Store):
    """A run directory for the ranks that do not write to it."""

    def claim(self, config_yaml: str) -> None:
        pass

    def append_episodes(self, path: Path, episodes: Iterable[Episode]) -> Iterator[Episode]:
        yield from episodes

    def restart(self, path: Path) -> None:
        pass

    def append_line(self, path: Path, record: Mapping[str, Any]) -> None:
        pass

    def rewind(self, step: int, *, ahead: bool = False) -> None:
        pass

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        pass


def read_episodes(path: Path) -> list[Episode]:
    """Every whole episode of a file; an unfinished last line is left out, a malformed one is an error."""
    episodes = []
    for number, line in enumerate(whole_lines(path), start=1):
        try:
            episodes.append(EPISODE.validate_json(line))
        except ValidationError as error:
            raise DataError(f"{path}, line {number}: not an episode: {error.errors()[0]['msg']}") from error
    return episodes


def whole_lines(path: Path) -> list[str]:
    """Lines that end; what a kill left of the last one is dropped."""
    text = path.read_bytes()
    return text[: text.rfind(b"\n") + 1].decode().splitlines()


def write_text(path: Path, text: str) -> None:
    """Write beside and move into place: a reader sees the old file or the new one, whole."""
    beside = path.with_name(path.name + ".writing")
    beside.write_text(text, encoding="utf-8")
    sync(beside)
    beside.replace(path)


def sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def slug(name: str) -> str:
    """A task set's name as a file name."""
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in name)


def _difference(old: str, new: str) -> str:
    """The first lines that differ between two configs, or nothing."""
    import yaml

    before, after = _flat(yaml.safe_load(old)), _flat(yaml.safe_load(new))
    keys = [key for key in sorted(before | after) if before.get(key) != after.get(key)]
    return ", ".join(f"{key} was {before.get(key)!r}, now {after.get(key)!r}" for key in keys[:5])


def _flat(data: Any, prefix: str = "") -> dict[str, Any]:
    if isinstance(data, dict):
        items = [(f"{prefix}{key}", value) for key, value in data.items()]
    elif isinstance(data, list):
        items = [(f"{prefix}{i}", value) for i, value in enumerate(data)]
    else:
        return {prefix.removesuffix("."): data}
    return {k: v for key, value in items for k, v in _flat(value, f"{key}.").items()} or {prefix: None}
