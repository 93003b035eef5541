"""The controller contract, over every file in controllers/: a new controller is tested by being there."""

import json
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoint.controllers import Controller, FrozenController, controllers, draw, greedy, make
from counterpoint.errors import ConfigError
from counterpoint.records import ActionValues

NAMES = sorted(controllers())
WILD = st.floats(-1e12, 1e12) | st.floats(-1, 1)  # sums of these depend on the order unless rounded once


def values(*vectors, state="s"):
    return [ActionValues("c", state, tuple(vector)) for vector in vectors]


def stream(seed, steps=5, batch=4, actions=2):
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        yield [ActionValues("c", f"s{rng.integers(3)}", tuple(rng.uniform(-1, 1, actions))) for _ in range(batch)]


def through_json(state):
    return json.loads(json.dumps(state, allow_nan=False))


def test_files_are_discovered():
    assert {"bandit", "fixed", "regret"} <= set(NAMES)
    assert "base" not in NAMES


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("actions", [2, 3, 5])
def test_probs_are_distributions(name, actions):
    controller = make(name, {"n_actions": actions})
    assert isinstance(controller, Controller)
    for step in stream(0, actions=actions):
        controller.update(step)
    for frozen in (controller, controller.average()):
        for state in ("s0", "s1", "s2", "never seen"):
            probs = frozen.probs(state)
            assert probs.shape == (actions,)
            assert probs.dtype == np.float64
            assert (probs >= 0).all()
            assert probs.sum() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40)
@given(vectors=st.lists(st.tuples(WILD, WILD), min_size=2, max_size=3))
def test_a_step_does_not_depend_on_order_or_sharding(name, vectors):
    """Bit for bit, for values of wildly different size and states interleaved in every way."""
    items = values(*vectors) + values((1.0, 0.5), state="t")
    reference = make(name)
    for warm in stream(1, steps=1):
        reference.update(warm)
    start = through_json(reference.state_dict())
    reference.update(items)
    for shuffled in permutations(items):
        other = make(name)
        other.load_state_dict(start)
        other.update(list(shuffled))
        assert other.state_dict() == reference.state_dict()


@pytest.mark.parametrize("name", NAMES)
def test_c12_state_round_trip_continues_bit_equal(name):
    """C12: save, through JSON, load, continue == continue; strategy sums and average included."""
    one = make(name)
    steps = list(stream(2, steps=20))
    for step in steps[:10]:
        one.update(step)
    two = make(name)
    two.load_state_dict(through_json(one.state_dict()))
    for step in steps[10:]:
        one.update(step)
        two.update(step)
    assert one.state_dict() == two.state_dict()
    assert one.report() == two.report()
    assert one.average().state_dict() == two.average().state_dict()


@pytest.mark.parametrize("name", NAMES)
def test_probs_returns_a_copy_and_does_not_learn(name):
    controller = make(name)
    controller.update(values((0.0, 1.0)))
    before = through_json(controller.state_dict())
    controller.probs("s")[:] = 7.0
    controller.probs("new")[:] = 7.0
    assert controller.state_dict() == before
    assert controller.probs("s").sum() == pytest.approx(1)


@pytest.mark.parametrize("name", NAMES)
def test_average_is_frozen(name):
    controller = make(name)
    for step in stream(3):
        controller.update(step)
    average = controller.average()
    before = [average.probs(state).tolist() for state in ("s0", "s1", "new")]
    average.update(values((5.0, -5.0), state="s0"))
    for step in stream(4):
        controller.update(step)
    assert [average.probs(state).tolist() for state in ("s0", "s1", "new")] == before
    assert average.average() is average


@pytest.mark.parametrize("name", NAMES)
def test_report_is_json(name):
    controller = make(name)
    for step in stream(5):
        controller.update(step)
    for frozen in (controller, controller.average()):
        frozen.probs("never seen")
        assert all("visits" in entry and "strategy" in entry for entry in through_json(frozen.report()).values())


@pytest.mark.parametrize("name", sorted({"regret", "bandit"}))
def test_c10_a3_unseen_states_play_the_declared_default(name):
    """C10, A3: never an accident of index 0, in training, in evaluation and greedily."""
    controller = make(name, {"initial": 0.3, "unseen": 0.9})
    controller.update(values((1.0, 0.0)))
    assert controller.probs("new").tolist() == pytest.approx([0.7, 0.3])
    average = controller.average()
    assert isinstance(average, FrozenController)
    assert average.probs("new").tolist() == pytest.approx([0.1, 0.9])
    assert greedy(average.probs("new")) == 1
    assert set(average.report()) == {"s"}
    default = make(name).average()
    assert greedy(default.probs("anything")) == 1


def test_frozen_controller_round_trip():
    controller = make("regret")
    controller.update(values((0.3, 0.1), (0.2, 0.7)))
    average = controller.average()
    average.probs("new")
    other = FrozenController({}, np.array([1.0, 0.0]), {})
    other.load_state_dict(through_json(average.state_dict()))
    assert other.state_dict() == average.state_dict()
    assert other.probs("s").tolist() == average.probs("s").tolist()


@pytest.mark.parametrize("name", [name for name in NAMES if name != "fixed"])
def test_malformed_values_are_refused(name):
    for bad in [(1.0, 2.0, 3.0), (1.0, float("nan"))]:
        with pytest.raises(ValueError, match="state 's': needs 2 finite values"):
            make(name).update(values(bad))


def test_settings_are_checked():
    with pytest.raises(ConfigError, match=r"unknown controller 'regrets': use one of .*regret"):
        make("regrets")
    with pytest.raises(ConfigError, match=r"setting 'p_speak'.*got 2"):
        make("fixed", {"p_speak": 2})
    with pytest.raises(ConfigError, match="setting 'spek'"):
        make("fixed", {"spek": 0.5})
    for cls in controllers().values():
        fields = cls.settings_type.model_fields
        assert all(field.description for field in fields.values())


def test_draw_and_greedy():
    probs = np.array([0.25, 0.75])
    assert [draw(probs, u) for u in (0.0, 0.2499, 0.25, 0.999)] == [0, 0, 1, 1]
    assert [draw(np.array([0.0, 1.0]), u) for u in (0.0, 0.5)] == [1, 1]
    assert [draw(np.array([1.0, 0.0]), u) for u in (0.0, 1 - 2**-53)] == [0, 0]
    assert draw(np.array([0.1] * 10), 1 - 2**-53) == 9
    assert greedy(np.array([0.5, 0.5])) == 1
    assert greedy(np.array([0.4, 0.2, 0.4])) == 0
    assert greedy(np.array([0.6, 0.4])) == 0
