"""Sequences that share beginnings: how they are grouped, and that sharing changes nothing but the work."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.engines.fused import FusedForward
from counterpoint.engines.hf import PlainForward
from counterpoint.engines.slots import SlotCache
from counterpoint.layout import Layout, alike

WORDS = st.lists(st.integers(0, 2), min_size=1, max_size=8)


@given(st.lists(WORDS, min_size=1, max_size=9))
def test_groups_are_a_partition_by_common_beginnings(sequences):
    groups = alike(sequences)
    assert sorted(i for _, members in groups for i in members) == list(range(len(sequences)))
    for shared, members in groups:
        assert len({tuple(sequences[i][:shared]) for i in members}) == 1
        assert all(len(sequences[i]) > shared for i in members)
        assert shared == 0 or len(members) > 1


@given(st.lists(WORDS, min_size=2, max_size=9))
def test_sharing_saves_no_less_than_one_group_or_none(sequences):
    saving = sum(shared * (len(members) - 1) for shared, members in alike(sequences))
    shortest = min(len(s) for s in sequences) - 1
    common = next((i for i in range(shortest) if len({s[i] for s in sequences}) > 1), shortest)
    assert saving >= max(0, common * (len(sequences) - 1))


def test_two_questions_with_a_common_instruction():
    """Three prompts of one question and two of another: apart they share more than together."""
    system, one, other = [9, 9], [1, 2, 3, 4], [5, 6, 7]
    prompts = [system + q + [tail] for q, tail in ((one, 0), (other, 1), (one, 2), (other, 3), (one, 4))]
    assert alike(prompts) == [(6, [0, 2, 4]), (5, [1, 3])]
    assert alike([[9, 9, 1], [9, 9, 2]]) == [(2, [0, 1])]
    assert alike([[1, 2], [3]]) == [(0, [0]), (0, [1])]


def test_the_whole_of_each_sequence_is_found_again():
    layout = Layout.of([[1, 2], [], [3]], [[4], [5, 6], [7, 8, 9], [10]], [2, 1, 1])
    assert layout.ids.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    assert layout.positions.tolist() == [0, 1, 0, 2, 2, 3, 0, 1, 2, 1]
    rows = layout.ids[layout.whole].tolist()
    expected = [[1, 2, 4], [1, 2, 5, 6], [7, 8, 9], [3, 10]]
    assert [row[: len(e)] for row, e in zip(rows, expected, strict=True)] == expected
    assert layout.whole.shape == (4, 4)


@pytest.mark.parametrize("merged_mb", [256, 0], ids=["merged", "on the way"])
@pytest.mark.parametrize(
    "prompts",
    [
        [[5, 6, 7, 8, 9], [5, 6, 7, 3], [5, 6, 7, 8, 9, 2, 4], [5, 6, 7], [1, 2]],
        [[5, 6, 7]] * 5,
        [[], [4], [], [4, 4, 4], [4, 4]],
        [[3], [], [], [], []],
    ],
    ids=["shared", "equal", "some empty", "one"],
)
def test_prefill_leaves_the_keys_and_values_of_transformers(family, merged_mb, prompts):
    model, adapters = family(), np.array([1, 0, 1, 1, 0])
    found = []
    for forward in (FusedForward(model, merged_bytes=merged_mb << 20), PlainForward(model)):
        cache = SlotCache(layers=len(model.base.model.layers), slots=7, length=9, device=model.device)
        with torch.no_grad(), forward.on(cache):
            forward.prefill(prompts, adapters, 2)
        rows = zip(range(2, 7), prompts, strict=True)
        used = [(row, slice(None), slice(len(prompt))) for row, prompt in rows if prompt]
        found.append([side[at] for layer in cache.layers for side in (layer.keys, layer.values) for at in used])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, atol=2e-5, rtol=1e-4)
