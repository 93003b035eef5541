"""The two baselines: epsilon-greedy on mean values, and a constant."""

import pytest

from counterpoint.controllers import make
from counterpoint.records import ActionValues


def values(*vectors, state="s"):
    return [ActionValues("c", state, tuple(vector)) for vector in vectors]


def test_bandit_by_hand():
    # sums (1, 1.5): speak is best; epsilon .1 over two actions: (.05, .95)
    bandit = make("bandit")
    bandit.update(values((0.0, 1.0), (1.0, 0.5)))
    assert bandit.probs("s") == pytest.approx([0.05, 0.95])
    assert bandit.report()["s"]["mean_values"] == [0.5, 0.75]
    assert bandit.average().probs("s").tolist() == [0, 1]
    bandit.update(values((0.5, 0.0)))  # a tie at 1.5: shared
    assert bandit.probs("s").tolist() == [0.5, 0.5]


def test_bandit_decay_follows_a_change():
    # decay .5: sums after (1, 0) three times: 1 + .5 + .25 = 1.75; then (0, 2): .875 against 2
    fading, plain = make("bandit", {"decay": 0.5}), make("bandit")
    for bandit in (fading, plain):
        for pair in [(1.0, 0.0)] * 3 + [(0.0, 2.0)]:
            bandit.update(values(pair))
    assert fading.average().probs("s").tolist() == [0, 1]
    assert plain.average().probs("s").tolist() == [1, 0]
    assert fading.report()["s"]["mean_values"] == pytest.approx([0.875 / 1.875, 2 / 1.875])


def test_c11_bandit_explores_so_it_is_never_absorbed():
    bandit = make("bandit", {"epsilon": 0.2})
    bandit.update(values(*[(1.0, -1.0)] * 50))
    assert bandit.probs("s").tolist() == pytest.approx([0.9, 0.1])
    for _ in range(51):
        bandit.update(values((-1.0, 1.0)))
    assert bandit.probs("s").tolist() == pytest.approx([0.1, 0.9])


@pytest.mark.parametrize(("p", "expected"), [(1.0, [0, 1]), (0.0, [1, 0]), (0.25, [0.75, 0.25])])
def test_fixed(p, expected):
    fixed = make("fixed", {"p_speak": p})
    fixed.update(values((5.0, -5.0)))
    assert fixed.probs("s").tolist() == expected
    assert fixed.average().probs("anything").tolist() == expected
    assert fixed.state_dict() == {}


def test_fixed_with_more_actions():
    assert make("fixed", {"p_speak": 0.5, "n_actions": 3}).probs("s").tolist() == [0.25, 0.5, 0.25]
