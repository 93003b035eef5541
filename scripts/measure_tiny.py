"""Measure the bundled model: accuracy by set, the reviewer's confusion, reply lengths by role: python scripts/measure_tiny.py"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from tiny_corpus import ROLES, SETS, Attempt, Corpus
from tiny_sample import Reply, attempts, review_rates, sample, share
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM, PreTrainedTokenizerBase

from counterpoint import prompts
from counterpoint.tasks.mini import worked_split

BUNDLED = Path(__file__).parent.parent / "src" / "counterpoint" / "data" / "tiny"


def readable(replies: Sequence[Reply]) -> float:
    """The share of replies that stop by themselves after a final line."""
    return share([reply.stopped and reply.text.rpartition("\n")[2].startswith("Final answer: ") for reply in replies])


def accuracies(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerBase, n: int, seed: int) -> list[Attempt]:
    """Print one row a set: solving and reviewing on the test split; return the sampled solutions."""
    print("| set | sampled | greedy | readable | revised (sampled) | right ones recognised | wrong ones recognised |")
    print("|---|---|---|---|---|---|---|")
    everything: list[Attempt] = []
    for name in SETS:
        problems = worked_split(name, "test")[:n]
        tried, replies = attempts(model, tokenizer, problems, 1.0, seed)
        greedy, _ = attempts(model, tokenizer, problems, 0.0, seed)
        asked = [prompts.revise(one.worked.task("x"), one.text, 0, ()) for one in tried]
        revised = [
            reply.text.endswith(one.worked.final_line)
            for one, reply in zip(tried, sample(model, tokenizer, asked, 1.0, seed + 1), strict=True)
        ]
        rates = review_rates(model, tokenizer, tried, seed)
        print(
            f"| {name} | {share([a.right for a in tried]):.3f} | {share([a.right for a in greedy]):.3f} "
            f"| {readable(replies):.3f} | {share(revised):.3f} | {rates['right']:.3f} | {rates['wrong']:.3f} |",
            flush=True,
        )
        everything += tried
    rates = review_rates(model, tokenizer, everything, seed)
    print(f"| all | | | | | {rates['right']:.3f} | {rates['wrong']:.3f} |")
    print(
        f"\nverdicts readable: {rates['read_right']:.3f} of right, {rates['read_wrong']:.3f} of wrong ones\n",
        flush=True,
    )
    return everything


def lengths(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerBase, n: int, seed: int) -> None:
    """Print one row a role: the tokens of sampled replies."""
    print("| role | mean tokens a reply | 99th percentile | stopped by itself |\n|---|---|---|---|")
    corpus = Corpus(seed)
    for role in ROLES:
        if role == "drill":
            continue
        replies = sample(model, tokenizer, [corpus.example(role).messages for _ in range(n)], 1.0, seed)
        counts = [reply.tokens for reply in replies]
        stopped = share([reply.stopped for reply in replies])
        print(f"| {role} | {np.mean(counts):.1f} | {np.percentile(counts, 99):.0f} | {stopped:.3f} |", flush=True)


def main() -> None:
    """Measure a directory; the default is the bundled model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", nargs="?", type=Path, default=BUNDLED)
    parser.add_argument("--n", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=7)
    args = parser.parse_args()
    torch.set_num_threads(2)
    model = AutoModelForCausalLM.from_pretrained(args.directory)
    tokenizer = AutoTokenizer.from_pretrained(args.directory)
    accuracies(model, tokenizer, args.n, args.seed)
    lengths(model, tokenizer, min(args.n, 250), args.seed)


if __name__ == "__main__":
    main()
