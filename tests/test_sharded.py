"""Decoder layers in parts over two ranks (FSDP2): the learning of one process. torch's own caches keep the group of a sharded
model alive to the end of the process, so this is not among what CI runs with two ranks."""

import json
import subprocess
import sys
from dataclasses import asdict

import pytest

from tests.test_learner import samples_of
from tests.test_ranks import copy_of

SHARDED = """
import os, sys, json
import torch
torch.set_num_threads(1)
from counterpoint.learner import Learner, LearnerSettings
from counterpoint.lora import LoraSettings
from counterpoint.models import Model, ModelSettings
from counterpoint.ranks import RanksSettings, joined
from counterpoint.records import Sample, Sampling

micro, samples, out = sys.argv[1:]
samples = [Sample(s["agent"], tuple(s["prompt_ids"]), tuple(s["token_ids"]), tuple(s["old_logp"]), s["advantage"])
           for s in json.load(open(samples))]
names = sorted({s.agent for s in samples})
def learn(ranks):
    model = Model(ModelSettings(name=micro, device="cpu"), names, lora=LoraSettings(r=4), seed=0)
    settings = LearnerSettings(lr=1e-3, minibatches=3, kl=0.1, token_budget=64)
    learner = Learner(dict.fromkeys(names, model), settings=settings, sampling=Sampling(temperature=0.8), seed=0, ranks=ranks)
    layers = model.base.base_model.layers
    frozen = [p for p in layers.parameters() if p not in model.adapters.own()]
    held = sum(p.to_local().numel() if hasattr(p, "to_local") else p.numel() for p in frozen)
    metrics = learner.step(samples)
    found = {f"{a}|{k}": p.flatten().tolist() for a, ps in learner.parameters.items() for k, p in ps.items()}
    with open(f"{out}.{ranks.rank}", "w") as file:
        json.dump({"metrics": metrics, "parameters": found, "held": held}, file)

with joined(RanksSettings(shard=True)) as ranks:
    learn(ranks)
"""


@pytest.mark.slow
def test_a_model_in_parts_learns_as_a_whole_one(micro, tmp_path):
    """FSDP2 over two ranks, with an odd number of micro-batches: metrics and adapters of one process, half the layers each."""
    (tmp_path / "program.py").write_text(SHARDED, encoding="utf-8")
    samples = samples_of(copy_of(micro), per_agent=3)
    (tmp_path / "samples.json").write_text(json.dumps([asdict(s) for s in samples]), encoding="utf-8")
    found = []
    for ranks in (1, 2):
        start = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"] if ranks > 1 else []
        line = [sys.executable, *start, "program.py", micro, "samples.json", f"out{ranks}"]
        done = subprocess.run(line, capture_output=True, text=True, timeout=300, cwd=tmp_path, check=False)
        assert done.returncode == 0, done.stderr
        found += [json.loads((tmp_path / f"out{ranks}.{rank}").read_text()) for rank in range(ranks)]
    one, *both = found
    for part in both:
        assert part["metrics"] == pytest.approx(one["metrics"], abs=1e-5)
        assert part["held"] == one["held"] / 2
        for key, values in one["parameters"].items():
            assert part["parameters"][key] == pytest.approx(values, abs=1e-5)
