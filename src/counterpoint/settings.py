"""The base of all settings: frozen, unknown keys refused, the docstring under a field is its help text."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError


class Settings(BaseModel):
    """A group of settings."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, protected_namespaces=(), validate_default=True
    )


def explain(error: ValidationError, root: type[BaseModel]) -> str:
    """One line for the first fault of a validation, with the nearest known key when a key is unknown."""
    faults = error.errors()
    first = next((fault for fault in faults if fault["type"] == "extra_forbidden"), faults[0])
    path = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        known = _keys(root, first["loc"][:-1])
        near = difflib.get_close_matches(str(first["loc"][-1]), known, n=1)
        hint = (
            f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}" if known else "it is not a setting"
        )
        return f"unknown setting {path!r}; {hint}"
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "value_error":
        return f"{path}: {message}" if path else message
    return f"{path}: {message}, got {first['input']!r}"


def _keys(root: type[BaseModel], loc: Sequence[int | str]) -> list[str]:
    model: Any = root
    for part in loc:
        if isinstance(part, int):
            continue
        found = model.model_fields.get(part) if isinstance(model, type) and issubclass(model, BaseModel) else None
        if found is None:
            return []
        model = _model_in(found.annotation)
    return list(model.model_fields) if isinstance(model, type) and issubclass(model, BaseModel) else []


def _model_in(annotation: Any) -> Any:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for inner in getattr(annotation, "__args__", ()):
        if (found := _model_in(inner)) is not None:
            return found
    return None


def packaged_configs(kind: str = "configs") -> dict[str, Path]:
    """Name -> path of the configs (or the comparisons) that come with the package."""
    folder = Path(str(files("counterpoint") / kind))
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}
