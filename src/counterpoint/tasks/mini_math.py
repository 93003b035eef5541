"""Fractions, expressions and small equations in the manner of MATH500, each with its worked solution."""

from __future__ import annotations

import math
import random

from counterpoint.tasks.mini_worked import Redraw, Sheet, Worked, plan_of

ASKS = ("Compute {}.", "Evaluate {}.", "What is {}?", "Find the value of {}.")


def draw(rng: random.Random) -> Worked:
    """One problem whose answer is a whole number in 1..199 or a reduced fraction."""
    while True:
        try:
            return rng.choice(FAMILIES)(rng)
        except Redraw:
            continue


def fraction(top: int, bottom: int) -> str:
    """`top`/`bottom` as LaTeX, as it stands."""
    return f"\\frac{{{top}}}{{{bottom}}}"


def _ask(rng: random.Random, expression: str) -> str:
    return rng.choice(ASKS).format(expression)


def _reduced(question: str, sheet: Sheet, top: int, bottom: int) -> Worked:
    """Reduce `top`/`bottom` as the last step."""
    g = math.gcd(top, bottom)
    up, down = top // g, bottom // g
    lines = [*sheet.lines, f"{top}/{bottom}={up}/{down}" if down > 1 else f"{top}/{bottom}={up}"]
    answer = fraction(up, down) if down > 1 else str(up)
    return Worked(question, answer, "math", tuple(lines), plan_of(lines))


def _like(rng: random.Random) -> Worked:
    """Two fractions of one denominator."""
    bottom = rng.randint(3, 20)
    a, b, op = rng.randint(1, 2 * bottom), rng.randint(1, bottom - 1), rng.choice("+-")
    sheet = Sheet()
    top = sheet.calc(a, op, b)
    return _reduced(_ask(rng, f"{fraction(a, bottom)}{op}{fraction(b, bottom)}"), sheet, top, bottom)


def _product(rng: random.Random) -> Worked:
    """Two fractions multiplied."""
    a, b, c, d = rng.randint(1, 9), rng.randint(2, 9), rng.randint(1, 9), rng.randint(2, 9)
    sheet = Sheet()
    top, bottom = sheet.calc(a, "*", c), sheet.calc(b, "*", d)
    return _reduced(_ask(rng, f"{fraction(a, b)}*{fraction(c, d)}"), sheet, top, bottom)


def _unlike(rng: random.Random) -> Worked:
    """Two fractions, the second denominator a multiple of the first."""
    b, k = rng.randint(2, 8), rng.randint(2, 4)
    a, c, d = rng.randint(1, 8), rng.randint(1, 12), b * k
    sheet = Sheet()
    top = sheet.calc(sheet.calc(a, "*", k), "+", c)
    return _reduced(_ask(rng, f"{fraction(a, b)}+{fraction(c, d)}"), sheet, top, d)


def _brackets(rng: random.Random) -> Worked:
    """a(b+c)-d and its like."""
    a, b, c, d = rng.randint(2, 9), rng.randint(2, 12), rng.randint(1, 9), rng.randint(1, 30)
    inner, outer = rng.choice("+-"), rng.choice("+-")
    sheet = Sheet()
    sheet.calc(sheet.calc(a, "*", sheet.calc(b, inner, c)), outer, d)
    return sheet.worked(_ask(rng, f"{a}({b}{inner}{c}){outer}{d}"), "math")


def _power(rng: random.Random) -> Worked:
    """A square among sums."""
    a, b, c = rng.randint(2, 12), rng.randint(1, 40), rng.randint(1, 40)
    first, second = rng.choice("+-"), rng.choice("+-")
    sheet = Sheet()
    sheet.calc(sheet.calc(sheet.calc(a, "*", a), first, b), second, c)
    return sheet.worked(_ask(rng, f"{a}^2{first}{b}{second}{c}"), "math")


def _linear(rng: random.Random) -> Worked:
    """ax+b=c for a whole x."""
    a, x, b = rng.randint(2, 9), rng.randint(2, 20), rng.randint(1, 50)
    op = rng.choice("+-")
    c = a * x + b if op == "+" else a * x - b
    if not 0 < c < 200:
        raise Redraw
    sheet = Sheet()
    sheet.calc(sheet.calc(c, "-" if op == "+" else "+", b), "/", a)
    return sheet.worked(f"Solve {a}x{op}{b}={c} for x.", "math")


FAMILIES = (_like, _product, _unlike, _brackets, _power, _linear)
