"""A controller named in a config: {name: regret, rule: rm_plus}; checked when the config is read."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

from ..errors import ConfigError
from .base import Controller


class ControllerSpec(BaseModel):
    """Name of a controller and its own settings beside it."""

    model_config = ConfigDict(frozen=True, extra="allow", use_attribute_docstrings=True)

    name: str = "regret"
    """File name of the controller: regret, fixed, bandit."""

    @model_validator(mode="after")
    def _check(self) -> ControllerSpec:
        try:
            self.make()
        except ConfigError as error:
            raise ValueError(str(error)) from error
        return self

    def make(self) -> Controller:
        """A fresh controller."""
        from . import make

        settings: dict[str, Any] = dict(self.model_extra or {})
        return make(self.name, settings)
