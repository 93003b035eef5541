"""Build the tokenizer of the bundled model and pre-train it from scratch: python scripts/pretrain_tiny.py"""

from __future__ import annotations

import argparse
import math
import random
import time
from collections.abc import Iterator
from pathlib import Path

import tiny_tokenizer
import torch
from tiny_corpus import LAST, PHASES, SETS, Corpus, Example, Mix
from tiny_sample import attempts, encode, review_rates, share
from torch.nn.functional import cross_entropy
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerBase

from counterpoint.rng import fold
from counterpoint.tasks.mini import worked_split

VERDICT_WEIGHT = 4.0
OUT = Path(__file__).parent.parent / "src" / "counterpoint" / "data" / "tiny"


def new_model(tokenizer: PreTrainedTokenizerBase, seed: int) -> LlamaForCausalLM:
    """An untrained Llama of 0.9 M parameters."""
    torch.manual_seed(fold(seed, "init") % 2**31)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    return LlamaForCausalLM(config)


def batches(
    corpus: Corpus, tokenizer: PreTrainedTokenizerBase, tokens: int, seed: int
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Right-padded rows of about equal length, `tokens` a batch, and the weight of each token in the loss."""
    rng = random.Random(fold(seed, "batches"))
    while True:
        rows = sorted((_row(corpus.example(), tokenizer) for _ in range(2000)), key=lambda row: len(row[0]))
        groups: list[list[tuple[list[int], list[float]]]] = [[]]
        for row in rows:
            if (len(groups[-1]) + 1) * len(row[0]) > tokens:
                groups.append([])
            groups[-1].append(row)
        rng.shuffle(groups)
        for group in groups:
            width = max(len(ids) for ids, _ in group)
            yield (
                torch.tensor([ids + [tokenizer.pad_token_id] * (width - len(ids)) for ids, _ in group]),
                torch.tensor([learn + [0.0] * (width - len(learn)) for _, learn in group]),
            )


def _row(example: Example, tokenizer: PreTrainedTokenizerBase) -> tuple[list[int], list[float]]:
    prompt = encode(tokenizer, example.messages)
    reply = [*tokenizer.encode(example.reply, add_special_tokens=False), tokenizer.eos_token_id]
    learn = [1.0] * len(reply)
    (equals,), (verdict,), (newline,) = (tokenizer.encode(mark) for mark in ("=", "Verdict: ", "\n"))
    after = False
    for i, token in enumerate(reply):
        if example.results_only:
            learn[i] = float(after)
            after = token in (equals, verdict) or (after and token != newline)
        if i and reply[i - 1] == verdict:
            learn[i] = VERDICT_WEIGHT
    return prompt + reply, [0.0] * len(prompt) + learn


def step_loss(model: LlamaForCausalLM, ids: torch.Tensor, learn: torch.Tensor) -> torch.Tensor:
    """Weighted mean cross-entropy of the tokens to learn; rows are right-padded, so the causal mask suffices."""
    weight = learn[:, 1:]
    with torch.autocast("cpu", torch.bfloat16):
        hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state
        logits = model.lm_head(hidden[:, :-1][weight > 0])
    loss = cross_entropy(logits.float(), ids[:, 1:][weight > 0], reduction="none")
    return (loss * weight[weight > 0]).sum() / weight.sum()


def mix_at(step: int) -> Mix:
    """The mix of the phase that `step` belongs to."""
    return next((mix for until, mix in PHASES if step <= until), LAST)


def optimizers(model: LlamaForCausalLM, args: argparse.Namespace) -> list[torch.optim.Optimizer]:
    """Muon for the weight matrices, AdamW for embeddings and norms."""
    matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and "embed" not in name]
    rest = [p for name, p in model.named_parameters() if p.ndim != 2 or "embed" in name]
    return [
        torch.optim.Muon(matrices, lr=args.muon_lr, momentum=0.95, weight_decay=0.01),
        torch.optim.AdamW(rest, lr=args.lr, betas=(0.9, 0.98), weight_decay=0.0),
    ]


def rate_at(step: int, args: argparse.Namespace) -> float:
    """The share of the full rate: linear warm-up, then a cosine to a tenth over `decay` steps."""
    done = min(1.0, step / args.decay)
    return min(1.0, step / args.warmup) * (0.1 + 0.45 * (1 + math.cos(math.pi * done)))


def fill_pool(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerBase, corpus: Corpus, seed: int) -> None:
    """Add the model's own solutions of fresh problems to the pool; the oldest ones leave it."""
    tried, _ = attempts(model, tokenizer, [corpus.worked() for _ in range(500)], 1.0, seed)
    for pool, label in ((corpus.pool.right, True), (corpus.pool.wrong, False)):
        pool.extend(attempt for attempt in tried if attempt.right == label)
        del pool[:-1500]


def measure(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerBase, split: str, n: int, seed: int) -> str:
    """One line: accuracy of each set (sampled/greedy), format kept, reviewer right on right and wrong solutions."""
    parts = []
    for name in SETS:
        problems = worked_split(name, split)[:n]  # type: ignore[arg-type]
        tried, replies = attempts(model, tokenizer, problems, 1.0, seed)
        greedy, _ = attempts(model, tokenizer, problems, 0.0, seed)
        stopped = share([r.stopped and "\nFinal answer: " in r.text for r in replies])
        rates = review_rates(model, tokenizer, tried, seed, most=n // 4)
        parts.append(
            f"{name} {share([a.right for a in tried]):.3f}/{share([a.right for a in greedy]):.3f} format {stopped:.3f} "
            f"review right {rates['right']:.3f} wrong {rates['wrong']:.3f}"
        )
    return " | ".join(parts)


def train(args: argparse.Namespace) -> None:
    """The whole recipe: tokenizer, model, corpus with a pool, fixed number of steps, save, measure."""
    torch.set_num_threads(args.threads)
    tokenizer = tiny_tokenizer.build(args.seed)
    model = new_model(tokenizer, args.seed)
    print(f"{sum(p.numel() for p in model.parameters())} parameters, {len(tokenizer)} tokens, {vars(args)}", flush=True)
    both = optimizers(model, args)
    schedules = [torch.optim.lr_scheduler.LambdaLR(one, lambda i: rate_at(i + 1, args)) for one in both]
    corpus = Corpus(args.seed)
    corpus.mix = mix_at(1)
    source = batches(corpus, tokenizer, args.tokens, args.seed)
    start, seen, loss_sum = time.perf_counter(), 0, 0.0
    for step in range(1, args.steps + 1):
        model.train()
        corpus.mix = mix_at(step)
        ids, learn = next(source)
        loss = step_loss(model, ids, learn)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for one, schedule in zip(both, schedules, strict=True):
            one.step()
            one.zero_grad()
            schedule.step()
        seen, loss_sum = seen + ids.numel(), loss_sum + loss.item()
        if step % 50 == 0:
            took = time.perf_counter() - start
            print(f"step {step} {took:.0f} s, {seen / 1e6:.2f} M tokens, loss {loss_sum / 50:.4f}", flush=True)
            loss_sum = 0.0
        if step % args.every == 0 and step >= args.pool_from:
            fill_pool(model, tokenizer, corpus, fold(args.seed, "pool", step) % 2**31)
        if step % args.every == 0 and step < args.steps:
            line = measure(model, tokenizer, "train", args.measured, fold(args.seed, "measure", step) % 2**31)
            print(f"step {step}: {line}", flush=True)
            if args.checkpoints:
                save(model, tokenizer, args.checkpoints / f"{step:05d}")
    save(model, tokenizer, args.out)
    print(f"saved after {time.perf_counter() - start:.0f} s", flush=True)
    print(f"test: {measure(model, tokenizer, 'test', 1000, fold(args.seed, 'test') % 2**31)}", flush=True)


def save(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerBase, out: Path) -> None:
    """Write a directory that from_pretrained reads."""
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.save_pretrained(out)
    tokenizer.save_pretrained(out, save_jinja_files=False)


def arguments() -> argparse.Namespace:
    """The settings of the bundled model are the defaults."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--decay", type=int, default=2200)
    parser.add_argument("--warmup", type=int, default=100)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--muon-lr", type=float, default=0.02)
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--every", type=int, default=200, help="steps between measurements and refills of the pool")
    parser.add_argument("--pool-from", type=int, default=800)
    parser.add_argument("--measured", type=int, default=200, help="problems a set in each measurement")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--checkpoints", type=Path, default=None)
    return parser.parse_args()


if __name__ == "__main__":
    train(arguments())
