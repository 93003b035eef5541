"""Grades a second on one core: `python benchmarks/grading.py [ROUNDS]`.

Whole replies are read and compared, each only once, so no cache helps; starting the worker is not counted. The math
answers all need algebra; in real benchmarks most are plain numbers and never reach the worker.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections.abc import Iterator

from counterpoint.records import Kind, Task
from counterpoint.tasks.grading import equal, grade_reply, worker_counts

NUMBERS, FORMULAS = 4_000, 300
Case = tuple[str, str, bool]  # reply, gold, whether it is right


def number_cases(rng: random.Random) -> Iterator[Case]:
    """Solutions of a few lines that end with a number, a third of them wrong."""
    for _ in range(NUMBERS):
        a, b, off = rng.randrange(10_000), rng.randrange(10_000), rng.choice((0, 0, 1))
        steps = "".join(f"Then {i} times {a} is {i * a}, and adding {b} gives {i * a + b}.\n" for i in range(6))
        yield f"{steps}Final answer: ${a + b + off:,} dollars.", str(a + b), not off


def formula_cases(rng: random.Random) -> Iterator[Case]:
    """Formulas written in another way than the gold, a third of them wrong."""
    for i in range(FORMULAS):
        a, b, c, off = rng.randrange(2, 90), rng.randrange(2, 90), rng.randrange(2, 90), rng.choice((0, 0, 1))
        root = rng.choice((2, 3, 5, 7, 11, 13))
        pairs = (
            (f"{b}+{a + off}x", f"{a}x+{b}"),
            (f"x^2+{a + b + off}x+{a * b}", f"(x+{a})(x+{b})"),
            (f"{a}\\sqrt{{{root}}}+{c + off}", f"{c} + \\sqrt{{{root * a * a}}}"),
            (f"\\frac{{{a + off}\\pi}}{{{b}}}", f"\\frac{{{a}}}{{{b}}}\\pi"),
            (f"({a},\\frac{{{b + off}}}{{{c}}})", f"\\left( {a}, \\dfrac{{{b}}}{{{c}}} \\right)"),
            (f"\\{{{a},{b + off},{c + 100}\\}}", f"\\{{{c + 100}, {a}, {b}\\}}"),
            (f"[{a + off},{a + b})", f"x \\in [{a}, {a + b})"),
            (f"{a}i+{b + off}", f"{b} + {a}i"),
        )
        answer, gold = pairs[i % len(pairs)]
        yield f"After some algebra,\nFinal answer: \\boxed{{{answer}}}", gold, not off


def rate(kind: Kind, cases: list[Case]) -> float:
    """Grades a second over `cases`; fails loudly where an outcome is not the expected one."""
    start = time.perf_counter()
    outcomes = [grade_reply(Task("t", "", gold, kind), reply) for reply, gold, _ in cases]
    seconds = time.perf_counter() - start
    for (reply, gold, right), outcome in zip(cases, outcomes, strict=True):
        if outcome != ("right" if right else "wrong"):
            raise SystemExit(f"{outcome}: {reply!r} against {gold!r}")
    return len(cases) / seconds


def main() -> None:
    """Print the median and the range of both rates."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    rng = random.Random(0)
    equal("math", "x+1", "1+x")  # starts the worker
    for kind, cases, wanted in (("number", number_cases, 2_000), ("math", formula_cases, 150)):
        rates = [rate(kind, list(cases(rng))) for _ in range(rounds)]
        low, middle, high = min(rates), statistics.median(rates), max(rates)
        print(
            f"{kind:6}  median {middle:7,.0f} grades/s  ({low:,.0f} to {high:,.0f}, {rounds} rounds; wanted {wanted:,})"
        )
    print(f"worker: {worker_counts()}")


if __name__ == "__main__":
    main()
