"""Replies from any server that speaks OpenAI's chat completions, for evaluation: nothing is loaded here, nothing learns.

The client is httpx2, which transformers' hub client brings already: one POST is the whole surface, and retries and deadlines
are this file's own. A request that is still without a reply after its retries becomes a completion that says so
(`finish="error"`); it breaks off its own dialogue and no other, and is never read as a reply.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, field_validator

from counterpoint.engines.base import EngineSettings, Roster, Versioned
from counterpoint.errors import ConfigError, MissingExtra
from counterpoint.models import Model
from counterpoint.records import NO_ID, Completion, Request, Sampling
from counterpoint.rng import fold, uniform

if TYPE_CHECKING:
    import httpx2

PASSING = {408, 409, 425, 429}  # besides 5xx: worth asking again
HIDDEN = "[key]"
MOST_TOKENS = 1 << 24  # more is no count


class OpenAISettings(EngineSettings):
    """A server that speaks OpenAI's chat completions; evaluation only."""

    weights: ClassVar[bool] = False
    base_url: str = "http://127.0.0.1:8000/v1"
    """Where the API is; /chat/completions is added."""
    key_variable: str = ""
    """Name of the environment variable that holds the API key; empty: none is sent. The key itself is never a setting."""
    served: dict[str, str] = Field(default_factory=dict)
    """Served model name of an adapter "AGENT/ROLE"; the agent's `model` where an adapter is not named."""
    concurrency: int = Field(default=16, ge=1)
    """Requests open at a time."""
    deadline: float = Field(default=120.0, gt=0)
    """Seconds until one attempt at a request is given up, its whole reply included."""
    retries: int = Field(default=5, ge=0)
    """Further attempts where the server is busy, breaks off or answers with something else than a reply."""
    backoff: float = Field(default=1.0, gt=0)
    """Seconds before the second attempt, doubled for each further one and spread by up to half; Retry-After is honoured."""
    longest_wait: float = Field(default=60.0, gt=0)
    """Longest pause between two attempts; a server that asks for a longer one is not asked again."""
    limit_name: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """What the server calls the limit on new tokens."""
    logprobs: bool = False
    """Ask for log-probabilities; not every server gives them, and an evaluation does without."""

    @field_validator("base_url")
    @classmethod
    def _plain_url(cls, url: str) -> str:
        if not re.fullmatch(r"https?://[^\s@?#]+", url):
            raise ValueError("expected http(s)://HOST[:PORT]/PATH without user, password, query or fragment")
        return url.rstrip("/")

    @field_validator("key_variable")
    @classmethod
    def _a_name(cls, name: str) -> str:
        if not re.fullmatch(r"[A-Z_][A-Z0-9_]*|", name):
            raise ValueError("expected the NAME of an environment variable (capitals, digits, _), not a key")
        return name

    def open(self, roster: Roster, models: Mapping[str, Model]) -> OpenAIEngine:
        unknown = sorted(self.served.keys() - roster.choice.keys())
        if unknown:
            raise ConfigError(
                f"engine.served names {unknown[0]!r}, which is no adapter; known: {', '.join(roster.choice)}"
            )
        names = {adapter: self.served.get(adapter, model.name) for adapter, model in roster.choice.items()}
        engine = OpenAIEngine(self, names, key=_read_key(self.key_variable))
        engine.check()
        return engine


def _read_key(variable: str) -> str:
    if not variable:
        return ""
    key = os.environ.get(variable, "").strip()
    if not key:
        raise ConfigError(f"engine.key_variable is {variable!r}, which is not set; export it, or leave the setting out")
    if not (key.isascii() and key.isprintable()):
        raise ConfigError(f"the key in {variable} has characters that no HTTP header can carry; copy it again")
    return key


