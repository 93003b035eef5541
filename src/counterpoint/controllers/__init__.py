"""Controllers decide when an agent speaks. A new file here with a class NAMEController is a new controller."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from ..errors import ConfigError
from .base import Controller, ControllerSettings, FrozenController, draw, greedy

__all__ = ["Controller", "ControllerSettings", "FrozenController", "controllers", "draw", "greedy", "make"]


def controllers() -> dict[str, Any]:
    """Name -> class, found by listing the files of this package: fixed.py holds FixedController, and so on.

    Each class has `settings_type`, takes an instance of it, and follows the Controller contract.
    """
    names = sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name not in ("base", "spec"))
    return {name: _class(name) for name in names}


def make(name: str, settings: Mapping[str, Any] | None = None) -> Controller:
    """A fresh controller, from the name of its file and a mapping of its settings."""
    known = controllers()
    if name not in known:
        raise ConfigError(f"unknown controller {name!r}: use one of {', '.join(known)}")
    try:
        parsed = known[name].settings_type(**(settings or {}))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"controller {name!r}, setting {where!r}: {first['msg']}, got {first['input']!r}") from error
    controller: Controller = known[name](parsed)
    return controller


def _class(name: str) -> Any:
    """The class of one controller file: NAME in camel case, then "Controller"."""
    module = importlib.import_module(f"{__name__}.{name}")
    return getattr(module, "".join(part.title() for part in name.split("_")) + "Controller")
