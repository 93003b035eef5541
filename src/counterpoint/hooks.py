"""Replaceable pieces: "module:function" or "./file.py:function" in a config, found and checked at start."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator

from counterpoint.errors import ConfigError


@functools.cache
def load_hook(spec: str) -> Callable[..., Any]:
    """The callable that `spec` names. Raises ConfigError that says which part of it does not exist."""
    place, _, name = spec.rpartition(":")
    if not place or not name:
        raise ConfigError(f'hook {spec!r} is not of the form "module:function" or "./file.py:function"')
    module = _from_file(spec, Path(place)) if place.endswith(".py") else _from_module(spec, place)
    hook = getattr(module, name, None)
    if not callable(hook):
        raise ConfigError(f"hook {spec!r}: {place} has no function {name!r}")
    return hook  # type: ignore[no-any-return]


def _from_module(spec: str, place: str) -> object:
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"hook {spec!r}: no module named {error.name!r}; use an installed module or a ./file.py"
        ) from error


def _from_file(spec: str, path: Path) -> object:
    if not path.is_file():
        raise ConfigError(f"hook {spec!r}: no file {path} (looked from {Path.cwd()})")
    name = f"counterpoint_hook_{path.stem}"
    found = importlib.util.spec_from_file_location(name, path)
    if found is None or found.loader is None:
        raise ConfigError(f"hook {spec!r}: {path} is not a Python file")
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module
    found.loader.exec_module(module)
    return module


def _checked(spec: str) -> str:
    try:
        load_hook(spec)
    except ConfigError as error:
        raise ValueError(str(error)) from error
    return spec


Hook = Annotated[str, AfterValidator(_checked)]
"""A setting that names a function; resolved when the settings are validated, so a typo fails before step 0."""
