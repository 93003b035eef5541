"""Any engine with some agents silenced: their replies are empty, everybody else plays on. What does the team lose?"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from counterpoint.engines.base import Engine
from counterpoint.records import Completion, Request, Sampling


class MutedEngine:
    """Answers the requests of `agents` with nothing, at no cost, and passes the others on."""

    def __init__(self, engine: Engine, agents: Collection[str]) -> None:
        self.engine, self.agents = engine, frozenset(agents)

    def publish(self, version: int | None = None) -> int:
        return self.engine.publish(version)

    def generate(
        self, requests: Sequence[Request], *, seeds: Sequence[int], sampling: Sampling
    ) -> list[list[Completion]]:
        heard = [i for i, request in enumerate(requests) if request.agent.split("/")[0] not in self.agents]
        replies = self.engine.generate([requests[i] for i in heard], seeds=[seeds[i] for i in heard], sampling=sampling)
        found = dict(zip(heard, replies, strict=True))
        empty = Completion("", (), (), (), "stop", 0)
        return [found.get(i, [empty] * request.n) for i, request in enumerate(requests)]
