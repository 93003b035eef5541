"""transformers' own continuous batcher (`generate_batch`) against the slots of engines/hf.py, on one adapter-less model.

    python benchmarks/continuous_batching.py [--model tiny] [--prompts 64] [--samples 4]

Both sample at temperature 1 from the same prompts. The batcher knows no siblings, so it is given every prompt `--samples`
times; it draws all rows from one stream, so its replies depend on what shares the batch.
"""

from __future__ import annotations

import argparse
import time

import torch
from transformers import AutoModelForCausalLM, GenerationConfig
from transformers.generation.configuration_utils import ContinuousBatchingConfig

from counterpoint.engines.hf import HFEngine
from counterpoint.lora import LoraSettings
from counterpoint.models import Model, ModelSettings, model_path
from counterpoint.prompts import solve
from counterpoint.records import Request, Sampling
from counterpoint.rng import fold
from counterpoint.tasks.registry import load_tasks


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--prompts", type=int, default=64)
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--new-tokens", type=int, default=48)
    args = parser.parse_args()
    model = Model(ModelSettings(name=args.model, device="cpu"), ["a/x"], lora=LoraSettings(), seed=0)
    engine = HFEngine({"a/x": model})
    tasks = load_tasks("mini-gsm", "train")[: args.prompts]
    requests = [Request("a/x", tuple(solve(t)), "t", args.samples) for t in tasks]
    sampling = Sampling(max_new_tokens=args.new_tokens)

    def ours() -> int:
        seeds = [fold(0, i) for i in range(len(requests))]
        return sum(len(c.token_ids) for g in engine.generate(requests, seeds=seeds, sampling=sampling) for c in g)

    plain = AutoModelForCausalLM.from_pretrained(model_path(args.model), dtype=torch.float32).eval()
    prompts = [list(model.encode(r.messages)) for r in requests for _ in range(args.samples)]
    config = GenerationConfig(
        max_new_tokens=args.new_tokens, do_sample=True, temperature=1.0, top_k=0, top_p=1.0, eos_token_id=list(model.eos),
        pad_token_id=0,
    )  # fmt: skip

    # left to itself it fills the machine's memory with its cache before the first token
    limits = ContinuousBatchingConfig(num_blocks=2048, max_batch_tokens=1024)

    def theirs() -> int:
        out = plain.generate_batch(
            inputs=prompts,
            generation_config=config,
            continuous_batching_config=limits,
            progress_bar=False,
            warmup=False,
        )
        return sum(len(o.generated_tokens) for o in out.values())

    for name, run in (("slots", ours), ("generate_batch", theirs)):
        run()
        rates = []
        for _ in range(3):
            start = time.perf_counter()
            rates.append(run() / (time.perf_counter() - start))
        print(f"{name}: {sorted(rates)[1]:.0f} new tokens/s")


if __name__ == "__main__":
    main()
