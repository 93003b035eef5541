"""Replicas on a cluster of two nodes: as many as there are, the replies are the same; a lost one loses nothing."""

import os
import time
from functools import partial

import pytest
import torch

from counterpoint.config import load_config
from counterpoint.engines import make_engine_settings
from counterpoint.engines.base import Roster
from counterpoint.engines.hf import HFSettings
from counterpoint.engines.ray import RayEngine, split
from counterpoint.engines.scripted import ScriptedEngine
from counterpoint.errors import ConfigError, EngineError
from counterpoint.lora import LoraSettings
from counterpoint.methods.propose_review import ProposeReview
from counterpoint.models import BUNDLED, ModelSettings, load_models
from counterpoint.play import Job, play
from counterpoint.records import Message, Request, Sampling
from counterpoint.rng import fold
from counterpoint.testing import LONG, TASKS, check_engine, guess_script

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.slow  # a cluster of its own wants the machine to itself


@pytest.fixture(scope="module")
def cluster():
    """Two nodes of two cores each, and this process connected to them."""
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 2, "object_store_memory": 80_000_000, "include_dashboard": False}
    made = Cluster(initialize_head=True, head_node_args=head)
    made.add_node(num_cpus=2, object_store_memory=80_000_000)
    ray.init(address=made.address, log_to_driver=False, logging_level="error")
    yield made
    ray.shutdown()
    made.shutdown()


@pytest.fixture
def engines(cluster):
    """Opens engines, and lets their replicas go at the end."""
    opened = []

    def start(make, models=None, **settings):
        opened.append(RayEngine(make, models, **settings))
        return opened[-1]

    yield start
    for engine in opened:
        engine.close()


def scripted(script=guess_script):
    return ScriptedEngine(script), {}


class Fatal(ScriptedEngine):
    """Dies with its process in the middle of a call, as long as there is a file to take from `fuses`."""

    def __init__(self, fuses):
        super().__init__(guess_script)
        self.fuses = fuses

    def _complete(self, request, seed, sampling):
        if "prime" in request.messages[-1].content:
            for fuse in sorted(self.fuses.iterdir()):
                fuse.unlink()
                os._exit(1)
        return super()._complete(request, seed, sampling)


def fatal(fuses):
    return Fatal(fuses), {}


class Slow(ScriptedEngine):
    def _complete(self, request, seed, sampling):
        time.sleep(60)
        return super()._complete(request, seed, sampling)


def slow():
    return Slow(guess_script), {}


def too_long():
    def refuse(request, seed):
        raise ConfigError("a prompt does not fit")

    return ScriptedEngine(refuse), {}


def episodes(engine):
    method = ProposeReview()
    agents = ("agent0", "agent1")
    jobs = [Job(f"train/1/{t.id}#{k}", t) for t in TASKS for k in range(4)]
    played = play(
        method, jobs, agents=agents, engine=engine, controllers=method.controllers(agents), sampling=LONG, seed=0, n=2
    )
    return sorted(played, key=lambda e: e.id)


def test_equal_shares():
    requests = [Request("a/x", (Message("user", "x" * (k % 5)),), "t", 1 + k % 2) for k in range(11)]
    shares = split(requests, 3)
    assert sorted(k for share in shares for k in share) == list(range(11))
    assert {len(share) for share in shares} == {3, 4}
    assert split(requests[:1], 3) == [[0], [], []]


def test_contract(engines):
    check_engine(engines(scripted), ["a/x", "b/x"])


def test_episodes_do_not_depend_on_the_number_of_replicas(engines):
    expected = episodes(ScriptedEngine(guess_script))
    one, two = engines(scripted, replicas=1), engines(scripted, replicas=2)
    assert episodes(one) == expected
    assert episodes(two) == expected
    nodes = {ray.get(actor.__ray_call__.remote(_node)) for actor in two.replicas}
    assert len(nodes) == 2


def _node(_):
    return ray.get_runtime_context().get_node_id()


def test_a_replica_lost_in_the_middle_of_a_step_loses_nothing(engines, tmp_path):
    (tmp_path / "1").touch()
    (tmp_path / "2").touch()
    engine = engines(partial(fatal, tmp_path))
    assert episodes(engine) == episodes(ScriptedEngine(guess_script))
    assert engine.restarts == 2
    assert not list(tmp_path.iterdir())


