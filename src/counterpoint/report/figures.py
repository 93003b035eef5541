"""What a figure is: rows to draw and to read as a table, a caption, and a sentence that says what is to be seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["intervals", "scatter", "lines", "heat", "flow", "bars"]
Row = Mapping[str, Any]
MOST_POINTS = 240  # of one line, or columns of one heat map


@dataclass(frozen=True, slots=True)
class Figure:
    """One plot; the script in the page draws it from `kind`, `rows` and `options`."""

    id: str
    kind: Kind
    title: str
    caption: str
    alt: str
    rows: list[Row]
    options: dict[str, Any] = field(default_factory=dict)
    wide: bool = False

    def record(self) -> dict[str, Any]:
        return {"id": self.id, "kind": self.kind, "rows": self.rows, "options": self.options}


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page: figures, and tables as (caption, head, body)."""

    id: str
    title: str
    intro: str
    figures: list[Figure] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Table:
    """Cells are text; a row's second part marks it (a setting that differs, a difference that is clear)."""

    caption: str
    head: list[str]
    body: list[tuple[list[str], bool]]


def share(value: float | None) -> str:
    """0.423, or a dash where there is nothing to share."""
    return "–" if value is None else f"{value:.3f}"


def signed(value: float | None) -> str:
    return "–" if value is None else f"{value:+.3f}"


def thin(points: Sequence[tuple[float, float]], most: int = MOST_POINTS) -> list[tuple[float, float]]:
    """At most `most` points: means of equal stretches, each at its middle."""
    if len(points) <= most:
        return list(points)
    size = -(-len(points) // most)
    parts = [points[i : i + size] for i in range(0, len(points), size)]
    return [(sum(x for x, _ in p) / len(p), sum(y for _, y in p) / len(p)) for p in parts]


def every(steps: Sequence[int], most: int = MOST_POINTS) -> list[int]:
    """At most about `most` of the steps, evenly, the last one always."""
    size = -(-len(steps) // most) or 1
    return sorted({*steps[::size], *steps[-1:]})


def line_rows(panel: str, series: str, points: Sequence[tuple[float, float]]) -> list[Row]:
    """Rows of one line."""
    return [{"panel": panel, "series": series, "x": round(x, 2), "y": round(y, 5)} for x, y in thin(points)]


def describe_lines(rows: Sequence[Row], unit: str = "step") -> str:
    """Each line in words: where it starts, where it ends, its extremes."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        name = " ".join(part for part in (row["panel"], row["series"]) if part)
        lines.setdefault(name, []).append((row["x"], row["y"]))
    said = []
    for name, points in list(lines.items())[:8]:
        values = [y for _, y in points]
        said.append(
            f"{name or 'value'} goes from {values[0]:.3g} at {unit} {points[0][0]:g} to {values[-1]:.3g} at {unit} "
            f"{points[-1][0]:g}, between {min(values):.3g} and {max(values):.3g}"
        )
    more = f"; {len(lines) - 8} more lines in the table" if len(lines) > 8 else ""
    return "; ".join(said) + more + "."
