"""Running statistics: the published EMAs to the printed digits, ours with total variance, exact round trips."""

import json
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from counterpoint.algorithms import history
from counterpoint.algorithms.history import Blend, Moments, PublishedMoments

batches = st.lists(arrays(np.float64, st.integers(1, 6), elements=st.floats(-2, 2)), min_size=1, max_size=8)


def test_published_by_hand():
    # [1,1,0,0]: mean .5, var .25. Then [1,1,1,1]: .99(.5) + .01 = .505; .99(.25) = .2475, sigma .4974937
    state = history.published_update(PublishedMoments(), np.array([1.0, 1.0, 0.0, 0.0]))
    assert state == PublishedMoments(0.5, 0.25, 1)
    state = history.published_update(state, np.ones(4))
    assert state.mean == pytest.approx(0.505)
    assert history.published_std(state) == pytest.approx(0.4974937, abs=1e-7)


def test_a_still_stream_has_sigma_1():
    state = history.published_update(PublishedMoments(), np.ones(4))
    assert history.published_std(state) == 1.0
    assert history.std(history.update(Moments(), np.ones(4))) == 1.0
    assert history.std(Moments()) == 1.0
    assert history.mean(Moments()) == 0.0


def test_ours_by_hand():
    # decay .5: batch [1, 0]: m1 .25, m2 .25, w .5: mean .5, var .25. Batch [1, 1]: m1 .625, m2 .625, w .75:
    # mean 5/6, var 5/6 - 25/36 = 5/36
    state = history.update(Moments(), np.array([1.0, 0.0]), decay=0.5)
    assert (history.mean(state), history.std(state)) == (0.5, 0.5)
    state = history.update(state, np.ones(2), decay=0.5)
    assert history.mean(state) == pytest.approx(5 / 6)
    assert history.std(state) == pytest.approx(np.sqrt(5 / 36))


def test_a_drifting_mean_shows_in_sigma_only_with_total_variance():
    """Batches constant inside, alternating 0 and 1 between: published sigma falls back to 1, ours is 1/2."""
    published, ours = PublishedMoments(), Moments()
    for t in range(1000):
        batch = np.full(4, float(t % 2))
        published = history.published_update(published, batch)
        ours = history.update(ours, batch)
    assert published.variance == 0
    assert history.std(ours) == pytest.approx(0.5, abs=0.01)


@given(batches)
def test_the_first_batch_is_not_special_after_bias_correction(stream):
    """A convex combination of the batches' own moments: within their range, and exact for one batch."""
    state = Moments()
    for batch in stream:
        state = history.update(state, batch)
    means = [batch.mean() for batch in stream]
    assert min(means) - 1e-9 <= history.mean(state) <= max(means) + 1e-9
    one = history.update(Moments(), stream[0])
    assert history.mean(one) == pytest.approx(stream[0].mean(), abs=1e-12)
    if stream[0].var() > 1e-3:
        assert history.std(one) == pytest.approx(stream[0].std(), rel=1e-6)


@given(batches)
def test_round_trip_is_exact(stream):
    """Resume: through JSON, then on, equals going on."""
    states = {PublishedMoments: history.published_update, Moments: history.update}
    for cls, step in states.items():
        state = cls()
        for batch in stream:
            again = cls(**json.loads(json.dumps(asdict(state))))
            assert again == state
            state = step(again, batch)
    blend = Blend()
    for batch in stream:
        blend = history.blend_update(
            Blend(**json.loads(json.dumps(asdict(blend)))), batch, batch[::-1].copy(), batch**2
        )
    assert Blend(**json.loads(json.dumps(asdict(blend)))) == blend


def test_an_empty_batch_changes_nothing():
    none = np.array([])
    state, published = history.update(Moments(), np.ones(2)), history.published_update(PublishedMoments(), np.ones(2))
    assert history.update(state, none) == state
    assert history.published_update(published, none) == published
    assert history.blend_update(Blend(), none, none, none) == Blend()


def test_blend_weight_by_hand():
    # R - S = (2, 0), L - S = (1, 1): cross mean 1, square mean 1: w = 1; R - S = (1, 0): w = .5
    loo, solo = np.array([0.0, 0.0]), np.array([-1.0, -1.0])
    assert history.blend_weight(history.blend_update(Blend(), np.array([1.0, -1.0]), loo, solo)) == pytest.approx(1)
    assert history.blend_weight(history.blend_update(Blend(), np.array([0.0, -1.0]), loo, solo)) == pytest.approx(0.5)
    assert history.blend_weight(history.blend_update(Blend(), np.array([9.0, 9.0]), loo, solo)) == 1.0  # cut
    assert history.blend_weight(history.blend_update(Blend(), np.array([-9.0, -9.0]), loo, solo)) == 0.0
    assert history.blend_weight(Blend(), initial=0.25) == 0.25
    assert history.blend_weight(history.blend_update(Blend(), loo, loo, loo), initial=0.25) == 0.25


@given(arrays(np.float64, (12, 3), elements=st.floats(-1, 1)))
def test_the_fitted_blend_is_never_worse_than_either_baseline(rows):
    """On the rows it was fitted to: mean square of R - b at w <= at w = 0 and at w = 1."""
    reward, loo, solo = rows.T.copy()
    weight = history.blend_weight(history.blend_update(Blend(), reward, loo, solo))

    def mean_square(w):
        return float(np.square(reward - w * loo - (1 - w) * solo).mean())

    if np.square(loo - solo).mean() > 1e-3:
        assert mean_square(weight) <= min(mean_square(0), mean_square(1)) + 1e-9


def simulated_stream(kind, rng, questions=16, size=4):
    """Outcomes +/-1 of one batch: joint [Q, G] and solo [Q, G], by how much the solo says about the joint."""
    easy = rng.beta(0.6, 0.6, questions)[:, None]
    alone = {"informative": easy, "biased": 0.3 * easy, "useless": rng.random((questions, 1)), "opposite": 1 - easy}[
        kind
    ]
    joint = np.where(rng.random((questions, size)) < easy, 1.0, -1.0)
    return joint, np.where(rng.random((questions, size)) < alone, 1.0, -1.0)


@pytest.mark.parametrize("kind", ["informative", "biased", "useless", "opposite"])
def test_effective_never_has_more_variance_than_either_baseline(kind):
    """The blend of CCPO's `effective`, with w from before each batch, on simulated streams of 300 batches."""
    rng, state, losses = np.random.default_rng(3), Blend(), []
    for t in range(300):
        joint, solo = simulated_stream(kind, rng)
        loo = (joint.sum(1, keepdims=True) - joint) / (joint.shape[1] - 1)
        alone = np.broadcast_to(solo.mean(1, keepdims=True), joint.shape)
        w = history.blend_weight(state)
        if t >= 20:
            losses.append([np.square(joint - b).mean() for b in (w * loo + (1 - w) * alone, loo, alone)])
        state = history.blend_update(state, joint.ravel(), loo.ravel(), alone.ravel())
    blend, left_out, solo_only = np.mean(losses, axis=0)
    assert blend <= min(left_out, solo_only) * 1.005
    if kind == "informative":
        assert blend < 0.95 * min(left_out, solo_only)  # two noisy views of one difficulty: better than each
