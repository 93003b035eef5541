"""Where rows come from: files (JSON lines, CSV, parquet, arrow), the Hugging Face hub, ModelScope."""

from __future__ import annotations

import csv
import importlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from counterpoint.errors import DataError, MissingExtra


@dataclass(frozen=True, slots=True)
class Row:
    """One row and where it stands, for error messages."""

    where: str
    values: Mapping[str, Any]


def file_rows(path: Path, split: str) -> list[Row]:
    """The rows of a file, or of the files of `split` in a folder."""
    files = _split_files(path, split) if path.is_dir() else [path]
    rows = [row for file in files for row in _read(file)]
    if not rows:
        raise DataError(f"{path}: no rows; a task set needs at least one")
    return rows


def hub_rows(repo: str, config: str | None, split: str, *, name: str, revision: str | None = None) -> list[Row]:
    """The rows of a set on the Hugging Face hub, never of another set in its place."""
    try:
        import datasets
    except ImportError as error:
        raise MissingExtra("datasets", "hub", f"task set {name}") from error
    faults = (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError)
    try:
        loaded = datasets.load_dataset(repo, config, split=split, revision=revision)
    except faults as error:
        page = f"https://huggingface.co/datasets/{repo}"
        raise DataError(_unreachable(name, f"{repo} (split {split})", page, "HF_TOKEN", error)) from error
    return _numbered(f"hf:{repo}/{split}", loaded)


def modelscope_rows(repo: str, subset: str | None, split: str, *, name: str) -> list[Row]:
    """The rows of a set on ModelScope."""
    try:
        from modelscope.msdatasets import MsDataset
    except ImportError as error:
        raise MissingExtra("modelscope", "modelscope", f"task set {name}") from error
    chosen = {} if subset is None else {"subset_name": subset}
    try:
        loaded = MsDataset.load(repo, split=split, **chosen)
    except (OSError, ValueError, RuntimeError) as error:
        page = f"https://modelscope.cn/datasets/{repo}"
        raise DataError(_unreachable(name, f"{repo} (split {split})", page, "MODELSCOPE_API_TOKEN", error)) from error
    return _numbered(f"ms:{repo}/{split}", loaded)


def _unreachable(name: str, place: str, page: str, token: str, error: Exception) -> str:
    reason = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
    return (
        f"task set {name}: cannot load {place}: {reason}. If it is gated, accept its terms at {page} and set {token}; "
        f"offline, give a local copy with path: PATH"
    )


def _numbered(place: str, rows: Iterable[Mapping[str, Any]]) -> list[Row]:
    numbered = [Row(f"{place} row {number}", dict(row)) for number, row in enumerate(rows)]
    if not numbered:
        raise DataError(f"{place}: no rows; a task set needs at least one")
    return numbered


def _split_files(folder: Path, split: str) -> list[Path]:
    """The files of a split: test.jsonl, test-00000-of-00001.parquet, or test/*.arrow, here or under data/."""
    for place in (folder, folder / "data"):
        for pattern in (f"{split}.*", f"{split}-*.*", f"{split}/*.*"):
            found = sorted(file for file in place.glob(pattern) if file.suffix in READERS)
            if found:
                return [file for file in found if file.suffix == found[0].suffix]
    raise DataError(f"{folder}: no file of split {split!r}; expected {split}.jsonl, .csv, .parquet or .arrow")


def _read(path: Path) -> list[Row]:
    if path.suffix not in READERS:
        raise DataError(f"{path}: unknown kind of file {path.suffix!r}; known: {', '.join(READERS)}")
    try:
        return READERS[path.suffix](path)
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 at byte {error.start}") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error


def _jsonl(path: Path) -> list[Row]:
    rows = []
    with path.open(encoding="utf-8-sig") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                values = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise DataError(f"{path}:{number}: not JSON: {error}") from error
            if not isinstance(values, dict):
                raise DataError(f"{path}:{number}: expected a JSON object, got {type(values).__name__}")
            rows.append(Row(f"{path}:{number}", values))
    return rows


def _csv(path: Path) -> list[Row]:
    with path.open(encoding="utf-8-sig", newline="") as lines:
        reader = csv.DictReader(lines, strict=True)
        try:
            rows = [Row(f"{path}:{reader.line_num}", values) for values in reader]
        except csv.Error as error:
            raise DataError(f"{path}:{reader.line_num}: not CSV: {error}") from error
    for row in rows:
        if None in row.values or None in row.values.values():
            raise DataError(f"{row.where}: another number of cells than the header has")
    return rows


def _parquet(path: Path) -> list[Row]:
    arrow = _pyarrow("pyarrow", path)
    try:
        return _numbered(str(path), _pyarrow("pyarrow.parquet", path).read_table(path).to_pylist())
    except arrow.ArrowException as error:
        raise DataError(f"{path}: not parquet: {error}") from error


def _arrow(path: Path) -> list[Row]:
    """Arrow in either form: the file format, or the stream that `datasets` writes to disk."""
    arrow, ipc = _pyarrow("pyarrow", path), _pyarrow("pyarrow.ipc", path)
    content = path.read_bytes()
    opener = ipc.open_file if content.startswith(b"ARROW1") else ipc.open_stream
    try:
        return _numbered(str(path), opener(arrow.BufferReader(content)).read_all().to_pylist())
    except arrow.ArrowException as error:
        raise DataError(f"{path}: not arrow: {error}") from error


def _pyarrow(module: str, path: Path) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtra("pyarrow", "hub", f"reading {path}") from error


READERS: dict[str, Callable[[Path], list[Row]]] = {
    ".jsonl": _jsonl,
    ".csv": _csv,
    ".parquet": _parquet,
    ".arrow": _arrow,
}
