"""The answer vectors and data sets beside the repository, where they are present."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

SHARED = Path(__file__).parents[2].parent / "shared"
needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason=f"{SHARED} (answer vectors, GSM8K, MATH-500) is absent")


def lines(name: str) -> list[dict[str, Any]]:
    """The JSON lines of one shared file; none where the folder is absent."""
    path = SHARED / name
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.is_file() else []
