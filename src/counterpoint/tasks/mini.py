"""The bundled sets mini-gsm, mini-math, mini-choice: procedural, fixed disjoint splits, worked solutions."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Literal

from counterpoint.errors import ConfigError
from counterpoint.records import Task
from counterpoint.rng import fold
from counterpoint.tasks import mini_choice, mini_gsm, mini_math
from counterpoint.tasks.mini_worked import Worked

Split = Literal["train", "test"]
SIZES: dict[Split, int] = {"test": 1000, "train": 4000}
DRAWS: dict[str, Callable[[random.Random], Worked]] = {
    "mini-gsm": mini_gsm.draw,
    "mini-math": mini_math.draw,
    "mini-choice": mini_choice.draw,
}
SPLIT_SEED = 0  # the splits are the same in every run; a run's own seed never enters


class MiniSet:
    """One of the three bundled task sets."""

    def __init__(self, name: str) -> None:
        if name not in DRAWS:
            raise ConfigError(f"unknown bundled task set {name!r}; choose one of {', '.join(DRAWS)}")
        self.name = name

    def load(self, split: Split) -> Sequence[Task]:
        """The fixed tasks of one split, ids like "mini-gsm/test/17"."""
        return tuple(worked.task(f"{self.name}/{split}/{i}") for i, worked in enumerate(worked_split(self.name, split)))


@cache
def worked_split(name: str, split: Split) -> tuple[Worked, ...]:
    """The problems of one split with their solutions, in the order of MiniSet.load."""
    taken = set() if split == "test" else {worked.question for worked in worked_split(name, "test")}
    rng = random.Random(fold(SPLIT_SEED, name, split))
    found: list[Worked] = []
    letters: Counter[str] = Counter()  # every gold letter is wanted equally often
    while len(found) < SIZES[split]:
        worked = DRAWS[name](rng)
        full = worked.kind == "choice" and letters[worked.answer] >= SIZES[split] // 4
        if worked.question not in taken and not full:
            taken.add(worked.question)
            letters[worked.answer] += 1
            found.append(worked)
    return tuple(found)


def stream(name: str, seed: int) -> Iterator[Worked]:
    """Unbounded fresh problems that occur in neither split; repeats are possible."""
    taken = {worked.question for split in SIZES for worked in worked_split(name, split)}
    rng = random.Random(fold(seed, name, "stream"))
    while True:
        worked = DRAWS[name](rng)
        if worked.question not in taken:
            yield worked
