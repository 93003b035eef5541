"""Playing the next batch while learning on this one: one step off-policy, never more, and resumed exactly."""

import json
import signal

import pytest

from counterpoint.config import load_config
from counterpoint.errors import ConfigError
from counterpoint.store import read_episodes
from counterpoint.train import train
from tests.test_resume import SETTINGS, contents, run


def trained(out, *settings):
    """The bundled model: a random one has no group with a signal."""
    lively = ["dialogues=6", "steps=4", "sampling.max_new_tokens=40", "tasks.eval=[]", "overlap=true"]
    return train(load_config(None, [*SETTINGS, *lively, *settings]), out)


def metrics(out):
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def replies(out, step):
    found = sorted(read_episodes(out / f"train/{step:06d}.jsonl"), key=lambda e: e.id)
    return [(e.id, t.agent, t.completion.token_ids) for e in found for t in e.turns]


def test_every_batch_but_the_first_is_one_step_old(tmp_path):
    trained(tmp_path / "run")
    lines = metrics(tmp_path / "run")
    assert [line["lag"] for line in lines] == [0, 1, 1, 1]
    versions = [
        {t.completion.version for e in read_episodes(tmp_path / f"run/train/{s:06d}.jsonl") for t in e.turns}
        for s in range(1, 5)
    ]
    assert versions == [{0}, {0}, {1}, {2}]
    gaps = [[v for k, v in line.items() if k.startswith("learn/on_policy_logp_gap/")] for line in lines]
    assert max(gaps[0]) < 1e-4 < min(max(g) for g in gaps[1:]), "the ratio tells that the batch is old"
    assert not (tmp_path / "run/train/000005.jsonl").exists()


def test_what_is_played_ahead_is_what_the_older_adapters_say(tmp_path):
    """Step 2 under the controllers of step 1 and the adapters of the start: as if learning had moved nothing."""
    trained(tmp_path / "ahead", "steps=2")
    trained(tmp_path / "still", "steps=2", "overlap=false", "learner.lr=1e-30")
    trained(tmp_path / "moved", "steps=2", "overlap=false")
    first, still, moved = (replies(tmp_path / name, 2) for name in ("ahead", "still", "moved"))
    assert first == still
    assert first != moved
    assert replies(tmp_path / "ahead", 1) == replies(tmp_path / "moved", 1)
    assert [line["lag"] for line in metrics(tmp_path / "moved")] == [0, 0]


@pytest.fixture(scope="module")
def whole(micro, tmp_path_factory):
    out = tmp_path_factory.mktemp("overlap") / "run"
    assert run("none:1", micro, out, "overlap=true") == 0
    return contents(out)


@pytest.mark.parametrize("point", ["episode:40", "checkpoint:2", pytest.param("metrics:2", marks=pytest.mark.slow)])
def test_killed_and_resumed(whole, micro, tmp_path, point):
    out = tmp_path / "run"
    assert run(point, micro, out, "overlap=true") == -signal.SIGKILL
    assert run("none:1", micro, out, "overlap=true", "--resume") == 0
    again = contents(out)
    assert again.keys() == whole.keys()
    assert [name for name in whole if whole[name] != again[name]] == []


def test_an_engine_on_the_learners_own_modules_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"overlap=true, and here engine 'hf' .*; set overlap=false, or engine=vllm"):
        trained(tmp_path / "run", "engine.fused=false")
