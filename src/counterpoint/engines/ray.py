"""Any engine, several times over: replicas are Ray actors on one node or many, each with its own share of the requests.

A replica builds its models from the roster and opens the inner engine. Every call names the adapters it wants, which lie once
in the object store; a replica that has others fetches them first. So a replica that is lost needs no care: a new one takes its
place, is sent the same call, and gives the same replies, because every draw is keyed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from pydantic import Field, SerializeAsAny, field_validator
from safetensors.torch import load, save

from counterpoint.engines import make_engine_settings
from counterpoint.engines.base import Engine, EngineSettings, Roster, Versioned
from counterpoint.errors import ConfigError, CounterpointError, EngineError, MissingExtra
from counterpoint.models import Model, distinct, load_models
from counterpoint.records import Completion, Request, Sampling

Opened = tuple[Engine, Mapping[str, Model]]
"""An engine and the models it samples from; none for an engine without weights."""


class RaySettings(EngineSettings):
    """Replicas of another engine as Ray actors."""

    inner: SerializeAsAny[EngineSettings] = Field(default_factory=lambda: make_engine_settings({}))
    """The engine that every replica opens, with its own settings beside its name."""
    replicas: int = Field(default=2, ge=1)
    """How many there are; replies do not depend on it."""
    cpus: float = Field(default=1.0, ge=0)
    """CPU cores that Ray sets aside for one replica."""
    gpus: float = Field(default=0.0, ge=0)
    """GPUs of one replica, or a fraction of one; 0: it runs on CPUs."""
    address: str = "local"
    """local: start Ray in this process; auto: the cluster this node belongs to; or HOST:PORT of a cluster."""
    deadline: float = Field(default=3600.0, gt=0)
    """Seconds to wait for one answer of a replica, opening included, before the run stops."""
    max_restarts: int = Field(default=3, ge=0)
    """Lost replicas that are replaced before the run stops."""

    @field_validator("inner", mode="before")
    @classmethod
    def _inner(cls, value: Any) -> Any:
        if isinstance(value, EngineSettings):
            return value
        return make_engine_settings({"name": value} if isinstance(value, str) else value)

    @field_validator("inner")
    @classmethod
    def _trains(cls, value: EngineSettings) -> EngineSettings:
        if isinstance(value, RaySettings) or not value.weights:
            raise ValueError(f"replicas are for an engine that loads the models, got {value.name!r}; try hf")
        return value

    def open(self, roster: Roster, models: Mapping[str, Model]) -> RayEngine:
        apart = replace(roster, overlap=False, sharded=False)  # a replica's models are its own
        return RayEngine(partial(_open, self.inner, apart), models, **self.model_dump(exclude={"name", "inner"}))


def _open(inner: EngineSettings, roster: Roster) -> Opened:
    models = load_models(roster.choice, lora=roster.lora, seed=roster.seed)
    return inner.open(roster, models), models


class RayEngine(Versioned):
    """Shards requests over replicas of what `make` opens; `models` are those of this process, whose adapters are published."""

    def __init__(
        self,
        make: Callable[[], Opened],
        models: Mapping[str, Model] | None = None,
        *,
        replicas: int = 2,
        cpus: float = 1.0,
        gpus: float = 0.0,
        address: str = "local",
        deadline: float = 3600.0,
        max_restarts: int = 3,
    ) -> None:
        self.ray = _connect(address)
        self.models = models or {}
        self.deadline, self.max_restarts, self.restarts = deadline, max_restarts, 0
        self.actor = self.ray.remote(_Replica).options(num_cpus=cpus, num_gpus=gpus, scheduling_strategy="SPREAD")
        self.needs = f"{cpus:g} CPUs and {gpus:g} GPUs"
        self.make = self.ray.put(make)
        self.replicas = [self.actor.remote(self.make) for _ in range(replicas)]
        self.publish(0)
        self._call({i: lambda replica: replica.open.remote() for i in range(replicas)}, "to open its engine")

    def publish(self, version: int | None = None) -> int:
        state = {k: v for model in distinct(self.models) for k, v in model.adapters.state().items()}
        self.weights = self.ray.put(save(state))
        return super().publish(version)

    def generate(
        self, requests: Sequence[Request], *, seeds: Sequence[int], sampling: Sampling
    ) -> list[list[Completion]]:
        shares = {i: own for i, own in enumerate(split(requests, len(self.replicas))) if own}
        version, weights = self.version, [self.weights]  # inside a list: fetched by those who need it
        calls = {
            i: partial(
                _generate,
                version=version,
                weights=weights,
                requests=[requests[k] for k in own],
                seeds=[seeds[k] for k in own],
                sampling=sampling,
            )
            for i, own in shares.items()
        }
        found = self._call(calls, "for its replies")
        placed = {k: reply for i, own in shares.items() for k, reply in zip(own, found[i], strict=True)}
        return [placed[k] for k in range(len(requests))]

    def close(self) -> None:
        """Let the replicas go; what they held is free for others."""
        for replica in self.replicas:
            self.ray.kill(replica)

    def _call(self, calls: Mapping[int, Callable[[Any], Any]], what: str) -> dict[int, Any]:
        """One call a replica, all at once; a call to a replica that is lost is made again to the one in its place."""
        from ray.exceptions import RayActorError

        running = {i: call(self.replicas[i]) for i, call in calls.items()}
        found: dict[int, Any] = {}
        for i, call in calls.items():
            while i not in found:
                try:
                    found[i] = self._wait(running[i], f"replica {i} {what}")
                except RayActorError as error:
                    self._replace(i, error)
                    running[i] = call(self.replicas[i])
        return found

    def _wait(self, reference: Any, what: str) -> Any:
        from ray.exceptions import GetTimeoutError, RayTaskError

        try:
            return self.ray.get(reference, timeout=self.deadline)
        except GetTimeoutError as error:
            raise EngineError(
                f"waited {self.deadline:g} s for {what}; raise engine.deadline, or see `ray status`: "
                f"each replica needs {self.needs}"
            ) from error
        except RayTaskError as error:
            if isinstance(error.cause, CounterpointError):
                raise error.cause from None
            raise

    def _replace(self, i: int, error: Exception) -> None:
        self.restarts += 1
        if self.restarts > self.max_restarts:
            raise EngineError(
                f"replica {i} is lost and engine.max_restarts={self.max_restarts} are used up: "
                f"{str(error).strip().splitlines()[0]}"
            ) from error
        self.ray.kill(self.replicas[i])
        self.replicas[i] = self.actor.remote(self.make)


def _generate(replica: Any, **call: Any) -> Any:
    return replica.generate.remote(**call)


def split(requests: Sequence[Request], replicas: int) -> list[list[int]]:
    """Places of each replica's requests: longest first, dealt in turn, so that every share holds as many of each length."""
    size = [sum(len(m.content) for m in request.messages) for request in requests]
    order = sorted(range(len(requests)), key=lambda k: (-requests[k].n, -size[k], k))
    return [sorted(order[i::replicas]) for i in range(replicas)]


