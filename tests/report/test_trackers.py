"""Trackers: off unless named; a missing one names its pip command; numbers arrive under their names."""

import builtins
import sys

import pytest

from counterpoint.errors import MissingExtra
from counterpoint.trackers import open_trackers

METRICS = {"step": 2, "accuracy": 0.5, "reward/proposer": -1, "correction": None}


def test_none_is_the_default_and_does_nothing(tmp_path):
    with open_trackers((), tmp_path, {}) as log:
        log(2, METRICS)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["tensorboard", "wandb", "trackio"])
def test_a_missing_package_names_the_pip_command(name, tmp_path, monkeypatch):
    real = builtins.__import__

    def missing(module, *arguments, **named):
        if module in (name, f"torch.utils.{name}"):
            raise ImportError(module)
        return real(module, *arguments, **named)

    monkeypatch.setattr(builtins, "__import__", missing)
    with (
        pytest.raises(MissingExtra, match=rf"trackers: {name} needs .* pip install \"counterpoint\[trackers\]\""),
        open_trackers((name,), tmp_path, {}),
    ):
        pass


class Recorded:
    """Stands for the module of a tracker: what it is told is kept."""

    def __init__(self):
        self.started, self.logged, self.finished = {}, [], 0

    def init(self, **settings):
        self.started = settings
        return self

    def log(self, numbers, step):
        self.logged.append((step, numbers))

    def finish(self):
        self.finished += 1

    def Settings(self, **settings):  # noqa: N802
        return settings


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_numbers_arrive_and_it_is_closed_even_after_an_error(name, tmp_path, monkeypatch):
    module = Recorded()
    monkeypatch.setitem(sys.modules, name, module)
    failing = open_trackers((name, name), tmp_path, {"steps": 3})
    failing.__enter__()(2, METRICS)
    assert failing.__exit__(ZeroDivisionError, ZeroDivisionError(), None) is False
    assert module.logged == [(2, {"accuracy": 0.5, "reward/proposer": -1.0})]
    assert module.finished == 1
    assert module.started["config"] == {"steps": 3}
    assert module.started.get("mode") == ("offline" if name == "wandb" else None)


def test_tensorboard(tmp_path):
    pytest.importorskip("tensorboard", reason="needs tensorboard")
    with open_trackers(("tensorboard",), tmp_path, {"steps": 3}, done=1) as log:
        log(2, METRICS)
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [(e.step, e.value) for e in events.Scalars("accuracy")] == [(2, 0.5)]
