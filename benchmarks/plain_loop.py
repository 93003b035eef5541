"""The yardstick: TRACER's loop as it is usually written. One dialogue at a time, one `generate` call a candidate,
HF generate with PEFT adapters switched by name, one optimizer step after every utterance. Same prompts, same model, same
settings, same grading as counterpoint; nothing of its engine, driver or learner.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from counterpoint.algorithms.policy_loss import gspo
from counterpoint.gguf import load_gguf
from counterpoint.prompts import review, revise, solve
from counterpoint.records import Message, Task
from counterpoint.tasks.grading import extract, grade, verdict


@dataclass
class Plain:
    """A model with one PEFT adapter a (agent, role)."""

    path: str
    new_tokens: int
    candidates: int = 4
    rounds: int = 5

    def __post_init__(self) -> None:
        if self.path.endswith(".gguf"):
            from pathlib import Path

            base, self.tokenizer = load_gguf(Path(self.path), dtype=torch.float32)
        else:
            self.tokenizer = AutoTokenizer.from_pretrained(self.path)
            base = AutoModelForCausalLM.from_pretrained(self.path, dtype=torch.float32)
        names = [f"a{i}_{role}" for i in (0, 1) for role in ("p", "r")]
        config = LoraConfig(r=8, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM")
        self.model = get_peft_model(base, config, adapter_name=names[0])
        for name in names[1:]:
            self.model.add_adapter(name, config)
        self.optimizers = {
            name: torch.optim.Adam([p for n, p in self.model.named_parameters() if f".{name}." in n], lr=3e-4)
            for name in names
        }
        self.generated = 0

    def encode(self, messages: Sequence[Message]) -> torch.Tensor:
        chat = [{"role": m.role, "content": m.content} for m in messages]
        text = self.tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
        return torch.tensor([self.tokenizer(text, add_special_tokens=False)["input_ids"]])

    def sample(self, adapter: str, prompt: torch.Tensor) -> torch.Tensor:
        """One call, one candidate."""
        self.model.set_adapter(adapter)
        self.model.eval()
        with torch.no_grad():
            out = self.model.generate(
                input_ids=prompt,
                attention_mask=torch.ones_like(prompt),
                do_sample=True,
                temperature=1.0,
                top_k=0,
                max_new_tokens=self.new_tokens,
                pad_token_id=self.tokenizer.pad_token_id or self.tokenizer.eos_token_id,
            )
        ids = out[0, prompt.shape[1] :]
        self.generated += len(ids)
        return ids

    def text(self, ids: torch.Tensor) -> str:
        return str(self.tokenizer.decode(ids, skip_special_tokens=True))

    def logp(self, prompt: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        logits = self.model(input_ids=torch.cat([prompt[0], ids])[None]).logits[0, prompt.shape[1] - 1 : -1]
        return torch.log_softmax(logits.float(), -1).gather(-1, ids[:, None])[:, 0]

    def learn(self, adapter: str, prompt: torch.Tensor, group: list[torch.Tensor], rewards: list[float]) -> None:
        """One GSPO step on one group, one sequence at a time."""
        r = torch.tensor(rewards)
        if r.std(unbiased=False) < 0.05:
            return
        advantage = (r - r.mean()) / r.std(unbiased=False)
        self.model.set_adapter(adapter)
        self.model.train()
        optimizer = self.optimizers[adapter]
        optimizer.zero_grad()
        for ids, a in zip(group, advantage, strict=True):
            logp = self.logp(prompt, ids)[None]
            mask = torch.ones_like(logp, dtype=torch.bool)
            loss, _ = gspo(logp, logp.detach(), mask, a[None], clip_low=0.1, clip_high=0.1, denominator=len(group))
            loss.backward()
        torch.nn.utils.clip_grad_norm_([p for g in optimizer.param_groups for p in g["params"]], 0.5)
        optimizer.step()

    def dialogue(self, task: Task, *, train: bool) -> str | None:
        """Propose, review, propose, review, propose; everybody always speaks. Trains after each utterance."""
        pending, answer, votes, history = "", None, 0, []
        for number in range(1, self.rounds + 1):
            agent = (number // 2) % 2
            if number % 2:
                messages = solve(task) if not pending else revise(task, pending, votes, history[-4:])
                adapter = f"a{agent}_p"
            else:
                messages, adapter = review(task, pending, history[-4:]), f"a{agent}_r"
            prompt = self.encode(messages)
            group = [self.sample(adapter, prompt) for _ in range(self.candidates if train else 1)]
            texts = [self.text(ids) for ids in group]
            if number % 2:
                answers = [extract(task.kind, t) for t in texts]
                rewards = [1.0 if grade(task, a) == "right" else -1.0 for a in answers]
                if pending:
                    history.append((f"agent{1 - agent} proposed", pending))
                pending, answer, votes = texts[0], answers[0], 0
            else:
                right = grade(task, answer) == "right"
                verdicts = [verdict(t) for t in texts]
                rewards = [0.0 if v is None else 1.0 if (v == "right") == right else -1.0 for v in verdicts]
                votes += {"right": 1, "wrong": -1, None: 0}[verdicts[0]]
                history.append((f"agent{agent} reviewed", texts[0]))
            if train:
                self.learn(adapter, prompt, group, rewards)
        return answer


def measure(path: str, tasks: Sequence[Task], *, new_tokens: int, train: bool) -> tuple[float, float]:
    """(dialogues/s, generated tokens/s) of the plain loop."""
    torch.manual_seed(0)
    plain = Plain(path, new_tokens)
    plain.dialogue(tasks[0], train=train)  # warm-up
    plain.generated = 0
    start = time.perf_counter()
    for task in tasks:
        plain.dialogue(task, train=train)
    seconds = time.perf_counter() - start
    return len(tasks) / seconds, plain.generated / seconds
