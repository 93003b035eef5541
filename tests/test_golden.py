"""Outputs do not move unnoticed: `make golden` rewrites them, the diff is read before it is committed."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

import golden


def read(name):
    return json.loads((golden.FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def test_transcripts():
    assert golden.transcripts() == read("transcripts")


def test_training_curve():
    """To 1 %: exact on one machine, up to rounding on another."""
    expected = read("curve")
    found = golden.curve()
    assert len(found) == len(expected)
    for mine, theirs in zip(found, expected, strict=True):
        assert mine == pytest.approx(theirs, rel=1e-2, abs=1e-3)
