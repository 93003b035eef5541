"""The vllm engine: what it asks of vLLM, against a small stand-in; what real vLLM answers, where it is installed."""

import importlib.util
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from counterpoint.engines.hf import HFEngine
from counterpoint.engines.sampling import log_softmax
from counterpoint.engines.vllm import VLLMSettings, adapter_key, draw_options, engine_options
from counterpoint.errors import ConfigError, MissingExtra
from counterpoint.lora import LoraSettings
from counterpoint.models import Model, ModelSettings
from counterpoint.records import Message, Request, Sampling
from counterpoint.rng import fold
from counterpoint.testing import check_engine

INSTALLED = importlib.util.find_spec("vllm") is not None
SAMPLED = Sampling(temperature=0.7, max_new_tokens=12)
GREEDY = Sampling(temperature=0, max_new_tokens=16)


# ---- a stand-in: replies that depend on the prompt, the adapter's key and the seed, and nothing else ---------------


@dataclass
class LoRARequest:
    lora_name: str
    lora_int_id: int
    lora_path: str


class LLM:
    """Writes down what it is asked; every reply is three tokens of its own and EOS."""

    def __init__(self, **options):
        self.options, self.calls = options, []

    def generate(self, prompts, parameters, *, lora_request, use_tqdm):
        self.calls.append([*zip(prompts, parameters, lora_request, strict=True)])
        return [SimpleNamespace(outputs=[self._output(*asked)]) for asked in self.calls[-1]]

    def _output(self, prompt, parameters, lora):
        assert Path(lora.lora_path, "adapter_model.safetensors").is_file()
        seed = fold(parameters.seed, lora.lora_name, *prompt["prompt_token_ids"])
        ids = [5 + seed % 50, 5 + seed // 50 % 50, 7, parameters.stop_token_ids[0]][: parameters.max_tokens]
        return SimpleNamespace(token_ids=ids, logprobs=[{i: SimpleNamespace(logprob=-1.0)} for i in ids])


@pytest.fixture
def stand_in(monkeypatch):
    """`import vllm` finds a small module of the same shape."""
    module = SimpleNamespace(__version__="0.32.0", LLM=LLM, SamplingParams=lambda **options: SimpleNamespace(**options))
    monkeypatch.setitem(sys.modules, "vllm", module)
    monkeypatch.setitem(sys.modules, "vllm.lora", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "vllm.lora.request", SimpleNamespace(LoRARequest=LoRARequest))
    return module


def test_contract_on_the_stand_in(team, stand_in):
    check_engine(VLLMSettings(name="vllm").open(None, team.models), sorted(team.models))


def test_a_published_adapter_gets_a_key_of_its_own(team, stand_in):
    engine = VLLMSettings(name="vllm").open(None, team.models)
    [request] = [Request("agent1/reviewer", (Message("user", "3 + 4"),), "t", 2)]
    seen = []
    for version in (None, 7, 7):  # the same version twice, as after a resume
        engine.generate([request], seeds=[1], sampling=SAMPLED)
        seen += [lora for _, _, lora in engine.servers[0].calls[-1]]
        engine.publish(version)
    assert len({lora.lora_int_id for lora in seen}) == len({lora.lora_name for lora in seen}) == 3
    assert [Path(lora.lora_path).exists() for lora in seen] == [False] * 6
    assert engine.version == 7


def test_keys_of_all_adapters_and_publications_differ():
    names = ["a/x", "a/y", "b/x"]
    keys = [adapter_key(names, name, k) for k in range(4) for name in names]
    assert sorted(number for _, number in keys) == list(range(1, 13))
    assert len({name for name, _ in keys}) == 12
    assert adapter_key(names, "a/y", 2) == ("a/y@2", 8)


def test_siblings_have_seeds_of_their_own_and_requests_reach_their_own_model(team, micro, stand_in):
    names = ["b/x", "b/y"]
    other = Model(ModelSettings(name=micro, device="cpu"), names, lora=LoraSettings(r=9), seed=1)
    engine = VLLMSettings(name="vllm").open(None, {**team.models, **dict.fromkeys(names, other)})
    asked = [Request(a, (Message("user", "3 + 4"),), "t", 2) for a in ("b/y", "agent0/proposer", "b/x")]
    replies = engine.generate(asked, seeds=[1, 2, 3], sampling=SAMPLED)
    first, second = engine.servers
    assert [lora.lora_name for _, _, lora in second.calls[0]] == ["b/y@0"] * 2 + ["b/x@0"] * 2
    assert [p.seed for _, p, _ in second.calls[0]] == [fold(s, j) for s in (1, 3) for j in (0, 1)]
    assert [p.seed for _, p, _ in first.calls[0]] == [fold(2, 0), fold(2, 1)]
    assert (first.options["max_lora_rank"], second.options["max_lora_rank"]) == (8, 16)
    assert (first.options["max_loras"], second.options["max_loras"]) == (4, 2)
    assert all(c.prompt_ids == other.encode(asked[0].messages) for c in replies[0])


def test_nothing_is_left_to_the_models_generation_config(team):
    assert draw_options(Sampling(0.5, 9, 0.9, 4), 3, (1, 2)) == {
        "temperature": 0.5, "top_p": 0.9, "top_k": 4, "max_tokens": 9, "seed": 3, "stop_token_ids": [1, 2],
        "logprobs": 0, "detokenize": False,
    }  # fmt: skip
    model = next(iter(team.models.values()))
    options = engine_options(VLLMSettings(name="vllm", context=300, cache_gib=0.5, compile=False), model)
    assert options["generation_config"] == "vllm"
    assert options["dtype"] == "float32"
    assert (options["max_model_len"], options["kv_cache_memory_bytes"]) == (300, 2**29)
    assert options["enforce_eager"]
    assert not options["enable_chunked_prefill"]  # on a CPU a seeded request cannot be run in pieces
    assert options["max_num_batched_tokens"] >= options["max_model_len"]
    assert "revision" not in options


def test_a_prompt_beyond_the_context(team, stand_in):
    engine = VLLMSettings(name="vllm", context=40).open(None, team.models)
    long = Request("agent0/proposer", (Message("user", "word " * 50),), "t", 1)
    with pytest.raises(ConfigError, match="do not fit the context of 40; lower max_new_tokens"):
        engine.generate([long], seeds=[0], sampling=SAMPLED)


@pytest.mark.parametrize("version", ["0.31.9", "0.33.0", "1.0"])
def test_another_version_is_refused(team, stand_in, version):
    stand_in.__version__ = version
    with pytest.raises(ConfigError, match=f"written for vllm>=0.32,<0.33, installed is {version}"):
        VLLMSettings(name="vllm").open(None, team.models)


def test_without_vllm_the_extra_is_named(team, monkeypatch):
    class Absent:
        def find_spec(self, name, path=None, target=None):
            if name == "vllm":
                raise ModuleNotFoundError("No module named 'vllm'", name="vllm")

    monkeypatch.delitem(sys.modules, "vllm", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Absent(), *sys.meta_path])
    with pytest.raises(MissingExtra, match=r'pip install "counterpoint\[vllm\]"'):
        VLLMSettings(name="vllm").open(None, team.models)


