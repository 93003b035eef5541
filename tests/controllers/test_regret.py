"""The regret controller: by hand, against its bounds, the reviewer threshold (C13), no absorption (C11, A2)."""

import numpy as np
import pytest

from counterpoint.controllers import make
from counterpoint.controllers.regret import RegretController, RegretSettings
from counterpoint.records import ActionValues

RULES = ["rm", "rm_plus", "discounted"]


def values(*vectors, state="s"):
    return [ActionValues("c", state, tuple(vector)) for vector in vectors]


def reviewer_values(p, right, wrong):
    """Expected (skip, speak): skip earns 2p - 1; `right`, `wrong`: P(verdict right) on right and wrong answers."""
    return 2 * p - 1, p * (2 * right - 1) + (1 - p) * (2 * wrong - 1)


def test_batch_by_hand():
    # Step 1, uniform: v = (0, 1), (1, .5): r = (-.5, .5), (.25, -.25): R = (-.25, .25) -> speak.
    # Step 2, (0, 1): v = (1, 0): r = (1, 0): R = (.75, .25) -> (.75, .25). Strategy sum 2 (.5, .5) + (0, 1).
    controller = RegretController()
    controller.update(values((0.0, 1.0), (1.0, 0.5)))
    assert controller.probs("s").tolist() == [0, 1]
    controller.update(values((1.0, 0.0)))
    assert controller.probs("s").tolist() == [0.75, 0.25]
    report = controller.report()["s"]
    assert report["visits"] == 3
    assert report["average_strategy"] == pytest.approx([1 / 3, 2 / 3])
    assert report["average_regret"] == pytest.approx(0.75 / 3)
    # bound: largest gap 1, steps of 2 and 1 decisions: sqrt(4 + 1) / 3; from data: sqrt(.125 + 1) / 3
    assert report["bound"] == pytest.approx(np.sqrt(5) / 3)
    assert report["data_bound"] == pytest.approx(np.sqrt(1.125) / 3)
    assert report["gauge"] == pytest.approx(0.75 / np.sqrt(5))


def test_turn_by_hand():
    """As published: the second vector meets the strategy that the first one left."""
    # uniform, (0, 1): R = (-.5, .5) -> speak; (1, .5) against (0, 1): r = (.5, 0): R = (0, .5); (1, 0): R = (1, .5)
    controller = RegretController(RegretSettings(update="turn"))
    controller.update(values((0.0, 1.0), (1.0, 0.5), (1.0, 0.0)))
    assert controller.probs("s") == pytest.approx([2 / 3, 1 / 3])
    assert controller.report()["s"]["average_strategy"] == pytest.approx([0.5 / 3, 2.5 / 3])
    one_by_one = RegretController()
    for item in values((0.0, 1.0), (1.0, 0.5), (1.0, 0.0)):
        one_by_one.update([item])
    assert one_by_one.state_dict() == controller.state_dict()


def test_averaging_by_hand():
    # strategies for action 1 at the three updates: .5, 1, .25 (first test); weights t times decisions
    for averaging, expected in [("uniform", 2.25 / 4), ("linear", 3.75 / 7), ("power", 7.25 / 15)]:
        controller = make("regret", {"averaging": averaging})
        for step in [values((0.0, 1.0), (1.0, 0.5)), values((1.0, 0.0)), values((0.0, 0.0))]:
            controller.update(step)
        # uniform: 2(.5) + 1 + .25 of 4; linear: 1 + 2 + 3(.25) of 2 + 2 + 3; power 2: 1 + 4 + 9(.25) of 2 + 4 + 9
        assert controller.report()["s"]["average_strategy"][1] == pytest.approx(expected, abs=1e-12)
        assert controller.average().probs("s")[1] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("rule", ["rm", "rm_plus"])
