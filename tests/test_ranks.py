"""Two ranks are one: equal gradients, metrics and dialogues up to rounding; a lost rank stops the run, which goes on exactly."""

import json
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from counterpoint.config import load_config
from counterpoint.engines.hf import HFEngine
from counterpoint.engines.scripted import ScriptedEngine
from counterpoint.errors import ConfigError, RankError
from counterpoint.evaluate import Player, evaluate_set
from counterpoint.learner import Learner, LearnerSettings
from counterpoint.lora import LoraSettings
from counterpoint.methods.propose_review import ProposeReview
from counterpoint.models import Model, ModelSettings
from counterpoint.ranks import Ranks, RanksSettings, TorchRanks, joined
from counterpoint.records import Sampling
from counterpoint.store import ReadOnlyStore, Store, read_episodes
from counterpoint.team import build_team
from counterpoint.testing import LONG, TASKS, guess_script
from tests.test_learner import samples_of
from tests.test_resume import contents

# ---- two ranks as two threads --------------------------------------------------------------------------------------


class ThreadRank(Ranks):
    """A rank that is a thread of this process."""

    def __init__(self, rank, world, board, barrier):
        super().__init__(rank, world)
        self.board, self.barrier = board, barrier

    def gather(self, value, what):
        self.board[self.rank] = value
        self.barrier.wait()
        found = list(self.board)
        self.barrier.wait()
        return found

    def sum_gradients(self, parameters, what):
        grads = [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in parameters]
        parts = self.gather(grads, what)
        for i, parameter in enumerate(parameters):
            parameter.grad = sum(part[i] for part in parts)


def side_by_side(work, world=2):
    """What `work(rank)` returns on each of several ranks that run at once."""
    board, barrier = [None] * world, threading.Barrier(world, timeout=60)
    with ThreadPoolExecutor(world) as pool:
        running = [pool.submit(work, ThreadRank(rank, world, board, barrier)) for rank in range(world)]
        return [future.result() for future in running]


NAMES = [f"agent{i}/{role}" for i in (0, 1) for role in ("proposer", "reviewer")]


def copy_of(micro):
    """Four adapters on the micro model, each time the same."""
    model = Model(ModelSettings(name=micro, device="cpu"), NAMES, lora=LoraSettings(r=4), seed=0)
    for i, name in enumerate(NAMES):
        for parameter in model.adapters.parameters(name).values():
            parameter.data.add_(0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(i)))
    model.adapters.refresh()
    return HFEngine(dict.fromkeys(NAMES, model))


@pytest.mark.parametrize("world", [2, 5])
def test_learning_is_that_of_one_rank(micro, world):
    """Also with more ranks than rows in a minibatch: a rank without rows of an adapter adds nothing and still moves it."""
    settings = LearnerSettings(lr=1e-3, minibatches=4, kl=0.1)
    engines = [copy_of(micro) for _ in range(world + 1)]
    samples = samples_of(engines[0], per_agent=2)
    sampling = Sampling(temperature=0.8, max_new_tokens=16)

    def learn(rank, engine):
        learner = Learner(engine.models, settings=settings, sampling=sampling, seed=0, ranks=rank)
        return learner.step(samples), learner.parameters

    expected, alone = learn(Ranks(), engines[world])
    found = side_by_side(lambda rank: learn(rank, engines[rank.rank]), world)
    for metrics, parameters in found:
        assert metrics == found[0][0]
        assert metrics == pytest.approx(expected, abs=1e-5)
        for name in NAMES:
            for key, parameter in parameters[name].items():
                torch.testing.assert_close(parameter, alone[name][key], atol=1e-5, rtol=1e-4)
                assert torch.equal(parameter, found[0][1][name][key])