class Refused(Exception):
    """A request that has no reply: why, whether asking again may help, and how long the server asks to wait."""

    def __init__(self, reason: str, *, passing: bool, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.passing, self.wait = passing, wait


class OpenAIEngine(Versioned):
    """Asks a server, `concurrency` requests at a time; keeps the key to itself.

    Publishing counts versions; what is served is the server's.
    """

    def __init__(self, settings: OpenAISettings, names: Mapping[str, str], *, key: str) -> None:
        try:
            import httpx2
        except ModuleNotFoundError as error:
            raise MissingExtra("httpx2", "serve", "engine openai") from error
        self.http = httpx2
        self.settings, self.names, self._key = settings, dict(names), key

    @property
    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._key}"} if self._key else {}

    def check(self) -> None:
        """Raises ConfigError where nobody listens or the key is refused: before the first dialogue, not after all of them."""
        url = f"{self.settings.base_url}/models"
        try:
            status = self.http.get(url, headers=self._headers, timeout=self.settings.deadline).status_code
        except (self.http.RequestError, self.http.InvalidURL) as error:
            raise ConfigError(
                f"no server answers at {url} ({self._hidden(str(error)) or type(error).__name__}); "
                "start one or set engine.base_url"
            ) from error
        if status in (401, 403):
            raise ConfigError(
                f"{url} refuses access (HTTP {status}); set engine.key_variable to the name of the variable with a valid key"
            )

    def generate(
        self, requests: Sequence[Request], *, seeds: Sequence[int], sampling: Sampling
    ) -> list[list[Completion]]:
        if sampling.top_k:
            raise ConfigError(f"engine openai cannot cut at top_k (got {sampling.top_k}): set sampling.top_k=0")
        return asyncio.run(self._all(requests, seeds, sampling))

    async def _all(
        self, requests: Sequence[Request], seeds: Sequence[int], sampling: Sampling
    ) -> list[list[Completion]]:
        s = self.settings
        limits = self.http.Limits(max_connections=s.concurrency)
        places = asyncio.Semaphore(s.concurrency)
        async with self.http.AsyncClient(headers=self._headers, limits=limits, timeout=s.deadline) as client:

            async def one(request: Request, seed: int) -> Completion:
                async with places:
                    return await self._reply(client, request, seed, sampling)

            asked = [[one(r, fold(seed, j)) for j in range(r.n)] for r, seed in zip(requests, seeds, strict=True)]
            return [list(await group) for group in [asyncio.gather(*siblings) for siblings in asked]]

    async def _reply(self, client: httpx2.AsyncClient, request: Request, seed: int, sampling: Sampling) -> Completion:
        """A reply, or after the last attempt a completion with finish "error" that says why there is none."""
        body = self._body(request, seed, sampling)
        for attempt in range(self.settings.retries + 1):
            try:
                return self._read(await self._post(client, body))
            except Refused as refusal:
                reason = self._hidden(f"{refusal}, attempt {attempt + 1}")
                pause = max(refusal.wait, self._pause(seed, attempt))
                over = attempt == self.settings.retries or refusal.wait > self.settings.longest_wait
                if over or not refusal.passing:
                    break
            await asyncio.sleep(pause)
        return Completion(reason, (), (), (), "error", self.version)

    def _pause(self, seed: int, attempt: int) -> float:
        """backoff * 2^attempt, at most the longest wait, less up to a half of it that the request's seed decides."""
        full = min(self.settings.longest_wait, self.settings.backoff * 2.0 ** min(attempt, 60))
        return full * (1 - uniform(seed, "pause", attempt) / 2)

    def _body(self, request: Request, seed: int, sampling: Sampling) -> dict[str, Any]:
        body = {
            "model": self.names[request.agent],
            "messages": [{"role": m.role, "content": m.content} for m in request.messages],
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "seed": seed >> 32,  # 31 bits: what every server takes
            self.settings.limit_name: sampling.max_new_tokens,
        }
        return body | {"logprobs": True} if self.settings.logprobs else body

    async def _post(self, client: httpx2.AsyncClient, body: Mapping[str, Any]) -> Any:
        """The parsed body of a reply with status 200; Refused otherwise."""
        try:
            async with asyncio.timeout(self.settings.deadline):
                response = await client.post(f"{self.settings.base_url}/chat/completions", json=body)
        except (TimeoutError, self.http.TimeoutException) as error:
            raise Refused(f"no reply within {self.settings.deadline:g} s", passing=True) from error
        except self.http.RequestError as error:
            raise Refused(f"{type(error).__name__} {error}".strip(), passing=True) from error
        text = self._hidden(response.content.decode(errors="replace"))
        status = response.status_code
        if status != 200:
            raise Refused(
                f"HTTP {status} {' '.join(text.split())[:200]}".strip(),
                passing=status in PASSING or status >= 500,
                wait=_seconds(response.headers.get("retry-after", "")),
            )
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise Refused("a reply that is not JSON", passing=True) from error

    def _hidden(self, text: str) -> str:
        """Without the key, should the server repeat it."""
        return text.replace(self._key, HIDDEN) if self._key else text

    def _read(self, data: Any) -> Completion:
        """The completion in a reply's body; Refused where it is none."""
        try:
            choice, usage = data["choices"][0], data["usage"]
            text, finish = choice["message"]["content"], choice["finish_reason"]
            prompt, new = int(usage["prompt_tokens"]), int(usage["completion_tokens"])
            content = (choice.get("logprobs") or {}).get("content") or ()
            logprobs = tuple(float(token["logprob"]) for token in content)
        except (KeyError, IndexError, TypeError, ValueError, OverflowError, AttributeError) as error:
            raise Refused(f"an incomplete reply ({type(error).__name__} {error})", passing=True) from error
        if finish not in ("stop", "length"):
            raise Refused(f"finish_reason {str(finish)[:50]!r}", passing=False)
        counts = 0 <= prompt < MOST_TOKENS and 0 <= new < MOST_TOKENS
        if not (isinstance(text, str | None) and counts and all(map(math.isfinite, logprobs))):
            raise Refused("a reply whose content, usage or logprobs are malformed", passing=True)
        text = self._hidden(text or "").encode(errors="replace").decode()  # half a surrogate pair is no text
        return Completion(text, (NO_ID,) * prompt, (NO_ID,) * new, logprobs, finish, self.version)


def _seconds(header: str) -> float:
    """Retry-After in seconds; a date or anything else counts as none, the backoff decides."""
    return float(header) if re.fullmatch(r"\d{1,9}(\.\d+)?", header.strip()) else 0.0
