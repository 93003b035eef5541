"""The one place where replies become answers and verdicts: right, wrong, unreadable or error, nothing else.

`number`, `choice` and `text` are compared exactly, in this process. `math` is compared exactly where that needs no
algebra, else by math-verify (gold first) in a worker process that is killed and replaced at its deadline.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from counterpoint.records import Kind, Task
from counterpoint.tasks import latex
from counterpoint.tasks.cleaning import LONGEST
from counterpoint.tasks.lists import decide
from counterpoint.tasks.numbers import literal, read_number
from counterpoint.tasks.reading import Mode, extract
from counterpoint.tasks.verdicts import verdict
from counterpoint.tasks.worker import WORKER, Request, WorkerCounts

__all__ = ["DEADLINE", "Mode", "Outcome", "equal", "extract", "grade", "grade_reply", "verdict", "worker_counts"]

Outcome = Literal["right", "wrong", "unreadable", "error"]
DEADLINE = 2.0  # seconds one symbolic comparison may take


def grade(task: Task, answer: str | None, *, deadline: float = DEADLINE) -> Outcome:
    """The outcome of an extracted answer; None is unreadable, a deadline or a crash in the worker is an error."""
    if answer is None:
        return "unreadable"
    if task.scorer:
        from counterpoint.tasks.gym import score

        return score(task, answer, deadline=deadline)
    return _compare(task.kind, answer, task.answer, deadline)


def grade_reply(task: Task, reply: str, *, mode: Mode = "strict", deadline: float = DEADLINE) -> Outcome:
    """The outcome of a whole reply: `extract`, then `grade`."""
    return grade(task, extract(task.kind, reply, mode=mode), deadline=deadline)


def equal(kind: Kind, answer: str, gold: str, *, deadline: float = DEADLINE) -> bool:
    """Whether an extracted answer says the same as the gold one. Not symmetric for `math`: gold is the second."""
    return _compare(kind, answer, gold, deadline) == "right"


def worker_counts() -> WorkerCounts:
    """How often this process asked its worker, and how often that raised, was killed or crashed."""
    return WORKER.counts


def _compare(kind: Kind, answer: str, gold: str, deadline: float) -> Outcome:
    if kind == "math":
        return _compare_math(answer, gold, deadline)
    if kind == "number":
        return "right" if answer == gold else _outcome(_number(answer), _number(gold))
    if kind == "choice":
        return _outcome(_letter(answer), _letter(gold))
    return _outcome(_folded(answer), _folded(gold))


def _outcome(answer: object, gold: object) -> Outcome:
    return "right" if answer is not None and answer == gold else "wrong"


def _number(text: str) -> object:
    value = literal(text)
    return read_number(text) if value is None else value


def _letter(text: str) -> str | None:
    return latex.plain_words(text[:LONGEST]).strip(" ().*").upper() or None


def _folded(text: str) -> str | None:
    return " ".join(latex.plain_words(text[: 2 * LONGEST]).casefold().split()).strip(" .\"'") or None


def _compare_math(answer: str, gold: str, deadline: float) -> Outcome:
    try:
        return _decided(answer[: 4 * LONGEST], gold[: 4 * LONGEST], deadline)
    except _NotDecidedError:
        return "error"


class _NotDecidedError(Exception):
    """The worker gave no answer; raised so that the cache below keeps outcomes only."""


@lru_cache(maxsize=65_536)
def _decided(answer: str, gold: str, deadline: float) -> Outcome:
    known = decide(latex.tidy(answer), latex.tidy(gold))
    if isinstance(known, bool):
        return "right" if known else "wrong"
    request: Request = {"op": "math", "answers": known.answers, "golds": known.golds, "ordered": known.ordered}
    reply = WORKER.ask(request, deadline=deadline)
    if reply == "error":
        raise _NotDecidedError
    return reply