class _Replica:
    """What runs in an actor: an engine, opened when it is first needed, and the adapters it has."""

    def __init__(self, make: Callable[[], Opened]) -> None:
        self.make = make
        self.engine: Engine | None = None
        self.models: Mapping[str, Model] = {}
        self.loaded: tuple[int, Any] | None = None

    def open(self) -> None:
        if self.engine is None:
            self.engine, self.models = self.make()

    def generate(self, *, version: int, weights: list[Any], **call: Any) -> list[list[Completion]]:
        self.open()
        assert self.engine is not None
        if self.loaded != (version, weights[0]):
            self._load(version, weights[0])
        return self.engine.generate(**call)

    def _load(self, version: int, weights: Any) -> None:
        import ray

        state = load(ray.get(weights))
        for model in distinct(self.models):
            model.adapters.load_state(state)
        assert self.engine is not None
        self.engine.publish(version)
        self.loaded = (version, weights)


def _connect(address: str) -> Any:
    """Ray, started or connected to, unless this process already is."""
    try:
        import ray
    except ImportError as error:
        raise MissingExtra("ray", "ray", "engine: ray") from error

    if ray.is_initialized():
        return ray
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "warning"}
    if address == "local":
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray has no argument for it; nothing leaves the machine
        options["include_dashboard"] = False
    try:
        ray.init(address=address, **options)
    except (ConnectionError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ConfigError(
            f"no Ray cluster at engine.address={address!r}: {reason}; `ray start --head` starts one"
        ) from error
    return ray
