"""A team ready to work: its models, its engine, and which adapter each (agent, role) has."""

from __future__ import annotations

from dataclasses import dataclass

from counterpoint.config import Config
from counterpoint.engines.base import Engine
from counterpoint.engines.hf import HFEngine
from counterpoint.errors import ConfigError
from counterpoint.learner import Learner
from counterpoint.models import Model, ModelSettings


@dataclass(frozen=True, slots=True)
class Team:
    """The models by adapter name "AGENT/ROLE"; distinct base models are loaded once each."""

    names: tuple[str, ...]
    models: dict[str, Model]
    engine: Engine
    learner: Learner

    def model_record(self) -> dict[str, dict[str, str]]:
        """For the summary: which weights each agent really runs on."""
        return {a: {"name": m.settings.name, "sha256": m.sha256} for a, m in sorted(self.models.items())}


def build_team(config: Config) -> Team:
    """Load what the config names."""
    choice = {a.name: a.model or config.model for a in config.agents}
    models: dict[str, Model] = {}
    for settings in dict.fromkeys(choice.values()):
        own = [f"{a}/{role}" for a in config.names if choice[a] == settings for role in config.method.roles]
        model = _load(settings, own, config)
        models |= dict.fromkeys(own, model)
    engine = _engine(config, models)
    learner = Learner(models, settings=config.learner, sampling=config.sampling.record(), seed=config.seed)
    return Team(config.names, models, engine, learner)


def _load(settings: ModelSettings, adapters: list[str], config: Config) -> Model:
    return Model(settings, adapters, lora=config.lora, seed=config.seed)


def _engine(config: Config, models: dict[str, Model]) -> Engine:
    if config.engine.name != "hf":
        raise ConfigError(f"unknown engine {config.engine.name!r}; known: hf")
    return HFEngine(models, max_rows=config.engine.max_rows, prefill_tokens=config.engine.prefill_tokens)
