"""CCPO's dyad: a thinker plans, a solver answers; each is credited against the solver's answer without the thinker.

Papers: Counterfactual Credit Policy Optimization (arXiv 2603.21563), and SEPO for the ratings (`credit: sepo`).
Differs from the paper:
- `credit: effective`, the default, is ours: outcomes less a blend of the other siblings' mean and the solo mean, over the
  run's standard deviation (algorithms/credit.py says what the published credits really do; all are here by name)
- a thought loses every boxed span and every "Final answer" line on its way to the solver        (the last boxed span)
- a cut-off thought or answer is wrong, in every preset                                          (0 on a centred scale)
- a rating that cannot be read is masked and counted                                             (half and half)
- solo answers are reused while the solver is frozen                                             (sampled again)
- per-question groups hold the answers that were asked for; a thought that was cut off has none  (a filler row)
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from counterpoint import prompts
from counterpoint.algorithms import credit as presets
from counterpoint.algorithms import history as running
from counterpoint.algorithms import sepo
from counterpoint.algorithms.advantage import Baseline, Scale, Squash, advantages, solo_mean
from counterpoint.algorithms.counterfactual import pair_solos
from counterpoint.dialogue import (
    NO_HISTORY, Credit, Method, Play, Seat, read_answer, sibling_groups, training_step,
)  # fmt: skip
from counterpoint.records import Completion, Episode, Fork, Request, Task, Turn
from counterpoint.tasks.grading import grade
from counterpoint.tasks.numbers import literal
from counterpoint.tasks.reading import boxes

Role = Literal["thinker", "solver"]
CreditName = Literal[
    "effective", "published_v1", "published_event", "published_continuous", "shared", "sepo"
]  # fmt: skip
ROLES: tuple[Role, Role] = ("thinker", "solver")
SHAPES: dict[str, tuple[Baseline, Scale, Squash]] = {
    "effective": ("blended", "history_std", "none"),
    "published_v1": ("group_mean", "group_std", "none"),  # the tanh is in its rewards
    "published_event": ("group_mean", "none", "none"),
    "published_continuous": ("group_mean", "none", "none"),
    "shared": ("group_mean", "group_std", "none"),
    "sepo": ("group_mean", "none", "none"),
}
RATE = "rate"  # the kind of the fork that asks for ratings
LONGEST_RATING = 80  # characters
_ANSWER_LINE = re.compile(r"^.*\bfinal[ \t]+answer\b.*$\n?", re.IGNORECASE | re.MULTILINE)
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:,\d{3})*(?:\.\d+)?(?:/\d+)?(?!\w|\.\d)")


class ThinkSolve(Method):
    """Settings of think_solve."""

    name: Literal["think_solve"] = "think_solve"
    roles: ClassVar[tuple[str, ...]] = ROLES

    thoughts: int = Field(default=4, ge=2)
    """Thoughts sampled for a question in training: one sibling group."""
    answers: int = Field(default=1, ge=1)
    """Solver samples for each thought in training; more than one estimates E[outcome | thought]."""
    solos: int | None = Field(default=None, ge=0)
    """Solver samples of the bare question; as many as thoughts when not given, none where the credit needs none."""
    credit_name: CreditName = Field(default="effective", alias="credit")
    """How outcomes become advantages."""
    baseline: Baseline | None = None
    """Replaces the preset's baseline."""
    scale: Scale | None = None
    """Replaces the preset's scale."""
    squash: Squash | None = None
    """Replaces the preset's squash."""
    bonus: float = Field(default=0.2, ge=0)
    """Weight of the counterfactual bonus (published_event, published_continuous) or of the ratings (sepo)."""
    rating_self: float = Field(default=0.3, ge=0, le=1)
    """sepo: weight of a role's rating of itself; the rest is the other's."""
    rating_centred: bool = True
    """sepo: bonus is the share less the group's mean share, not less one half."""
    train: str = Field(default="both", pattern=r"^(both|alternate\([1-9][0-9]*\))$")
    """both: every role learns at every step. alternate(K): K steps the thinker, then K steps the solver, and so on."""
    train_roles: tuple[Role, ...] = ROLES
    """Roles whose adapters learn."""
    train_solo: bool = False
    """Whether solo answers are learned from too: they are paid for."""
    cache_solos: bool = True
    """Whether a question's solo outcomes are used again while the solver is frozen."""
    thought_chars: int = Field(default=4000, ge=0)
    """Characters of a thought that reach the solver, its head; 0 means all."""
    leak_penalty: float = Field(default=0.0, ge=0)
    """Taken off the thinker's reward for a thought that states the gold answer."""
    decay: float = Field(default=0.99, gt=0, lt=1)
    """Decay of the run's history a step."""
    history_per_set: bool = False
    """Whether each task set has a history of its own."""
    min_std: float = Field(default=0.05, ge=0)
    """Under scale group_std, groups whose rewards spread less than this teach nothing."""
