"""Methods: one file each, holding settings, prompts, play and credit. A new file here is a new method."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from counterpoint.dialogue import Method
from counterpoint.errors import ConfigError
from counterpoint.settings import explain


def methods() -> dict[str, type[Method]]:
    """Name -> class: propose_review.py holds ProposeReview, and so on."""
    return {name: _class(name) for _, name, _ in sorted(pkgutil.iter_modules(__path__), key=lambda m: m.name)}


def make_method(data: Mapping[str, Any]) -> Method:
    """A method from its name and settings; raises ConfigError naming the nearest known one."""
    known = methods()
    name = str(data.get("name", ""))
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"unknown method {name!r}{hint} Known: {', '.join(known)}")
    try:
        return known[name](**data)
    except ValidationError as error:
        raise ConfigError(f"method.{explain(error, known[name])}") from error


def _class(name: str) -> type[Method]:
    module = importlib.import_module(f"{__name__}.{name}")
    found: type[Method] = getattr(module, "".join(part.title() for part in name.split("_")))
    return found
