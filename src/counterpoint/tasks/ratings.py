"""A split of credit as a reply states it: two shares that add up to 1, as a JSON list and nothing else."""

from __future__ import annotations

import json

LONGEST = 80  # characters


def first_share(reply: str) -> float | None:
    """The first of the two shares; None where the reply is anything else. Nothing is evaluated, nothing guessed."""
    text = reply.strip()
    if len(text) > LONGEST or text.count("[") != 1:
        return None
    try:
        pair = json.loads(text)
    except json.JSONDecodeError:
        return None
    if not isinstance(pair, list) or len(pair) != 2 or any(type(share) not in (int, float) for share in pair):
        return None
    first, second = pair
    return float(first) if 0 <= first <= 1 and abs(first + second - 1) < 1e-6 else None