def test_a_vllm_without_what_it_imports_says_so(team, monkeypatch, tmp_path):
    monkeypatch.delitem(sys.modules, "vllm", raising=False)
    (tmp_path / "vllm.py").write_text("import no_such_package_of_vllm\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match="installed without 'no_such_package_of_vllm', which it imports"):
        VLLMSettings(name="vllm").open(None, team.models)


def test_gguf_is_refused(team):
    model = next(iter(team.models.values()))
    stand_in = SimpleNamespace(settings=ModelSettings(name="m.gguf"), adapters=model.adapters)
    with pytest.raises(ConfigError, match=r"does not read 'm\.gguf'"):
        engine_options(VLLMSettings(name="vllm"), stand_in)


# ---- the real one --------------------------------------------------------------------------------------------------

real = pytest.mark.skipif(not INSTALLED, reason="vllm is not installed: see docs/scaling.md")
REAL = VLLMSettings(name="vllm", compile=False, cache_gib=0.25, max_rows=64)
NAMES = [f"agent{i}/{role}" for i in (0, 1) for role in ("proposer", "reviewer")]


@pytest.fixture(scope="module")
def served():
    """The bundled model with four adapters of their own, on vLLM and on the hf engine."""
    model = Model(ModelSettings(device="cpu"), NAMES, lora=LoraSettings(r=8), seed=0)
    _shake(model, 0.02)
    models = dict.fromkeys(NAMES, model)
    return REAL.open(None, models), HFEngine(models)


def _shake(model, scale):
    for i, name in enumerate(NAMES):
        for parameter in model.adapters.parameters(name).values():
            noise = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(i))
            parameter.data.add_(scale * noise)
    model.adapters.refresh()


