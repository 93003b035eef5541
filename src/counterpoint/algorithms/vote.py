"""Votes: equivalence classes of answers, the plurality, ties in expectation; nothing depends on the order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Bool, Int

ABSTAIN = -1


def classes(answers: Sequence[str | None], equal: Callable[[str, str], bool]) -> Int[np.ndarray, " N"]:
    """The class of each answer, numbered by first appearance; `ABSTAIN` (-1) for None.

    Two answers share a class when a chain of `equal` pairs (in either direction) joins them: the transitive closure, so
    the partition does not depend on the order even where the grader is neither symmetric nor transitive.
    """
    texts = sorted({answer for answer in answers if answer is not None})
    parent = list(range(len(texts)))

    def root(i: int) -> int:
        while parent[i] != i:
            i = parent[i]
        return i

    for i in range(len(texts)):
        for j in range(i):
            if root(i) != root(j) and (equal(texts[i], texts[j]) or equal(texts[j], texts[i])):
                parent[root(i)] = root(j)
    found: dict[int, int] = {}
    place = {text: root(i) for i, text in enumerate(texts)}
    labels = [ABSTAIN if a is None else found.setdefault(place[a], len(found)) for a in answers]
    return np.array(labels, dtype=np.int64)


def top_classes(labels: Int[np.ndarray, " N"]) -> Int[np.ndarray, " C"]:
    """The classes with the most votes, ascending; empty when everybody abstains."""
    found, counts = np.unique(labels[labels != ABSTAIN], return_counts=True)
    return found[counts == counts.max()] if len(found) else found


def plurality_value(labels: Int[np.ndarray, " N"], right: Bool[np.ndarray, " N"]) -> float:
    """R = |top classes with the right answer| / |top classes|: ties broken uniformly, in expectation; 0 with no vote.

    `right[k]` says whether voter k's answer is right; a class is right when any of its members is.
    """
    top = top_classes(labels)
    if len(top) == 0:
        return 0.0
    return sum(bool(right[labels == label].any()) for label in top) / len(top)


def plurality(answers: Sequence[str | None], equal: Callable[[str, str], bool]) -> str | None:
    """The text of the plurality; None when everybody abstains.

    A class speaks with its most frequent text. Ties, between texts and between classes, go to the shorter text, then to
    the alphabetically first: deterministic and independent of the order.
    """
    labels = classes(answers, equal)
    counts = Counter(answer for answer in answers if answer is not None)
    candidates = []
    for label in top_classes(labels):
        members = {a for a, own in zip(answers, labels, strict=True) if a is not None and own == label}
        candidates.append(min(members, key=lambda text: (-counts[text], len(text), text)))
    return min(candidates, key=lambda text: (len(text), text), default=None)
