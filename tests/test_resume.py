"""Killed with SIGKILL at any moment and resumed, a run equals the uninterrupted one bit for bit."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

SETTINGS = [
    "steps=3", "dialogues=4", "tasks.eval=[mini-gsm]", "evaluation.limit=6", "sampling.max_new_tokens=12",
    "learner.lr=1e-2", "learner.minibatches=2", "method.value=outcome", "method.token_cost=0.01", "model.device=cpu",
]  # fmt: skip

KILLER = """
import os, signal, sys
import torch
torch.set_num_threads(1)
from counterpoint import cli, learner, store, train
where, count = sys.argv.pop(1).split(":")
left = int(count)

def dying(function):
    def wrapped(*args, **kwargs):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*args, **kwargs)
    return wrapped

class Adapter:
    def validate_json(self, line): return original.validate_json(line)
    @dying
    def dump_json(self, episode): return original.dump_json(episode)

original = store.EPISODE
if where == "episode":
    store.EPISODE = Adapter()
elif where == "checkpoint":  # adapters are written, the optimizer is not
    learner.save_file = dying(learner.save_file)
elif where == "move":  # everything is written, nothing is in place
    store.Store.finish_checkpoint = dying(store.Store.finish_checkpoint)
elif where == "metrics":
    store.Store.append_line = dying(store.Store.append_line)
elif where == "summary":
    store.Store.write_summary = dying(store.Store.write_summary)
cli.main()
"""


def start(point, model, out, *flags):
    words = ["train", f"model.name={model}", *SETTINGS, "--out", str(out), "--quiet", *flags]
    return subprocess.Popen([sys.executable, "-c", KILLER, point, *words], stdout=subprocess.DEVNULL)


def run(point, model, out, *flags):
    return start(point, model, out, *flags).wait(timeout=300)


def contents(out: Path) -> dict[str, bytes]:
    files = {str(p.relative_to(out)): p.read_bytes() for p in sorted(out.rglob("*")) if p.is_file()}
    return {
        name: data
        for name, data in files.items()
        if name not in ("timings.jsonl", "report.html") and "writing" not in name
    }


@pytest.fixture(scope="module")
def whole(micro, tmp_path_factory):
    out = tmp_path_factory.mktemp("whole") / "run"
    assert run("none:1", micro, out) == 0
    found = contents(out)
    assert {"summary.json", "metrics.jsonl", "train/000003.jsonl", "checkpoints/000003/optimizer.safetensors"} <= set(
        found
    )
    return found


POINTS = ["checkpoint:2", "episode:40"]
MORE = ["move:1", "move:3", "metrics:2", "summary:1", "episode:2", "episode:9", "checkpoint:1", "episode:75"]


@pytest.mark.parametrize("point", [*POINTS, *(pytest.param(p, marks=pytest.mark.slow) for p in MORE)])
def test_killed_at_a_chosen_point(whole, micro, tmp_path, point):
    out = tmp_path / "run"
    assert run(point, micro, out) == -signal.SIGKILL
    assert run("none:1", micro, out, "--resume") == 0
    again = contents(out)
    assert again.keys() == whole.keys()
    assert [name for name in whole if whole[name] != again[name]] == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_killed_at_random_moments_again_and_again(whole, micro, tmp_path, seed):
    out, rng, flags = tmp_path / "run", random.Random(seed), []
    for _ in range(6):
        process = start("none:1", micro, out, *flags)
        time.sleep(rng.uniform(4, 12))
        process.kill()
        process.wait()
        flags = ["--resume"] if (out / "config.yaml").exists() else []
    assert run("none:1", micro, out, *flags) == 0
    again = contents(out)
    assert [name for name in whole if whole[name] != again.get(name)] == []