@pytest.mark.parametrize("update", ["batch", "turn"])
@pytest.mark.parametrize("actions", [2, 4])
def test_gauge_never_passes_1(rule, update, actions):
    """C3, C4 as the run-time gauge, for batches of any size."""
    rng = np.random.default_rng(0)
    controller = make("regret", {"rule": rule, "update": update, "n_actions": actions})
    for _ in range(100):
        batch = rng.uniform(-1, 1, (rng.integers(1, 6), actions)) + rng.integers(-1, 2, actions)
        controller.update([ActionValues("c", f"s{i % 2}", tuple(v)) for i, v in enumerate(batch)])
        for report in controller.report().values():
            assert report["average_regret"] <= report["data_bound"] + 1e-9 <= report["bound"] + 2e-9
            assert report["gauge"] <= 1


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    ("p", "right", "wrong", "speak"),
    [
        (0.9, 0.9, 0.5, False),  # threshold .5 / .6 = .833
        (0.8, 0.9, 0.5, True),
        (0.5, 0.6, 0.6, True),  # threshold .6
        (0.95, 0.95, 0.3, False),  # threshold .3 / .35 = .857
    ],
)
def test_c13_reviewer_threshold_expected_values(rule, p, right, wrong, speak):
    """C13: speak iff p < a_w / (a_w + 1 - a_c); with expected values P(right side) > .99 by T = 100."""
    assert (p < wrong / (wrong + 1 - right)) == speak
    controller = make("regret", {"rule": rule})
    for _ in range(100):
        controller.update(values(reviewer_values(p, right, wrong)))
    average = controller.average().probs("s")
    assert average[int(speak)] > 0.99


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("side", [-1, 1])
def test_c13_small_gaps_too(rule, side):
    """At a gap of .02: v_speak - v_skip = 2 a_w (1 - p) - 2 p (1 - a_c) = 2 (.6 - p) for a_c = a_w = .6."""
    controller = make("regret", {"rule": rule})
    for _ in range(100):
        controller.update(values(reviewer_values(0.6 - side * 0.01, 0.6, 0.6)))
    assert controller.average().probs("s")[(1 + side) // 2] > 0.99


@pytest.mark.parametrize("rule", ["rm", "rm_plus"])
@pytest.mark.parametrize(
    ("p", "right", "wrong", "speak"), [(0.95, 0.9, 0.5, False), (0.7, 0.9, 0.5, True), (0.5, 0.6, 0.6, True)]
)
def test_c13_reviewer_threshold_sampled_values(rule, p, right, wrong, speak):
    """C13: single +/-1 samples, T = 2000, at least .1 from the threshold: the right side, at this seed."""
    rng = np.random.default_rng(7)
    controller = make("regret", {"rule": rule, "update": "turn"})
    pending = rng.random(2000) < p
    verdict = rng.random(2000) < np.where(pending, right, wrong)
    controller.update(
        [ActionValues("c", "s", (2.0 * a - 1, 2.0 * b - 1)) for a, b in zip(pending, verdict, strict=True)]
    )
    assert controller.average().probs("s")[int(speak)] > 0.5


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("stuck", [0, 1])
@pytest.mark.parametrize("depth", [0, 5, 50])
def test_c11_no_absorption(rule, stuck, depth):
    """C11: pushed `depth` steps into one pure action, then fed a better other one, every rule leaves it."""
    controller = make("regret", {"rule": rule, "initial": float(stuck)})
    one_sided = (1.0, -1.0) if stuck == 0 else (-1.0, 1.0)
    for _ in range(depth):
        controller.update(values(one_sided))
    assert controller.probs("s")[stuck] == 1
    for _ in range(depth + 2):
        controller.update(values(one_sided[::-1]))
    assert controller.probs("s")[stuck] < 0.5


def test_a2_both_actions_are_valued_so_keep_is_left():
    """A2: P(old right) = .5, P(new right) = .6. Valuing both actions at every decision, no run stays in pure keep.

    The published code gave both actions the same value when keep was played (regret 0): there pure keep absorbs.
    """
    stuck, absorbed = 0, 0
    for run in range(15):
        rng = np.random.default_rng(run)
        ours, theirs = make("regret", {"update": "turn"}), make("regret", {"update": "turn"})
        samples = np.where(rng.random((150, 2)) < [0.5, 0.6], 1.0, -1.0)
        ours.update(values(*samples))
        for pair, u in zip(samples, rng.random(150), strict=True):
            keep = u < theirs.probs("s")[0]
            theirs.update(values((pair[0], pair[0]) if keep else pair))
        # go on with expected values: what each code feeds while it plays keep
        ours.update(values(*[(0.0, 0.2)] * 300))
        theirs.update(values(*[(0.0, 0.0)] * 300))
        stuck += bool(ours.probs("s")[0] == 1)
        absorbed += bool(theirs.probs("s")[0] == 1)
    assert stuck == 0
    assert absorbed >= 5


def test_c8_a_shift_of_the_values_changes_nothing():
    """C8 through the controller: adding a constant to both actions' values leaves every strategy."""
    plain, shifted = RegretController(), RegretController()
    rng = np.random.default_rng(3)
    for _ in range(20):
        pair = rng.uniform(-1, 1, 2)
        plain.update(values(pair))
        shifted.update(values(pair + 0.75))
        assert plain.probs("s") == pytest.approx(shifted.probs("s"), abs=1e-12)


def test_token_cost_makes_an_idle_review_not_worth_its_price():
    """Outcome values with a price: where a review changes nothing, any cost makes skip the answer."""
    controller = RegretController()
    for _ in range(50):
        controller.update(values((0.4, 0.4 - 0.001)))
    assert controller.average().probs("s")[0] > 0.98


def test_states_do_not_mix():
    controller = RegretController()
    controller.update(values((1.0, 0.0), state="a") + values((0.0, 1.0), state="b"))
    assert controller.probs("a").tolist() == [1, 0]
    assert controller.probs("b").tolist() == [0, 1]
    assert list(controller.report()) == ["a", "b"]
