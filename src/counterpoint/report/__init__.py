"""The report: run directories in, one self-contained HTML file out. Reads files only; torch is never loaded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from counterpoint.errors import DataError
from counterpoint.report.collect import collect
from counterpoint.report.pack import Packer
from counterpoint.report.page import render
from counterpoint.report.runs import open_runs
from counterpoint.store import write_text

LIMIT = 20_000  # dialogues in the browser


def write_report(dirs: Sequence[Path], out: Path | None = None, *, limit: int = LIMIT) -> Path:
    """Write the report of one or several runs; into the run directory of the first when `out` is not given."""
    if not dirs:
        raise DataError("a report needs at least one run directory")
    runs = open_runs(dirs)
    packer = Packer()
    collected = collect(runs, packer, limit=limit)
    target = out or (dirs[0] / "report.html" if len(dirs) == 1 else Path("report.html"))
    if target.is_dir():
        target = target / "report.html"
    target.parent.mkdir(parents=True, exist_ok=True)
    write_text(target, render(collected, packer))
    return target
