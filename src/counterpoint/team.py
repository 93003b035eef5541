"""A team ready to work: its models, its engine, and which adapter each (agent, role) has."""

from __future__ import annotations

from dataclasses import dataclass

from counterpoint.config import Config
from counterpoint.engines.base import Engine, Roster
from counterpoint.errors import ConfigError
from counterpoint.learner import Learner
from counterpoint.models import Model, load_models
from counterpoint.ranks import ALONE, Ranks


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


def build_team(config: Config, ranks: Ranks = ALONE) -> Team:
    """Load what the config names."""
    own = {agent.name: agent.model or config.model for agent in config.agents}
    choice = {f"{agent}/{role}": own[agent] for agent in config.names for role in config.method.roles}
    if config.steps and not config.engine.weights:
        raise ConfigError(
            f"engine {config.engine.name!r} only answers: set steps=0 or use `counterpoint evaluate`, or another engine to train"
        )
    models = load_models(choice, lora=config.lora, seed=config.seed) if config.engine.weights else {}
    roster = Roster(
        choice, config.lora, config.seed, overlap=config.overlap and config.steps > 0, sharded=ranks.sharded
    )
    engine = config.engine.open(roster, models)
    learner = Learner(
        models,
        settings=config.learner,
        sampling=config.sampling.record(),
        seed=config.seed,
        exact_logprobs=config.engine.exact_logprobs or config.overlap,
        ranks=ranks,
    )
    return Team(config.names, models, engine, learner)
