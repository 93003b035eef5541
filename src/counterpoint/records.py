"""Every record, in the order they are made: task, request, completion, turn, decision, episode, sample, action values.

Data only: frozen, slotted, written as JSON lines by pydantic's TypeAdapter (see store.py), never mutated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["number", "math", "choice", "text"]
Finish = Literal["stop", "length", "error"]
NO_ID = -1  # stands for a token whose id is not known


@dataclass(frozen=True, slots=True)
class Task:
    """One question with its gold answer."""

    id: str
    question: str  # bare: no instructions, no options
    answer: str  # for `choice`, the letter of the gold option
    kind: Kind
    choices: tuple[str, ...] = ()  # option texts in the order shown; option i has letter "ABCD..."[i]
    scorer: str = ""  # empty: graded by `kind`; else the name of a scorer, e.g. "rg:chain_sum"


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message, as a chat template takes it."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True)
class Request:
    """Ask `agent` for `n` samples of one context: a sibling group.

    `agent` is "AGENT/ROLE", for example "agent0/proposer": one LoRA adapter each.
    """

    agent: str
    messages: tuple[Message, ...]
    tag: str
    n: int = 1


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are drawn. One temperature for engine and learner alike; 0 is greedy."""

    temperature: float = 1.0
    max_new_tokens: int = 256
    top_p: float = 1.0
    top_k: int = 0


@dataclass(frozen=True, slots=True)
class Completion:
    """One sampled reply. `token_ids` are exactly the sampled ids, EOS included when the reply stopped by itself.

    `logprobs[t]` = log pi(token_ids[t] | prompt, token_ids[:t]) at the sampling temperature, `version` of the adapters.
    A server that tells counts but no ids has NO_ID for each: counts hold, nothing can be learned from them; a server that
    tells no log-probabilities has none. `finish` is "error" where there is no reply: `text` is then the reason.
    """

    text: str
    prompt_ids: tuple[int, ...]  # [P]
    token_ids: tuple[int, ...]  # [T]
    logprobs: tuple[float, ...]  # [T]
    finish: Finish
    version: int


@dataclass(frozen=True, slots=True)
class Turn:
    """A completion in its place in the dialogue; recorded by the driver, never by the method."""

    group: int  # which request of the dialogue, counted from 0
    sample: int  # which of its siblings
    agent: str
    tag: str
    completion: Completion


@dataclass(frozen=True, slots=True)
class Decision:
    """One choice by a controller."""

    controller: str
    state: str
    action: int
    probs: tuple[float, ...]  # [A]
    group: int  # the first request made after it has this number (it may belong to a later decision)


@dataclass(frozen=True, slots=True)
class Fork:
    """Replay `parent` up to decision `at`, take `action` there instead, and go on.

    `action` None removes the agent `remove` from there on. `stop_after` counts the requests answered after the fork
    before the dialogue is cut off; None plays to the end.
    """

    parent: str
    at: int
    action: int | None = None
    remove: str = ""
    stop_after: int | None = None
    n: int = 1  # siblings of every request made after the fork
    kind: str = ""  # the method's own name for a fork that plays something else than the dialogue


@dataclass(frozen=True, slots=True)
class Episode:
    """One dialogue, whole: credit can be recomputed from it alone. Its id reads "train/12/gsm8k-17#3"."""

    id: str
    task: Task
    turns: tuple[Turn, ...]
    decisions: tuple[Decision, ...]
    answer: str | None
    fork: Fork | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """One sequence to learn from."""

    agent: str
    prompt_ids: tuple[int, ...]  # [P]
    token_ids: tuple[int, ...]  # [T]
    old_logp: tuple[float, ...]  # [T]
    advantage: float


@dataclass(frozen=True, slots=True)
class ActionValues:
    """What each action would have been worth at one decision."""

    controller: str
    state: str
    values: tuple[float, ...]  # [A]