def test_evaluation_is_that_of_one_rank(tmp_path):
    """Every rank has every dialogue, the first one writes them, and what is on disk is not played again."""
    method, agents = ProposeReview(), ("agent0", "agent1")

    def measured(rank, folder):
        engine = ScriptedEngine(guess_script)
        player = Player(method, agents, engine, method.controllers(agents), LONG, 0, 16)
        store = Store(folder) if rank.first else ReadOnlyStore(folder)
        found = evaluate_set(player, "set", TASKS, store=store, phase="eval", ranks=rank)
        return sorted(found, key=lambda e: e.id), engine.completions

    expected, count = measured(Ranks(), tmp_path / "one")
    found = side_by_side(lambda rank: measured(rank, tmp_path / "two"))
    assert [episodes for episodes, _ in found] == [expected, expected]
    assert sum(own for _, own in found) == count
    assert min(own for _, own in found) > 0
    file = Store(tmp_path / "two").eval_file("eval", "set")
    assert [e.id for e in read_episodes(file)] == [f"eval/{t.id}" for t in TASKS]
    again = side_by_side(lambda rank: measured(rank, tmp_path / "two"))
    assert again == [(expected, 0), (expected, 0)]


def test_ranks_that_differ_are_found():
    def agree(rank):
        with pytest.raises(RankError, match=r"ranks differ in seed: .* start all of them with one command"):
            rank.agree({"config": "a", "seed": rank.rank}, "the others")
        rank.agree({"config": "a"}, "the others")
        return rank.told(lambda: "first", "word")

    assert side_by_side(agree) == ["first", "first"]


