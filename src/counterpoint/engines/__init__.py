"""Engines: one file each, holding its settings and how it is opened. A name in ENGINES is a name in a config."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from counterpoint.engines.base import EngineSettings
from counterpoint.errors import ConfigError
from counterpoint.settings import explain

ENGINES = {"hf": "HFSettings", "vllm": "VLLMSettings", "openai": "OpenAISettings", "ray": "RaySettings"}
"""File name -> its settings."""


def engine_settings() -> dict[str, type[EngineSettings]]:
    """Name -> settings of every engine; loads no optional dependency."""
    return {name: getattr(importlib.import_module(f"{__name__}.{name}"), kind) for name, kind in ENGINES.items()}


def make_engine_settings(data: Mapping[str, Any]) -> EngineSettings:
    """Settings from a name ("hf" when there is none) and what stands beside it; raises ConfigError on an unknown name."""
    name = str(data.get("name", "hf"))
    if name not in ENGINES:
        near = difflib.get_close_matches(name, ENGINES, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"unknown engine {name!r}{hint} Known: {', '.join(ENGINES)}")
    kind = engine_settings()[name]
    try:
        return kind(**data)
    except ValidationError as error:
        raise ConfigError(f"engine.{explain(error, kind)}") from error
