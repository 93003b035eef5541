"""Writes docs/configuration.md from the settings themselves: names, defaults, values, and the docstring under each field.

python scripts/config_reference.py [--check]
"""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from counterpoint.compare import Comparison
from counterpoint.config import Config
from counterpoint.controllers import controllers
from counterpoint.engines import engine_settings
from counterpoint.methods import methods
from counterpoint.tasks.spec import TaskSource

TARGET = Path(__file__).parents[1] / "docs" / "configuration.md"
HEAD = """# Configuration

<!-- Written by scripts/config_reference.py from the settings' docstrings; change those and run it again. -->

A config is YAML. Every setting has a default, unknown keys are errors that name the nearest known one, and anything can be
overridden on the command line: `counterpoint train my.yaml steps=50 method.rounds=3`. `counterpoint train --dry-run` prints
the settings as they are resolved, and what they will cost. A string where a group is expected is the group's name:
`method: vote` is `method: {name: vote}`.
"""


SEEN: dict[type[BaseModel], str] = {}  # groups that are on the page already


def reference() -> str:
    """The whole page."""
    SEEN.clear()
    parts = [HEAD, *_group("", Config, "## All settings")]
    parts.append("## Methods\n\nSettings of `method`, beside its name.\n")
    for name, method in methods().items():
        parts += _group(f"method ({name})", method, f"### {name}", skip=("name",))
    parts.append(
        "## Controllers\n\nSettings of a controller, beside its name: `propose_controller: {name: regret, rule: rm_plus}`.\n"
    )
    for name, controller in controllers().items():
        parts += _group(f"controller ({name})", controller.settings_type, f"### {name}")
    parts.append("## Engines\n\nSettings of `engine`, beside its name.\n")
    for name, engine in engine_settings().items():
        parts += _group(f"engine ({name})", engine, f"### {name}", skip=("name",))
    parts.append("## Task sets\n\nAn entry of `tasks` is a string (the source) or a mapping with these keys.\n")
    parts += _group("task set", TaskSource, "### An entry of `tasks`")
    parts.append("## Comparisons\n\nThe file that `counterpoint compare` reads.\n")
    parts += _group("comparison", Comparison, "### A comparison")
    return "\n".join(parts).rstrip() + "\n"


def _group(path: str, model: type[BaseModel], title: str, skip: tuple[str, ...] = ()) -> Iterator[str]:
    """A table of one group of settings, then its inner groups."""
    yield f"{title}\n"
    if SEEN.setdefault(model, path) != path:
        yield f"As `{SEEN[model]}`.\n"
        return
    text = inspect.cleandoc(model.__doc__ or "")
    if text.startswith("Settings of"):  # says nothing that the title does not: its file says more
        text = (inspect.getmodule(model).__doc__ or "").strip().splitlines()[0]
    yield f"{text}\n"
    fields = {name: field for name, field in model.model_fields.items() if name not in skip}
    if fields:
        yield "| setting | default | values | what it does |\n|---|---|---|---|"
        yield "\n".join(_row(name, field) for name, field in fields.items()) + "\n"
    for name, field in fields.items():
        inner = _model(field.annotation)
        if inner is not None and inner.model_fields and inner.__module__ != "counterpoint.dialogue":
            inside = f"{path}.{name}" if path else name
            if inner.__name__ != "ControllerSpec":
                yield from _group(inside, inner, f"### `{inside}`")


def _row(name: str, field: FieldInfo) -> str:
    alias = field.validation_alias
    choices = getattr(alias, "choices", None)
    also = f" (or `{choices[0]}`)" if choices and choices[0] != name else ""
    cells = [f"`{name}`{also}", _default(field), _values(field), (field.description or "").replace("\n", " ")]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True, validated_data={})
    if value is PydanticUndefined:
        return ""
    if isinstance(value, BaseModel):
        return f"`{value.name}`" if hasattr(value, "name") and value.name else "see below"
    if isinstance(value, tuple) and value and all(isinstance(v, BaseModel) for v in value):
        return f"`{len(value)}`"
    return f"`{yaml.safe_dump(_plain(value), default_flow_style=True, width=1000).strip().removesuffix('...').strip()}`"


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _values(field: FieldInfo) -> str:
    bounds = [
        f"{sign} {getattr(m, key)}" for m in field.metadata for key, sign in BOUNDS if getattr(m, key, None) is not None
    ]
    return " ".join([_type(field.annotation), *bounds])


BOUNDS = (("ge", "≥"), ("gt", ">"), ("le", "≤"), ("lt", "<"))
NAMES = {
    int: "integer",
    float: "number",
    str: "text",
    bool: "true or false",
    type(None): "none",
    Any: "text or mapping",
    object: "anything",
}


def _type(annotation: Any) -> str:
    origin, inner = get_origin(annotation), get_args(annotation)
    if annotation in NAMES:
        return NAMES[annotation]
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in inner)
    if origin is Annotated:
        return "function" if annotation.__metadata__[0].__class__.__name__ == "AfterValidator" else _type(inner[0])
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(_type(part) for part in inner))
    if origin is tuple:
        return f"list of {_type(inner[0])}"
    if origin is dict:
        return f"mapping to {_type(inner[1])}"
    return "group" if _model(annotation) else str(getattr(annotation, "__name__", annotation))


def _model(annotation: Any) -> type[BaseModel] | None:
    """The group of settings inside an annotation, if there is one."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := _model(part)) is not None), None)


def main() -> int:
    text = reference()
    if "--check" in sys.argv:
        current = TARGET.is_file() and TARGET.read_text(encoding="utf-8") == text
        print(f"{TARGET.name} is {'current' if current else 'not current: run scripts/config_reference.py'}")
        return 0 if current else 1
    TARGET.write_text(text, encoding="utf-8")
    print(f"written: {TARGET.name}, {len(text.splitlines())} lines")
    return 0


if __name__ == "__main__":
    sys.exit(main())
