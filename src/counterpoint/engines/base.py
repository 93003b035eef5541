"""The engine contract: requests in, completions out, order kept; and the settings that open an engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

from counterpoint.errors import ConfigError
from counterpoint.records import Completion, Request, Sampling
from counterpoint.settings import Settings

if TYPE_CHECKING:
    from counterpoint.lora import LoraSettings
    from counterpoint.models import Model, ModelSettings


class Engine(Protocol):
    """Turns requests into completions; holds the adapter version it samples from."""

    def generate(
        self, requests: Sequence[Request], *, seeds: Sequence[int], sampling: Sampling
    ) -> list[list[Completion]]:
        """`requests[i].n` completions for each request, in order; sibling j of request i is drawn from fold(seeds[i], j).

        Equal requests, seeds and adapters give equal completions. A reply that hits the length limit is data
        (`finish="length"`); a prompt that does not fit the context raises ConfigError.
        """
        ...

    def publish(self, version: int | None = None) -> int:
        """Take the adapters' current weights into use; returns their version: the one given, else one more than before."""
        ...


class Versioned:
    """Counts what was published: the version that an engine's completions carry."""

    version = 0

    def publish(self, version: int | None = None) -> int:
        """Takes the version given, else one more than before."""
        self.version = self.version + 1 if version is None else version
        return self.version


@dataclass(frozen=True, slots=True)
class Roster:
    """What an engine has to serve: for each adapter "AGENT/ROLE" its base model, and the shape of the adapters."""

    choice: Mapping[str, ModelSettings]
    lora: LoraSettings
    seed: int
    overlap: bool = False  # it has to generate in one thread while a learner learns in another
    sharded: bool = False  # the models in this process lie in parts on several ranks


class EngineSettings(Settings):
    """Name of an engine and its own settings beside it."""

    weights: ClassVar[bool] = True
    """Whether the models are loaded in this process: they must be to learn."""
    exact_logprobs: ClassVar[bool] = True
    """Whether its log-probabilities are the learner's own up to rounding; otherwise the learner computes them again."""
    name: str = "hf"
    """File name of the engine."""

    def open(self, roster: Roster, models: Mapping[str, Model]) -> Engine:
        """The engine, ready; `models` are the roster's, loaded in this process, or empty when `weights` is False."""
        raise NotImplementedError


def encode(model: Model, request: Request, sampling: Sampling, context: int) -> tuple[int, ...]:
    """Prompt ids of a request; raises ConfigError where they and the new tokens do not fit the context."""
    prompt = model.encode(request.messages)
    if len(prompt) + sampling.max_new_tokens > context:
        raise ConfigError(
            f"a prompt of {len(prompt)} tokens for {request.agent} ({request.tag}) and {sampling.max_new_tokens} new ones "
            f"do not fit the context of {context}; lower max_new_tokens, method.history or method.rounds"
        )
    return prompt
