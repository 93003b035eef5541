"""The engine contract: requests in, completions out, order kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from counterpoint.records import Completion, Request, Sampling


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
