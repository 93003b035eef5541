"""The public fake: an engine whose replies a function writes. For tests, examples and dry runs; no model, no torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from counterpoint.engines.base import Versioned
from counterpoint.records import Completion, Request, Sampling
from counterpoint.rng import fold

Script = Callable[[Request, int], str]
"""(request, seed of this sibling) -> reply text."""


class ScriptedEngine(Versioned):
    """Replies are `script(request, seed)`; ids are UTF-8 bytes + 3 with EOS 2, log-probabilities are -1 a token.

    Counts what it is asked: `completions`, `tokens`, `calls` (generate calls), so that a test can check
    every other count against it.
    """

    def __init__(self, script: Script) -> None:
        self.script = script
        self.calls = self.completions = self.tokens = self.prompt_tokens = 0

    def generate(
        self, requests: Sequence[Request], *, seeds: Sequence[int], sampling: Sampling
    ) -> list[list[Completion]]:
        self.calls += 1
        return [
            [self._complete(request, fold(seed, j), sampling) for j in range(request.n)]
            for request, seed in zip(requests, seeds, strict=True)
        ]

    def _complete(self, request: Request, seed: int, sampling: Sampling) -> Completion:
        full = self.script(request, seed)
        ids = tuple(byte + 3 for byte in full.encode()) + (2,)
        finish = "stop" if len(ids) <= sampling.max_new_tokens else "length"
        ids = ids[: sampling.max_new_tokens]
        text = bytes(i - 3 for i in ids if i > 2).decode(errors="ignore")
        prompt = tuple(b + 3 for m in request.messages for b in m.content.encode())
        self.completions += 1
        self.tokens += len(ids)
        self.prompt_tokens += len(prompt)
        return Completion(text, prompt, ids, (-1.0,) * len(ids), finish, self.version)  # type: ignore[arg-type]
