"""Dialogues that are only counted: everybody speaks, every reply has one length, prompts are measured and nothing is said."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from counterpoint.dialogue import sibling_groups
from counterpoint.models import ModelSettings, encode_chat, model_path, takes_system
from counterpoint.records import NO_ID, Completion, Episode, Message, Request, Sampling

TOKEN = "\u2423\u2423\u2423\u2423"  # stands for one token of a reply or a question: four characters, as in English


@dataclass(frozen=True, slots=True)
class Load:
    """One kind of request: whose, with how many prompt tokens, siblings, and new tokens each."""

    agent: str
    prompt: int
    siblings: int
    new: int

    @property
    def seen(self) -> float:
        """Positions that all tokens together look at."""
        own = self.siblings * (self.prompt * self.new + self.new**2 / 2)
        return self.prompt**2 / 2 + own


Loads = dict[Load, float]
"""How many requests of each kind."""


def loads_of(episodes: Iterable[Episode], share: float) -> Loads:
    """The requests of dialogues, each counted `share` times."""
    found: Loads = {}
    for episode in episodes:
        for turns in sibling_groups(episode).values():
            reply = turns[0].completion
            load = Load(turns[0].agent, len(reply.prompt_ids), len(turns), len(reply.token_ids))
            found[load] = found.get(load, 0.0) + share
    return found


def merged(parts: Iterable[Loads]) -> Loads:
    """All of them together."""
    total: Loads = {}
    for part in parts:
        for load, count in part.items():
            total[load] = total.get(load, 0.0) + count
    return total


class Reader:
    """Tokens of a prompt under one model's template; from characters where its tokenizer is not on disk."""

    def __init__(self, model: ModelSettings) -> None:
        self.model = model
        self.tokenizer = _tokenizer(model)
        self.exact = self.tokenizer is not None
        self.system_role = self.exact and (model.chat_template == "plain" or takes_system(self.tokenizer))

    def count(self, messages: Sequence[Message]) -> int:
        marks = sum(m.content.count(TOKEN) for m in messages)
        rest = [Message(m.role, m.content.replace(TOKEN, "")) for m in messages]
        if self.exact:
            ids = encode_chat(self.tokenizer, rest, settings=self.model, system_role=self.system_role)
            return marks + len(ids)
        return marks + -(-sum(len(m.content) for m in rest) // 4)


def _tokenizer(model: ModelSettings) -> Any:
    from transformers import AutoTokenizer

    path = model_path(model.name)
    if path.endswith(".gguf"):
        return None
    options: dict[str, Any] = {"trust_remote_code": model.trust_remote_code, "revision": model.revision}
    try:
        tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True, **options)
    except (OSError, ValueError):  # a folder, or a cache, that holds the model's config alone
        return None
    return tokenizer if model.chat_template == "plain" or tokenizer.chat_template is not None else None


class CountingEngine:
    """Every reply has `length` tokens; text and ids stand for nothing."""

    def __init__(self, readers: Mapping[str, Reader], length: int) -> None:
        self.readers, self.length = readers, length

    def publish(self, version: int | None = None) -> int:
        return version or 0

    def generate(
        self, requests: Sequence[Request], *, seeds: Sequence[int], sampling: Sampling
    ) -> list[list[Completion]]:
        ids, logprobs, text = (NO_ID,) * self.length, (0.0,) * self.length, TOKEN * (self.length - 1)
        replies = []
        for request in requests:
            prompt = (NO_ID,) * self.readers[request.agent.split("/")[0]].count(request.messages)
            replies.append([Completion(text, prompt, ids, logprobs, "stop", 0)] * request.n)
        return replies
