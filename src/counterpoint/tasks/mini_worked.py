"""A drawn problem together with its worked solution: what the three mini task sets are made of."""

from __future__ import annotations

import random
from dataclasses import dataclass

from counterpoint.records import Kind, Task

LIMIT = 200  # every value in a mini problem lies in 1..LIMIT-1


class Redraw(Exception):
    """The drawn numbers do not fit (too large, negative, not divisible); the caller draws again."""


@dataclass(frozen=True, slots=True)
class Worked:
    """A problem, its gold answer, and the steps that lead there, one a line."""

    question: str
    answer: str
    kind: Kind
    steps: tuple[str, ...]
    plan: str  # the steps without the last value: enough to finish, not the answer
    choices: tuple[str, ...] = ()

    def task(self, id: str) -> Task:
        """The record alone, without the solution."""
        return Task(id=id, question=self.question, answer=self.answer, kind=self.kind, choices=self.choices)

    @property
    def final_line(self) -> str:
        """The last line of every solution, in the form prompts.FORMAT asks for."""
        return final_line(self.kind, self.answer)

    @property
    def solution(self) -> str:
        """The reference solution: the steps, then the final line."""
        return "\n".join([*self.steps, self.final_line])


def final_line(kind: Kind, answer: str) -> str:
    """`answer` as the last line of a solution."""
    return f"Final answer: \\boxed{{{answer}}}" if kind == "math" else f"Final answer: {answer}"


class Sheet:
    """The scratch paper of one problem: computes, checks the range and writes one equation a step."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.value = 0

    def calc(self, left: int, op: str, right: int) -> int:
        """Compute `left op right` (op one of + - * /), note the equation, return the value."""
        if op == "/" and left % right:
            raise Redraw
        value = {"+": left + right, "-": left - right, "*": left * right, "/": left // right}[op]
        if not 0 < value < LIMIT:
            raise Redraw
        self.lines.append(f"{left}{op}{right}={value}")
        self.value = value
        return value

    def worked(self, question: str, kind: Kind) -> Worked:
        """The finished problem; the last value is the answer."""
        return Worked(question, str(self.value), kind, tuple(self.lines), plan_of(self.lines))


def plan_of(lines: list[str]) -> str:
    """The steps with the value of the last one left open."""
    return "\n".join([*lines[:-1], lines[-1].rpartition("=")[0]])


def other(rng: random.Random, options: tuple[str, ...], *taken: str) -> str:
    """One of `options` that is not among `taken`."""
    return rng.choice([option for option in options if option not in taken])
