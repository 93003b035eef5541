"""Reviewer replies read as right, wrong or neither."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.tasks.grading import verdict

from .shared_data import lines, needs_shared


@needs_shared
def test_every_verdict_vector() -> None:
    vectors = lines("vectors/verdicts.jsonl")
    assert len(vectors) == 18
    assert [v for v in vectors if verdict(v["reply"]) != v["verdict"]] == []


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ("We find 5, as shown.\nVerdict: RIGHT", "right"),
        ("RIGHT\nOn second thought:\nVerdict: WRONG", "wrong"),
        ("Verdict: right\nVerdict: wrong", "wrong"),
        ("**Verdict:** WRONG", "wrong"),
        ("The verdict is RIGHT", "right"),
        ("Final verdict: CORRECT", "right"),
        ("Verdict: not right", "wrong"),
        ("Verdict: RIGHT or WRONG", None),
        ("Verdict: not sure", None),
        ("3 + 4 = 7, as shown.\nRIGHT", "right"),
        ("RIGHT\nbut then again\nWRONG", None),
        ("Not right.", "wrong"),
        ("It is not wrong.", "right"),
        ("Right triangles have such a side.", None),
        ("Correct the mistake in line 2.", None),
        ("Right, but the last step is wrong", None),
        ("<think>RIGHT</think>WRONG", "wrong"),
        ("<think>RIGHT", None),
        ("\\boxed{RIGHT}", "right"),
    ],
)
def test_verdicts(reply: str, said: str | None) -> None:
    assert verdict(reply) == said


@given(st.text(max_size=200))
def test_any_text_has_a_verdict_or_none(reply: str) -> None:
    assert verdict(reply) in ("right", "wrong", None)


@given(st.text(alphabet="abc 123=+.\n", max_size=80), st.sampled_from(["right", "wrong"]))
def test_the_asked_form_is_always_read(reasons: str, said: str) -> None:
    assert verdict(f"{reasons}\nVerdict: {said.upper()}") == said
