"""A small batched sampler and the accuracy measures of the bundled model, used while it is pre-trained."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from tiny_corpus import Attempt, answer_in
from transformers import LlamaForCausalLM, PreTrainedTokenizerBase

from counterpoint import prompts
from counterpoint.records import Message
from counterpoint.tasks.mini_worked import Worked

NEW_TOKENS = 96


@dataclass(frozen=True, slots=True)
class Reply:
    """A sampled reply, its length in tokens (EOS included) and whether it stopped by itself."""

    text: str
    tokens: int
    stopped: bool


def encode(tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message]) -> list[int]:
    """The ids of a prompt, up to and including the assistant mark."""
    chat = [{"role": message.role, "content": message.content} for message in messages]
    return tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=True, return_dict=False)


@torch.inference_mode()
def sample(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerBase,
    prompts_: Sequence[Sequence[Message]],
    temperature: float,
    seed: int,
    batch: int = 250,
) -> list[Reply]:
    """One reply a prompt, in order; temperature 0 is greedy."""
    model.eval()
    generator = torch.Generator().manual_seed(seed)
    rows = [encode(tokenizer, messages) for messages in prompts_]
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
    replies: dict[int, Reply] = {}
    for start in range(0, len(order), batch):
        chosen = order[start : start + batch]
        for i, ids in zip(chosen, _decode(model, [rows[i] for i in chosen], temperature, generator), strict=True):
            stopped = model.config.eos_token_id in ids
            length = ids.index(model.config.eos_token_id) + 1 if stopped else len(ids)
            text = tokenizer.decode(ids[: length - stopped], skip_special_tokens=False)
            replies[i] = Reply(text, length, stopped)
    return [replies[i] for i in range(len(rows))]


def _decode(
    model: LlamaForCausalLM, rows: list[list[int]], temperature: float, generator: torch.Generator
) -> list[list[int]]:
    pad, eos = model.config.pad_token_id, model.config.eos_token_id
    width = max(map(len, rows))
    ids = torch.tensor([[pad] * (width - len(row)) + row for row in rows])
    mask = (ids != pad).long()
    position = (mask.cumsum(1) - 1).clamp(min=0)
    done = torch.zeros(len(rows), dtype=torch.bool)
    past, out = None, []
    for _ in range(NEW_TOKENS):
        result = model(input_ids=ids, attention_mask=mask, position_ids=position, cache=past, use_cache=True)
        past, logits = result.cache, result.logits[:, -1].float()
        if temperature == 0:
            ids = logits.argmax(1, keepdim=True)
        else:
            ids = torch.multinomial((logits / temperature).softmax(1), 1, generator=generator)
        out.append(ids)
        done |= ids[:, 0] == eos
        if done.all():
            break
        mask = torch.cat([mask, torch.ones_like(ids)], 1)
        position = position[:, -1:] + 1
    return torch.cat(out, 1).tolist()


def attempts(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerBase,
    problems: Sequence[Worked],
    temperature: float,
    seed: int,
) -> tuple[list[Attempt], list[Reply]]:
    """The model's own solutions of `problems`, with their true labels."""
    asked = [prompts.solve(worked.task("eval")) for worked in problems]
    replies = sample(model, tokenizer, asked, temperature, seed)
    tried = [
        Attempt(worked, reply.text, reply.stopped and answer_in(reply.text) == worked.answer)
        for worked, reply in zip(problems, replies, strict=True)
    ]
    return tried, replies


def review_rates(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerBase,
    tried: Sequence[Attempt],
    seed: int,
    temperature: float = 1.0,
    most: int = 300,
) -> dict[str, float]:
    """How often the reviewer's verdict is right on right and on wrong solutions, up to `most` of each."""
    rng = random.Random(seed)
    rates: dict[str, float] = {}
    for label in (True, False):
        some = [attempt for attempt in tried if attempt.right == label]
        some = rng.sample(some, min(most, len(some)))
        asked = [prompts.review(attempt.worked.task("eval"), attempt.text, ()) for attempt in some]
        replies = sample(model, tokenizer, asked, temperature, seed)
        wanted = f"Verdict: {'RIGHT' if label else 'WRONG'}"
        rates["right" if label else "wrong"] = share([r.text.rpartition("\n")[2] == wanted for r in replies])
        rates["read_" + ("right" if label else "wrong")] = share(
            [r.stopped and r.text.rpartition("\n")[2] in ("Verdict: RIGHT", "Verdict: WRONG") for r in replies]
        )
    return rates


def share(flags: Sequence[bool]) -> float:
    """The share of true flags; NaN of none."""
    return sum(flags) / len(flags) if flags else float("nan")
