"""One validated config: YAML plus key=value overrides; unknown keys are errors with a suggestion."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BeforeValidator, Field, SerializeAsAny, ValidationError, field_validator, model_validator

from counterpoint.dialogue import Method
from counterpoint.engines import make_engine_settings
from counterpoint.engines.base import EngineSettings
from counterpoint.errors import ConfigError
from counterpoint.learner import LearnerSettings
from counterpoint.lora import LoraSettings
from counterpoint.methods import make_method
from counterpoint.models import ModelSettings
from counterpoint.ranks import RanksSettings
from counterpoint.records import Sampling
from counterpoint.settings import Settings, explain, packaged_configs
from counterpoint.trackers import Tracker


def _named(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


ModelChoice = Annotated[ModelSettings, BeforeValidator(_named)]


class AgentSettings(Settings):
    """One member of the team."""

    name: str = ""
    """Its name in records and folders; agent0, agent1, ... when empty."""
    model: ModelChoice | None = None
    """Its own base model; the config's `model` when not given."""

    @field_validator("name")
    @classmethod
    def _plain(cls, name: str) -> str:
        if name and not name.replace("-", "").replace("_", "").isalnum():
            raise ValueError(f"an agent's name is letters, digits, - and _, got {name!r}")
        return name


class SamplingSettings(Settings):
    """How replies are drawn in training and, unless told otherwise, in evaluation."""

    temperature: float = Field(default=1.0, ge=0)
    """One temperature for the engine and the loss; 0 is greedy (evaluation only)."""
    max_new_tokens: int = Field(default=96, ge=1)
    """Tokens of one reply, EOS included."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Nucleus sampling; below 1 the importance ratio is biased, so keep 1 in training."""
    top_k: int = Field(default=0, ge=0)
    """0: off. As top_p."""

    def record(self) -> Sampling:
        return Sampling(self.temperature, self.max_new_tokens, self.top_p, self.top_k)


class TaskSettings(Settings):
    """Where questions come from: a named set, "jsonl:PATH", "hf:owner/name::config", "rg:NAME", or a mapping."""

    train: Any = "mini-gsm"
    """Set to train on."""
    eval: tuple[Any, ...] = ("mini-gsm", "mini-math", "mini-choice")
    """Sets to evaluate on."""

    @field_validator("eval", mode="before")
    @classmethod
    def _several(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str | Mapping) else value


class EvaluationSettings(Settings):
    """What is measured before the first and after the last step."""

    limit: int = Field(default=300, ge=0)
    """Problems of each set, the first ones; 0 takes all."""
    strategy: Literal["sampled", "greedy"] = "sampled"
    """Whether the controllers' average strategy is sampled or its most probable action taken."""
    also: Literal["none", "sampled", "greedy"] = "greedy"
    """A second pass under the other strategy, reported beside the first."""
    untrained: bool = True
    """Whether the team is also measured before step 1."""
    sampling: SamplingSettings | None = None
    """Another way of drawing replies; that of training when not given."""
    mute: tuple[str, ...] = ()
    """Agents whose replies are empty while measuring: what the team loses without them."""
    extraction: Literal["strict", "flexible"] = "strict"
    """flexible also reports the accuracy when a last number counts in solutions without the answer format."""


class CheckpointSettings(Settings):
    """When a run can be resumed from."""

    every: int = Field(default=1, ge=1)
    """Steps between checkpoints."""
    keep: int = Field(default=2, ge=1)
    """How many of the newest are kept."""


class GuardSettings(Settings):
    """When a run warns that it is going wrong."""

    reward_fall: float = Field(default=0.3, ge=0)
    """Warn when a role's reward is this far under its best mean over five steps."""
    truncated: float = Field(default=0.5, ge=0, le=1)
    """Warn when this share of a role's replies hits the length limit."""