def _requests(n=1, count=8):
    text = "Tom has 7 apples. He buys 5 more. How many apples does Tom have now?"
    return [
        Request(NAMES[i % 4], (Message("system", "Solve."), Message("user", f"{text} {i}")), "t", n)
        for i in range(count)
    ]


@real
@pytest.mark.slow
def test_contract_on_vllm(served):
    check_engine(served[0], NAMES)


@real
@pytest.mark.slow
def test_greedy_replies_equal_the_hf_engines(served):
    asked, seeds = _requests(), list(range(8))
    served[1].publish(served[0].version)
    mine, theirs = (engine.generate(asked, seeds=seeds, sampling=GREEDY) for engine in served)
    assert [[c.token_ids for c in g] for g in mine] == [[c.token_ids for c in g] for g in theirs]
    assert [[c.text for c in g] for g in mine] == [[c.text for c in g] for g in theirs]
    assert len({g[0].token_ids for g in mine}) > 1


@real
@pytest.mark.slow
def test_logprobs_are_close_to_teacher_forced_ones(served):
    engine = served[0]
    model = engine.models[NAMES[0]]
    asked = _requests(n=3)
    for request, group in zip(
        asked, engine.generate(asked, seeds=[fold(1, i) for i in range(8)], sampling=SAMPLED), strict=True
    ):
        assert len({c.token_ids for c in group}) >= 1
        for c in group:
            row = torch.tensor([NAMES.index(request.agent)])
            with torch.no_grad(), model.adapters.routed(row, live=True):
                logits = model.base(input_ids=torch.tensor([c.prompt_ids + c.token_ids])).logits[0]
            logp = log_softmax(logits, SAMPLED.temperature)[len(c.prompt_ids) - 1 : -1]
            forced = logp.gather(-1, torch.tensor(c.token_ids)[:, None])[:, 0]
            torch.testing.assert_close(torch.tensor(c.logprobs), forced, atol=1e-3, rtol=1e-3)


@real
@pytest.mark.slow
def test_an_update_shows_in_the_next_reply_and_only_when_published(served):
    engine, reference = served
    asked, seeds = _requests(), list(range(8))
    before = engine.generate(asked, seeds=seeds, sampling=GREEDY)
    _shake(engine.models[NAMES[0]], 0.05)
    assert engine.generate(asked, seeds=seeds, sampling=GREEDY) == before
    version = engine.publish()
    after = engine.generate(asked, seeds=seeds, sampling=GREEDY)
    reference.publish(version)
    assert after[0][0].version == version
    assert [g[0].token_ids for g in after] != [g[0].token_ids for g in before]
    theirs = reference.generate(asked, seeds=seeds, sampling=GREEDY)
    assert [g[0].token_ids for g in after] == [g[0].token_ids for g in theirs]


@real
@pytest.mark.slow
def test_two_steps_of_training(tmp_path):
    """Through the command line, as a person starts it; vLLM's processes end with it."""
    words = ["steps=2", "dialogues=4", "evaluation.limit=4", "tasks.eval=[mini-gsm]", "evaluation.also=none"]
    words += ["engine.name=vllm", "engine.compile=false", "engine.cache_gib=0.25", "model.device=cpu"]
    line = [sys.executable, "-m", "counterpoint.cli", "train", *words, f"--out={tmp_path / 'run'}"]
    done = subprocess.run(line, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=400)
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["train"]["steps"] == 2
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    gaps = {k: v for line in lines for k, v in json.loads(line).items() if "engine_logp_gap" in k}
    assert {"learn/engine_logp_gap/proposer", "learn/engine_logp_gap_max/proposer"} <= gaps.keys()
    assert max(gaps.values()) < 1e-2