def test_one_process_is_alone(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with joined(RanksSettings()) as ranks:
        assert (ranks.first, ranks.world, ranks.share([1, 2, 3]), ranks.gather(4, "")) == (True, 1, [1, 2, 3], [4])


def test_a_lost_rank_is_named():
    ranks = TorchRanks(1, 2, RanksSettings(timeout=30.0))
    with (
        pytest.raises(
            RankError, match=r"rank 1 of 2 waited for the gradients .* ranks.timeout=30 s \(closed\); .*--resume"
        ),
        ranks._waiting("the gradients of a"),
    ):
        raise RuntimeError("closed\nby peer")


# ---- two processes under torchrun ----------------------------------------------------------------------------------

SETTINGS = [
    "steps=2", "dialogues=5", "tasks.eval=[mini-gsm]", "evaluation.limit=5", "evaluation.also=none",
    "sampling.max_new_tokens=24", "learner.lr=1e-3", "learner.minibatches=2", "method.rounds=2", "method.value=outcome",
    "method.token_cost=0.01", "model.device=cpu",
]  # fmt: skip

PROGRAM = """
import atexit, os, signal, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from counterpoint import cli, learner
victim, step = sys.argv.pop(1), learner.Learner.step

@atexit.register
def tell_threads():
    names = [comm.read_text().strip() for comm in Path("/proc/self/task").glob("*/comm")]
    os.write(2, f"threads at exit: {' '.join(names)}\\n".encode())

def dying(self, samples):
    if self.steps == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return step(self, samples)

if os.environ.get("RANK") == victim:
    learner.Learner.step = dying
cli.main()
"""


def launched(folder: Path, victim: str, *words: str, ranks: int = 2) -> subprocess.CompletedProcess:
    program = folder / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    start = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"] if ranks > 1 else []
    line = [sys.executable, *start, str(program), victim, *words, "--quiet"]
    return subprocess.run(line, capture_output=True, text=True, timeout=400, env=os.environ | {"OMP_NUM_THREADS": "1"})


def trained(folder: Path, out: str, victim: str = "nobody", *flags: str, ranks: int = 2):
    return launched(folder, victim, "train", *SETTINGS, "--out", str(folder / out), *flags, ranks=ranks)


@pytest.fixture(scope="module", params=["overlap=false", "overlap=true"])
def two(tmp_path_factory, request):
    """An undisturbed run of two ranks."""
    folder = tmp_path_factory.mktemp("ranks")
    (folder / "flag").write_text(request.param)
    done = trained(folder, "two", "nobody", request.param)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("report:") == 1
    threads = [line for line in done.stderr.splitlines() if line.startswith("threads at exit:")]
    assert len(threads) == 2
    assert "gloo" not in "".join(threads), "a gloo thread that outlives its group may abort the process while it ends"
    return folder / "two"


@pytest.mark.slow
def test_a_run_of_two_ranks_is_that_of_one(two):
    done = trained(two.parent, "one", "nobody", (two.parent / "flag").read_text(), ranks=1)
    assert done.returncode == 0, done.stderr
    one = two.parent / "one"
    assert contents(one).keys() == contents(two).keys()
    for name in ("metrics.jsonl", "summary.json"):
        assert numbers(two / name) == pytest.approx(numbers(one / name), abs=1e-5)
    for file in [*one.glob("train/*.jsonl"), *one.glob("eval/*.jsonl"), *one.glob("untrained/*.jsonl")]:
        ours = sorted(read_episodes(two / file.relative_to(one)), key=lambda e: e.id)
        theirs = sorted(read_episodes(file), key=lambda e: e.id)
        for mine, other in zip(ours, theirs, strict=True):
            assert (mine.id, mine.answer, mine.fork) == (other.id, other.answer, other.fork)
            assert [(d.state, d.action) for d in mine.decisions] == [(d.state, d.action) for d in other.decisions]
            for turn, same in zip(mine.turns, other.turns, strict=True):
                assert (turn.agent, turn.completion.token_ids) == (same.agent, same.completion.token_ids)
                assert turn.completion.logprobs == pytest.approx(same.completion.logprobs, abs=1e-4)


def numbers(path: Path) -> dict[str, float]:
    """Every number of a JSON or JSON lines file, by where it stands."""

    def flat(value, at):
        if isinstance(value, dict | list):
            items = value.items() if isinstance(value, dict) else enumerate(value)
            return {k: v for key, inner in items for k, v in flat(inner, f"{at}/{key}").items()}
        return {at: float(value)} if isinstance(value, int | float) else {}

    text = path.read_text(encoding="utf-8")
    return flat(json.loads(text) if path.suffix == ".json" else [json.loads(line) for line in text.splitlines()], "")


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["0", "1"])
def test_a_lost_rank_stops_the_run_which_goes_on_exactly(two, tmp_path, victim):
    flag = (two.parent / "flag").read_text()
    done = trained(tmp_path, "run", victim, flag)
    assert done.returncode not in (0, -signal.SIGKILL)
    left = 1 - int(victim)
    assert f"counterpoint: rank {left} of 2 wa" in done.stderr
    assert "the run has stopped; start it again as before with --resume" in done.stderr
    assert not (tmp_path / "run" / "summary.json").exists()
    done = trained(tmp_path, "run", "nobody", flag, "--resume")
    assert done.returncode == 0, done.stderr
    again, whole = contents(tmp_path / "run"), contents(two)
    assert again.keys() == whole.keys()
    assert [name for name in whole if whole[name] != again[name]] == []


@pytest.mark.slow
def test_evaluation_of_a_run_by_two_ranks(two, tmp_path):
    for ranks in (1, 2):
        out = str(tmp_path / str(ranks))
        done = launched(tmp_path, "nobody", "evaluate", str(two), "evaluation.limit=7", "--out", out, ranks=ranks)
        assert done.returncode == 0, done.stderr
    one, both = (numbers(tmp_path / name / "summary.json") for name in ("1", "2"))
    assert both == pytest.approx(one, abs=1e-6)


def test_the_hf_engine_needs_whole_weights(micro):
    team = load_config(None, [f"model.name={micro}", "model.device=cpu", "steps=1"])
    with pytest.raises(ConfigError, match=r"ranks.shard=true, and engine 'hf' generates with the learner's weights"):
        build_team(team, Ranks(0, 2, sharded=True))
