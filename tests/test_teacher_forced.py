"""The written-out learning pass: every family it knows has the log-probabilities and gradients of transformers."""

import math

import pytest
import torch

from counterpoint.learner import Learner, LearnerSettings
from counterpoint.lora import Linears
from counterpoint.packing import _TokenLogp, rows_of, targets_of
from counterpoint.ragged import _Gated, _Normed, _Padded, _Picked, _Rotated, _Spread
from counterpoint.records import Sample, Sampling
from counterpoint.teacher_forced import TeacherForced, layout_of
from tests.conftest import FAMILY_NAMES
from tests.test_learner import gradients

SIZES = [(5, (3, 7, 1)), (1, (4,)), (9, (2, 2)), (2, (6, 1, 5, 3))]
"""Prompt and reply lengths: ragged, one sibling or several, a prompt of one token, replies of one."""


def ragged(agents=FAMILY_NAMES):
    draw = torch.Generator().manual_seed(1)

    def ids(count):
        return tuple(torch.randint(2, 512, (count,), generator=draw).tolist())

    return [
        Sample(agent, prompt, ids(t), tuple([-6.0] * t), math.sin(3.0 * t + j))
        for agent in agents
        for p, lengths in SIZES
        for prompt in [ids(p)]
        for j, t in enumerate(lengths)
    ]


def learner_of(model, **settings):
    models = dict.fromkeys(FAMILY_NAMES, model)
    return Learner(models, settings=LearnerSettings(**settings), sampling=Sampling(temperature=0.8), seed=0)


@pytest.mark.parametrize("targets", ["all-linear", ("q_proj", "v_proj", "down_proj")], ids=["all", "some"])
def test_log_probabilities_and_gradients_of_transformers(family, targets):
    model, samples = family(targets), ragged()
    written, packed = learner_of(model), learner_of(model, fused=False)
    assert isinstance(written.written[id(model)], TeacherForced)
    assert not packed.written
    for _, rows in packed._micro(rows_of(samples)):
        replies = targets_of(rows, model.device)
        with torch.no_grad():
            for base in (False, True):
                one, other = (x.logp(model, rows, replies, base=base) for x in (written, packed))
                torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)
    one, other = gradients(written, samples), gradients(packed, samples)
    for name in FAMILY_NAMES:
        assert max(float(g.abs().max()) for g in other[name].values()) > 1e-3
        for key in other[name]:
            torch.testing.assert_close(one[name][key], other[name][key], atol=1e-6, rtol=2e-4)


def test_prompts_of_one_token_alone(family):
    """No token lies in the first part."""
    model = family()
    samples = [s for s in ragged() if len(s.prompt_ids) == 1]
    assert layout_of(rows_of(samples)).shape[1] == 0
    one, other = (gradients(learner_of(model, fused=fused), samples) for fused in (True, False))
    for name in FAMILY_NAMES:
        for key in other[name]:
            torch.testing.assert_close(one[name][key], other[name][key], atol=1e-6, rtol=2e-4)


def test_layers_run_again_change_nothing(family):
    model, samples = family(), ragged()
    one, other = (gradients(learner_of(model, activation_checkpointing=again), samples) for again in (False, True))
    for name in FAMILY_NAMES:
        for key in other[name]:
            assert torch.equal(one[name][key], other[name][key])


def test_an_adapter_on_the_head_is_not_passed_over(family):
    """The head's own gradient is there, and the log-probabilities are those of the adapted head."""
    model, samples = family(("q_proj", "lm_head")), ragged()
    learner = learner_of(model)
    assert not learner.written
    found = gradients(learner, samples)
    head = len(model.adapters.layers) - 1
    assert float(found["a/x"][f"{head}.B"].abs().max()) > 1e-4


def leaf(*shape):
    return torch.randn(
        *shape, generator=torch.Generator().manual_seed(len(shape)), dtype=torch.float64, requires_grad=True
    )


WEIGHTS = [leaf(n, 5).detach() for n in (4, 2, 3)]
COS, SIN = leaf(3, 1, 4).detach(), leaf(3, 1, 2).detach()
FUNCTIONS = {
    "product": (
        lambda x, *ab: Linears(WEIGHTS, None, [0, None, 1], [4, 2, 3]).product(x, 0.7, [*ab[:2], None, None, *ab[2:]]),
        (leaf(6, 5), leaf(2, 5), leaf(4, 2), leaf(2, 5), leaf(3, 2)),
    ),
    "norm": (lambda x: _Normed.apply(x, leaf(4).detach(), 1e-3), (leaf(3, 4),)),
    "gate": (_Gated.apply, (leaf(3, 8),)),
    "rotation": (lambda x: _Rotated.apply(x, COS, torch.cat([-SIN, SIN], dim=-1), 2), (leaf(3, 3, 4),)),
    "spread": (lambda x: _Spread.apply(x, torch.tensor([2, 1, 3])), (leaf(3, 2),)),
    "padded": (lambda x: _Padded.apply(x, torch.tensor([4, 0, 1]), 6), (leaf(3, 2),)),
    "picked": (lambda x: _Picked.apply(x, torch.tensor([4, 0, 1])), (leaf(6, 2),)),
    "log-probability": (
        lambda x: _TokenLogp.apply(x, leaf(7, 3).detach(), leaf(7).detach(), torch.tensor([6, 0, 2, 2]), 0.8, 3),
        (leaf(4, 3),),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_backward_is_the_derivative(name, monkeypatch):
    monkeypatch.setattr(torch.Tensor, "float", lambda x: x)  # log_softmax in the precision of its input
    function, inputs = FUNCTIONS[name]
    assert torch.autograd.gradcheck(function, inputs)
