"""The worked example is a method like any other: contract, credit by hand, a run, and its report."""

from pathlib import Path

import pytest

import counterpoint.methods as package
from counterpoint.methods import make_method
from counterpoint.report import write_report
from counterpoint.report.replay import Replay
from counterpoint.report.runs import open_run
from counterpoint.testing import check_method, play_all
from tests.report.build import build_run


@pytest.fixture
def method(monkeypatch):
    """As if the file lay in the package."""
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(Path(__file__).parents[2] / "examples")])
    return make_method({"name": "second_look", "token_cost": 0.01})


def test_contract(method):
    check_method(method)


def test_credit_by_hand(method):
    episodes, forks, _ = play_all(method)
    for episode in episodes:
        [fork] = [f for f in forks if f.fork.parent == episode.id]
        credit = method.credit(episode, [fork], {})
        [values] = credit.values
        spoken = episode if episode.decisions[0].action == 1 else fork
        silent = fork if spoken is episode else episode
        last = [t for t in spoken.turns if t.tag == "check" and t.sample == 0]
        cost = 0.01 * sum(len(t.completion.token_ids) for t in last)
        assert values.values[1] == pytest.approx((1 if right(spoken) else -1) - cost)
        assert values.values[0] == pytest.approx(1 if right(silent) else -1)
        assert sum(s.advantage for s in credit.samples) == pytest.approx(0, abs=1e-9)


def right(episode):
    from counterpoint.tasks.grading import grade

    return grade(episode.task, episode.answer) == "right"


def test_it_trains_and_its_report_agrees(method, tmp_path):
    build_run(tmp_path / "run", "method=second_look", "steps=3", "evaluation.limit=10")
    replay = Replay(open_run(tmp_path / "run"))
    assert len(list(replay.steps())) == 3
    assert replay.agrees() is True
    text = write_report([tmp_path / "run"]).read_text(encoding="utf-8")
    assert "agent1/check" in text
