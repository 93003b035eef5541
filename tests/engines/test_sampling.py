"""Draws follow the distribution, and the streams of uniforms are what they claim."""

import numpy as np
import torch

from counterpoint.engines.sampling import draw, log_softmax, uniforms
from counterpoint.records import Sampling


def test_uniforms_golden():
    """splitmix64 with seed 1234567: the published first outputs are 6457827717110365317 and 3203168211198807973."""
    u = uniforms(np.array([1234567, 1234567]), np.array([0, 1]))
    assert [int(x * 2**53) for x in u] == [6457827717110365317 >> 11, 3203168211198807973 >> 11]


def test_draw_follows_the_distribution():
    logits = torch.tensor([0.0, 1.0, 2.0, -1.0]).expand(20000, 4)
    u = torch.from_numpy(uniforms(np.arange(20000), np.zeros(20000, dtype=np.int64)))
    ids, logp = draw(logits, u, Sampling(temperature=0.5))
    expected = torch.softmax(logits[0] / 0.5, -1)
    assert torch.allclose(torch.bincount(ids, minlength=4) / 20000, expected, atol=0.01)
    assert torch.allclose(logp.exp(), expected[ids], atol=1e-6)


def test_top_k_and_top_p_cut_the_tail():
    logits = torch.tensor([0.0, 1.0, 2.0, -1.0]).expand(5000, 4)
    u = torch.linspace(0, 1 - 1e-9, 5000, dtype=torch.float64)
    assert set(draw(logits, u, Sampling(top_k=2))[0].tolist()) == {1, 2}
    # softmax = .087 .237 .644 .032: the two largest already hold .881 >= .7, the largest alone does not
    assert set(draw(logits, u, Sampling(top_p=0.7))[0].tolist()) == {1, 2}
    assert set(draw(logits, u, Sampling(top_p=0.5))[0].tolist()) == {2}


def test_greedy_and_extremes():
    logits = torch.tensor([[1.0, 3.0, 3.0], [5.0, -torch.inf, 0.0]])
    ids, logp = draw(logits, torch.zeros(2), Sampling(temperature=0))
    assert ids.tolist() == [1, 0]
    assert torch.allclose(logp, log_softmax(logits, 1.0).gather(1, ids[:, None])[:, 0])
    ids, _ = draw(logits, torch.tensor([1 - 2**-53, 1 - 2**-53], dtype=torch.float64), Sampling())
    assert ids.tolist() == [2, 2]