class Config(Settings):
    """Everything a run depends on. Every setting has a default: no config at all trains the bundled model."""

    model: ModelChoice = ModelSettings()
    """Base model of every agent that names none of its own: "tiny", a hub name, a path, or a mapping."""
    agents: tuple[AgentSettings, ...] = (AgentSettings(), AgentSettings())
    """The team: a number, or one entry an agent."""
    method: SerializeAsAny[Method] = Field(default_factory=lambda: make_method({"name": "propose_review"}))
    """How the team answers, with the method's own settings beside its name."""
    tasks: TaskSettings = TaskSettings()
    """Training and evaluation sets."""
    steps: int = Field(default=30, ge=0)
    """Training steps."""
    dialogues: int = Field(default=48, ge=1)
    """Dialogues of one step, each on a question of its own."""
    width: int = Field(default=512, ge=1)
    """Dialogues open side by side."""
    overlap: bool = False
    """Play the next batch while learning on this one: its replies come from adapters one step old (metric `lag`)."""
    seed: int = 0
    """Root of every draw."""
    sampling: SamplingSettings = SamplingSettings()
    """How replies are drawn."""
    learner: LearnerSettings = LearnerSettings()
    """How adapters learn."""
    lora: LoraSettings = LoraSettings()
    """Shape of the adapters."""
    evaluation: EvaluationSettings = EvaluationSettings()
    """What is measured."""
    engine: SerializeAsAny[EngineSettings] = Field(default_factory=lambda: make_engine_settings({}))
    """What generates."""
    ranks: RanksSettings = RanksSettings()
    """When several processes are on one run."""
    checkpoint: CheckpointSettings = CheckpointSettings()
    """When the run is saved."""
    guard: GuardSettings = GuardSettings()
    """When the run warns."""
    trackers: tuple[Tracker, ...] = ()
    """Where metrics also go: tensorboard, wandb, trackio. None of them prompts or uploads."""

    @field_validator("agents", mode="before")
    @classmethod
    def _count(cls, value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, int):
            return value
        if value < 1:
            raise ValueError(f"a team has at least 1 agent, got {value}")
        return tuple(AgentSettings() for _ in range(value))

    @field_validator("agents")
    @classmethod
    def _names(cls, value: tuple[AgentSettings, ...]) -> tuple[AgentSettings, ...]:
        named = tuple(a.model_copy(update={"name": a.name or f"agent{i}"}) for i, a in enumerate(value))
        if len({a.name for a in named}) < len(named):
            raise ValueError(f"two agents share a name: {[a.name for a in named]}")
        return named

    @field_validator("method", mode="before")
    @classmethod
    def _method(cls, value: Any) -> Any:
        if isinstance(value, Method):
            return value
        named = _named(value)
        return make_method({"name": "propose_review", **named} if isinstance(named, dict) else {"name": named})

    @field_validator("engine", mode="before")
    @classmethod
    def _engine(cls, value: Any) -> Any:
        return value if isinstance(value, EngineSettings) else make_engine_settings(_named(value))

    @model_validator(mode="after")
    def _trainable(self) -> Config:
        if self.steps and self.sampling.temperature == 0:
            raise ValueError("sampling.temperature is 0: training needs a spread of replies, set it above 0")
        if self.steps and not self.method.trained:
            raise ValueError(
                f"method {self.method.name!r} has nothing to train: set steps=0 or use `counterpoint evaluate`"
            )
        return self

    @model_validator(mode="after")
    def _known(self) -> Config:
        unknown = [name for name in self.evaluation.mute if name not in self.names]
        if unknown:
            raise ValueError(f"evaluation.mute names {unknown[0]!r}, which is no agent; known: {', '.join(self.names)}")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(a.name for a in self.agents)

    def to_yaml(self) -> str:
        """The resolved settings, as a config that gives the same run."""
        return str(yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True))

    def sha256(self) -> str:
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


def load_config(source: str | Path | None, overrides: Sequence[str] = ()) -> Config:
    """Read a YAML file (or the name of a packaged config; "tiny" when none is named) and apply `key=value` overrides in order."""
    data = read_yaml("tiny" if source is None else source)
    for override in overrides:
        _apply(data, override)
    return validate(data, where=str(source or "the command line"))


def validate(data: Mapping[str, Any], *, where: str) -> Config:
    """Settings from plain data; ConfigError says which key, what was received and what would be right."""
    try:
        return Config.model_validate(data)
    except ValidationError as error:
        raise ConfigError(f"{where}: {explain(error, Config)}") from error


def read_yaml(source: str | Path, packaged: Mapping[str, Path] | None = None) -> dict[str, Any]:
    """A mapping from a YAML file, or from the packaged one of that name."""
    path = Path(source)
    if not path.is_file():
        packaged = packaged_configs() if packaged is None else packaged
        if str(source) not in packaged:
            raise ConfigError(f"no config file {str(source)!r}; packaged configs: {', '.join(packaged)}")
        path = packaged[str(source)]
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not YAML: {str(error).splitlines()[0]}") from error
    if not isinstance(data, dict | None):
        raise ConfigError(f"{path}: a config is a mapping of settings, got {type(data).__name__}")
    return data or {}


def _apply(data: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    if not equals or not key:
        raise ConfigError(f"override {override!r} is not of the form key=value, for example steps=5 or method.rounds=3")
    *parents, last = key.split(".")
    place: Any = data
    for depth, parent in enumerate(parents):
        at = _index(place, parent, override)
        inner = place[at] if isinstance(place, list) else place.get(at)
        if isinstance(inner, str):  # the short form of a group: its name alone
            inner = {"source" if parents[0] == "tasks" else "name": inner}
        elif isinstance(inner, list):
            inner = list(inner)
        elif isinstance(inner, dict | None):
            inner = dict(inner or {})
        else:
            raise ConfigError(f"override {override!r}: {'.'.join(parents[: depth + 1])!r} is not a group of settings")
        place[at] = inner
        place = inner
    last = _index(place, last, override)
    try:
        place[last] = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"override {override!r}: {text!r} is not a YAML value") from error


def _index(place: Any, key: str, override: str) -> Any:
    """A key of a mapping, or a number within a list."""
    if not isinstance(place, list):
        return key
    if not key.isdigit() or int(key) >= len(place):
        raise ConfigError(f"override {override!r}: {key!r} is not one of the entries 0 to {len(place) - 1}")
    return int(key)
