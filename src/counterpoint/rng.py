"""Keyed, stateless randomness: every draw is a hash of (seed, path), so nothing has to be saved to resume."""

from __future__ import annotations

import hashlib

import numpy as np


def fold(seed: int, *path: str | int) -> int:
    """A 63-bit seed for the draw named by `path` under `seed`.

    Equal arguments give equal values on every machine and Python version; different paths give
    independent ones (blake2b of the type-tagged path). `fold(s, "a", "b") != fold(s, "ab")`, `fold(s, 1) != fold(s, "1")`.
    """
    text = "\x1f".join(f"{type(part).__name__[0]}{part}" for part in (seed, *path))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def uniform(seed: int, *path: str | int) -> float:
    """One draw from U[0, 1) with 53 random bits, keyed like `fold`."""
    return (fold(seed, *path) >> 10) * 2.0**-53


def generator(seed: int, *path: str | int) -> np.random.Generator:
    """A numpy generator of its own for the draws named by `path`; never shared, never saved."""
    return np.random.Generator(np.random.PCG64(fold(seed, *path)))
