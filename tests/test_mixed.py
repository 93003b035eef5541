"""Two different base models in one team: each loaded once, trained, resumed exactly, and never on other weights."""

import json

import pytest
import torch
from transformers import AutoTokenizer, Qwen2Config, Qwen2ForCausalLM

from counterpoint.config import Config
from counterpoint.errors import ResumeError
from counterpoint.models import Model, distinct
from counterpoint.store import Store
from counterpoint.team import build_team
from counterpoint.train import train


def qwen(folder, micro, *, seed):
    tokenizer = AutoTokenizer.from_pretrained(micro)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = Qwen2ForCausalLM(
            Qwen2Config(
                vocab_size=len(tokenizer), hidden_size=24, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
                num_key_value_heads=2, max_position_embeddings=1024, tie_word_embeddings=True, initializer_range=0.2,
                eos_token_id=tokenizer.eos_token_id, bos_token_id=None, pad_token_id=tokenizer.pad_token_id,
            )
        )  # fmt: skip
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture
def other(micro, tmp_path):
    return qwen(tmp_path / "qwen", micro, seed=1)


def parity(kind, reply):
    """Half of a random model's replies have an answer."""
    return "0" if len(reply) % 2 else None


def for_an_answer(outcome):
    return -1.0 if outcome == "unreadable" else 1.0


def mixed(micro, other, **settings):
    return Config(
        agents=[
            {"name": "llama", "model": {"name": micro, "device": "cpu"}},
            {"name": "qwen", "model": {"name": other, "device": "cpu"}},
        ],
        method={
            "name": "propose_review",
            "rounds": 3,
            "candidates": 4,
            "hooks": {"extract": f"{__name__}:parity", "propose_reward": f"{__name__}:for_an_answer"},
        },
        tasks={"eval": ["mini-gsm"]},
        dialogues=8,
        sampling={"max_new_tokens": 64},
        evaluation={"limit": 4, "untrained": False, "also": "none"},
        **settings,
    )


def test_each_model_is_loaded_once(micro, other, monkeypatch):
    loaded = []
    plain = Model.__init__
    monkeypatch.setattr(
        Model,
        "__init__",
        lambda self, settings, *a, **k: (loaded.append(settings.name), plain(self, settings, *a, **k))[1],
    )
    team = build_team(mixed(micro, other, steps=1))
    assert loaded == [micro, other]
    assert sorted(len(m.adapters.names) for m in distinct(team.models)) == [2, 2]
    assert len({r["sha256"] for r in team.model_record().values()}) == 2


def test_trained_and_resumed(micro, other, tmp_path, interrupted):
    whole = train(mixed(micro, other, steps=3), tmp_path / "whole")
    interrupted(mixed(micro, other, steps=3), tmp_path / "cut", 3)
    resumed = train(mixed(micro, other, steps=3), tmp_path / "cut", resume=True)
    assert resumed == whole
    assert {r["name"] for r in whole["models"].values()} == {micro, other}
    for name in ("metrics.jsonl", "train/000003.jsonl", "eval/mini-gsm.jsonl"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    lines = [json.loads(line) for line in (tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()]
    assert all(line["learn/rows"] > 1 for line in lines)
    start, end = ((tmp_path / "whole" / "checkpoints" / f"{step:06d}" / "adapters") for step in (2, 3))
    for agent in ("llama", "qwen"):
        file = f"{agent}/proposer/adapter_model.safetensors"
        assert (start / file).read_bytes() != (end / file).read_bytes()


def test_other_weights_under_the_same_name_are_refused(micro, other, tmp_path):
    train(mixed(micro, other, steps=1), tmp_path / "run")
    qwen(other, micro, seed=2)
    assert Store(tmp_path / "run").newest_checkpoint()
    (tmp_path / "run" / "summary.json").unlink()
    with pytest.raises(ResumeError, match=r"was trained on .* with hash .* name the model it was trained on"):
        train(mixed(micro, other, steps=1), tmp_path / "run", resume=True)
