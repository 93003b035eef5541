"""Differences between runs and settings."""

import pytest

from counterpoint.report.collect import collect
from counterpoint.report.compare import between, config_rows, difference, gains
from counterpoint.report.pack import Packer
from counterpoint.report.runs import open_runs


def both(*roots):
    return collect(open_runs(roots), Packer(), limit=10_000)


def test_difference_by_hand():
    before = {"a": False, "b": False, "c": True, "d": True, "only here": True}
    after = {"a": True, "b": True, "c": True, "d": False}
    d = difference("x", "y", "set", [(before, after)])
    assert (d.n, d.seeds) == (4, 1)
    assert d.mean == pytest.approx(0.25)  # (1 + 1 + 0 - 1) / 4
    assert d.p == pytest.approx(1.0)  # 1 against 2 of 3 discordant: 2 (1 + 3) / 8
    assert d.low <= d.mean <= d.high
    assert not d.clear
    assert difference("x", "y", "set", [({"a": True}, {"b": True})]) is None
    assert difference("x", "y", "set", []) is None


def test_runs_are_compared_with_the_first(runs):
    found = between(both(runs / "immediate", runs / "outcome"))
    assert {(d.first, d.second, d.task_set) for d in found} == {
        ("immediate", "outcome", name) for name in ("mini-gsm", "mini-math", "mini-choice")
    }
    assert all(d.n == 40 for d in found)


def test_runs_that_differ_in_their_seed_are_one_team(copy, runs):
    second = copy("immediate")
    config = second / "config.yaml"
    config.write_text(config.read_text().replace("\nseed: 0\n", "\nseed: 1\n"))
    found = between(both(runs / "immediate", second, runs / "outcome"))
    assert {d.first for d in found} == {f"{runs.name}/immediate and 1 more seeds"}
    assert {d.seeds for d in found} == {1}  # the other team was run with seed 0 only
    assert between(both(runs / "immediate", second)) == []


def test_gains_of_training(runs):
    [first, *_] = both(runs / "immediate")
    assert [d.task_set for d in gains(first)] == sorted(["mini-gsm", "mini-math", "mini-choice"])


def test_differing_settings_are_marked(runs):
    rows = {key: differs for key, _, differs in config_rows(both(runs / "immediate", runs / "outcome"))}
    assert [key for key, differs in rows.items() if differs] == ["method.value", "method.token_cost"]
    assert not rows["method.rounds"]
