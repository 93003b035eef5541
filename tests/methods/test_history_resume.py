"""The run's history, the cache of solo outcomes and the alternation survive a stop: 2 + 2 steps are 4 steps, exactly."""

from pathlib import Path

import pytest

from counterpoint import train
from counterpoint.config import load_config

SETTINGS = [
    "method=think_solve", "method.thoughts=2", "method.train=alternate(2)", "steps=4", "dialogues=3",
    "tasks.train={source: mini-gsm, limit: 3}", "tasks.eval=mini-gsm", "evaluation.limit=1", "evaluation.also=none",
    "evaluation.untrained=false", "sampling.max_new_tokens=8", "learner.lr=1e-2", "model.device=cpu",
]  # fmt: skip


def files(out: Path) -> dict[str, bytes]:
    names = ["metrics.jsonl", "checkpoints/000004/history.json", *(f"train/00000{i}.jsonl" for i in range(1, 5))]
    return {name: (out / name).read_bytes() for name in names}


@pytest.mark.parametrize("credit", ["effective", "published_v1"])
def test_history_is_restored_exactly(micro, tmp_path, interrupted, credit):
    config = load_config(None, [*SETTINGS, f"model.name={micro}", f"method.credit={credit}"])
    train.train(config, tmp_path / "whole")
    whole = files(tmp_path / "whole")
    interrupted(config, tmp_path / "cut", 3)
    train.train(config, tmp_path / "cut", resume=True)
    assert files(tmp_path / "cut") == whole
    assert b'"run"' in whole["checkpoints/000004/history.json"]
    counts = [whole[f"train/00000{i}.jsonl"].count(b"\n") for i in range(1, 5)]
    assert counts == [
        6,
        3,
        3,
        6,
    ]  # solo forks of 3 questions: known while the solver is frozen, asked again when it moved