def test_more_losses_than_allowed_stop_the_run(engines, tmp_path):
    for k in range(3):
        (tmp_path / str(k)).touch()
    engine = engines(partial(fatal, tmp_path), replicas=1, max_restarts=2)
    with pytest.raises(EngineError, match=r"replica 0 is lost and engine.max_restarts=2 are used up: "):
        episodes(engine)


def test_the_deadline_says_what_was_waited_for(engines):
    engine = engines(slow, replicas=1)
    engine.deadline = 0.5
    with pytest.raises(EngineError, match=r"waited 0.5 s for replica 0 for its replies; raise engine.deadline"):
        episodes(engine)


def test_no_room_for_a_replica(cluster):
    with pytest.raises(EngineError, match=r"waited 1 s for replica 0 to open its engine; .* needs 64 CPUs and 0 GPUs"):
        RayEngine(scripted, replicas=1, cpus=64, deadline=1)


def test_a_mistake_found_in_a_replica_is_one_line(engines):
    with pytest.raises(ConfigError) as caught:
        episodes(engines(too_long, replicas=1))
    assert str(caught.value) == "a prompt does not fit"


def test_models_get_the_adapters_of_this_process(cluster):
    """hf on the bundled model: the replies of the engine in this process, before and after the adapters moved."""
    names = ("agent0/proposer", "agent1/proposer")
    choice = dict.fromkeys(names, ModelSettings(name=BUNDLED, device="cpu"))
    roster = Roster(choice, LoraSettings(r=4), 0)
    models = load_models(choice, lora=roster.lora, seed=roster.seed)
    own = HFSettings().open(roster, models)
    engine = make_engine_settings({"name": "ray", "inner": {"name": "hf", "max_rows": 16}}).open(roster, models)
    asked = [Request(names[k % 2], (Message("user", "3 + 4 =" + " 1" * k),), "t", 2) for k in range(6)]
    seeds, sampling = [fold(5, k) for k in range(6)], Sampling(max_new_tokens=12)
    before = compare(engine, own, asked, seeds, sampling)
    for parameter in models[names[1]].adapters.parameters(names[1]).values():
        parameter.data.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    assert (own.publish(), engine.publish()) == (1, 1)
    after = compare(engine, own, asked, seeds, sampling)
    assert before[0::2] == after[0::2]
    assert before[1::2] != after[1::2]
    ray.kill(engine.replicas[1])
    assert compare(engine, own, asked, seeds, sampling) == after
    assert engine.restarts == 1
    engine.close()


def compare(engine, own, asked, seeds, sampling):
    found = engine.generate(asked, seeds=seeds, sampling=sampling)
    expected = own.generate(asked, seeds=seeds, sampling=sampling)
    for group, others in zip(found, expected, strict=True):
        for c, other in zip(group, others, strict=True):
            assert (c.text, c.token_ids, c.version) == (other.text, other.token_ids, other.version)
            assert c.logprobs == pytest.approx(other.logprobs, abs=2e-5)
    return [[c.token_ids for c in group] for group in found]


def test_settings():
    config = load_config(None, ["engine={name: ray, replicas: 3, inner: {name: hf, max_rows: 4}}"])
    assert (config.engine.replicas, config.engine.inner.max_rows) == (3, 4)
    assert load_config(None, ["engine.name=ray", "engine.inner=hf"]).engine.inner.name == "hf"
    with pytest.raises(ConfigError, match="replicas are for an engine that loads the models, got 'ray'; try hf"):
        load_config(None, ["engine={name: ray, inner: ray}"])


def test_no_cluster_there(cluster, monkeypatch):
    monkeypatch.setattr(ray, "is_initialized", lambda: False)

    def refuse(**_):
        raise ConnectionError("no answer\nand more")

    monkeypatch.setattr(ray, "init", refuse)
    with pytest.raises(ConfigError, match=r"no Ray cluster at engine.address='auto': no answer; `ray start --head`"):
        RayEngine(scripted, address="auto")
