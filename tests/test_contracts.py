"""The public contract checks hold for everything that ships, and they can fail."""

import numpy as np
import pytest

from counterpoint.controllers import controllers, make
from counterpoint.engines.scripted import ScriptedEngine
from counterpoint.methods import methods
from counterpoint.methods.propose_review import ProposeReview
from counterpoint.testing import check_controller, check_engine, check_method, guess_script


@pytest.mark.parametrize("name", sorted(controllers()))
def test_controllers(name):
    check_controller(lambda: make(name))


@pytest.mark.parametrize("name", sorted(methods()))
def test_methods(name):
    check_method(methods()[name](name=name))


def test_scripted_engine():
    check_engine(ScriptedEngine(lambda request, seed: f"{seed % 100}"), ["a/x", "b/x"])


class _Biased:
    """A controller whose update depends on order and whose probabilities do not add up."""

    def __init__(self):
        self.last = 0.0

    def probs(self, state):
        return np.array([0.5, 0.6])

    def update(self, values):
        self.last = values[-1].values[0]

    def state_dict(self):
        return {"last": self.last}


def test_a_broken_controller_is_found():
    with pytest.raises(AssertionError, match="depends on the order"):
        check_controller(_Biased)


class _Forgetful(ScriptedEngine):
    """An engine that ignores the number of siblings."""

    def generate(self, requests, *, seeds, sampling):
        return [group[:1] for group in super().generate(requests, seeds=seeds, sampling=sampling)]


def test_a_broken_engine_is_found():
    with pytest.raises(AssertionError, match="one completion a sibling"):
        check_engine(_Forgetful(guess_script), ["a/x", "b/x"])


class Moody(ProposeReview):
    """A method whose credit is not a function of its records."""

    def credit(self, episode, forks, history):
        credit = super().credit(episode, forks, history)
        credit.observe("mood", id(credit))
        return credit


def test_a_broken_method_is_found():
    with pytest.raises(AssertionError, match="not a pure function"):
        check_method(Moody())
