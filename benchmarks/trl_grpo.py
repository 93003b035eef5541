"""Against TRL's GRPOTrainer with its GSPO settings: same model, prompts, group size, completion length; completions a second
over whole training steps (generation, reward, loss, optimizer).

    python -m venv --system-site-packages trl && trl/bin/pip install trl==1.16.0 && trl/bin/python benchmarks/trl_grpo.py

TRL is needed here only; nothing of the project depends on it. Both sides run 64 prompts x 4 completions a step, split into 4
optimizer steps, LoRA r 8 on all linear layers, float32, and time steps 2 to 4.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import torch
from throughput import step_seconds

from counterpoint.config import load_config
from counterpoint.models import model_path
from counterpoint.progress import Progress
from counterpoint.prompts import solve
from counterpoint.records import Task
from counterpoint.store import Store
from counterpoint.tasks.grading import grade_reply
from counterpoint.tasks.registry import load_tasks
from counterpoint.train import prepare

PROMPTS, GROUP, STEPS = 64, 4, 4


def ours(model: str, new_tokens: int) -> tuple[float, float]:
    """(completions/s, mean length) over whole steps of the method `single`."""
    settings = [
        f"model.name={model}", "model.device=cpu", "agents=1", "method={name: single, candidates: 4}", f"dialogues={PROMPTS}",
        f"sampling.max_new_tokens={new_tokens}", "tasks.eval=[]", "steps=9",
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        run = prepare(load_config(None, settings), Store(Path(folder)), Progress(quiet=True))
        seconds = step_seconds(run, STEPS)
        tokens = sum(run.cost.tokens.values()) / (STEPS * PROMPTS * GROUP)
    return PROMPTS * GROUP * (STEPS - 1) / sum(seconds[1:]), tokens


def theirs(model: str, new_tokens: int, tasks: list[Task]) -> tuple[float, float]:
    """(completions/s, mean length) over whole steps of GRPOTrainer."""
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    tokenizer = AutoTokenizer.from_pretrained(model_path(model))
    base = AutoModelForCausalLM.from_pretrained(model_path(model), dtype=torch.float32)
    rows = [
        {"prompt": [{"role": m.role, "content": m.content} for m in solve(t)], "index": i} for i, t in enumerate(tasks)
    ]
    lengths: list[int] = []

    def reward(
        completions: list[list[dict[str, str]]], completion_ids: list[list[int]], index: list[int], **_: object
    ) -> list[float]:
        lengths.extend(len(ids) for ids in completion_ids)
        return [
            1.0 if grade_reply(tasks[i], c[0]["content"]) == "right" else -1.0
            for i, c in zip(index, completions, strict=True)
        ]

    stamps = [time.perf_counter()]

    class Stamp(TrainerCallback):
        def on_step_end(self, args: object, state: object, control: object, **_: object) -> None:
            stamps.append(time.perf_counter())

    with tempfile.TemporaryDirectory() as folder:
        arguments = GRPOConfig(
            output_dir=folder,
            per_device_train_batch_size=PROMPTS * GROUP // 4,
            steps_per_generation=4,
            num_generations=GROUP,
            max_completion_length=new_tokens,
            importance_sampling_level="sequence",
            loss_type="grpo",
            beta=0.0,
            epsilon=0.1,
            temperature=1.0,
            learning_rate=3e-4,
            max_grad_norm=0.5,
            max_steps=4 * STEPS,
            bf16=False,
            gradient_checkpointing=False,
            report_to=[],
            logging_steps=1000,
            save_strategy="no",
            use_cpu=True,
            disable_tqdm=True,
        )
        trainer = GRPOTrainer(
            model=base,
            reward_funcs=reward,
            args=arguments,
            train_dataset=Dataset.from_list(rows),
            processing_class=tokenizer,
            peft_config=LoraConfig(
                r=8, lora_alpha=16, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM"
            ),
            callbacks=[Stamp()],
        )
        trainer.train()
    batches = stamps[::4]
    return PROMPTS * GROUP * (STEPS - 1) / (batches[STEPS] - batches[1]), sum(lengths) / len(lengths)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--new-tokens", type=int, default=96)
    args = parser.parse_args()
    tasks = list(load_tasks("mini-gsm", "train"))[: PROMPTS * STEPS]
    rate, length = ours(args.model, args.new_tokens)
    print(f"counterpoint: {rate:.1f} completions/s, mean length {length:.1f}")
    other, other_length = theirs(args.model, args.new_tokens, tasks)
    print(f"TRL GRPOTrainer: {other:.1f} completions/s, mean length {other_length:.1f}")
    print(f"ratio {rate / other:.2f}")


if __name__ == "__main__":
    main()
