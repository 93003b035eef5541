"""Word problems of two to four arithmetic steps in the manner of GSM8K, each with its worked solution."""

from __future__ import annotations

import random

from counterpoint.tasks.mini_worked import Redraw, Sheet, Worked, other

MEN = ("Tom", "Ben", "Max", "Sam", "Leo", "Dan")
WOMEN = ("Ann", "Eva", "Mia", "Zoe", "Lily", "Sara")
NAMES = MEN + WOMEN
THINGS = (
    "apples", "books", "pens", "coins", "cards", "shells", "stamps", "eggs",
    "stones", "cakes", "balls", "keys", "roses", "nuts", "toys", "cups",
)  # fmt: skip

GAINS = (
    "{He} buys {b} more.",
    "{He} finds {b} {things}.",
    "{friend} gives {him} {b} {things}.",
    "{He} gets {b} more from {friend}.",
)
LOSSES = (
    "{He} loses {b}.",
    "{He} gives {b} {things} to {friend}.",
    "{He} sells {b} of them.",
    "{friend} takes {b} of them.",
)
GROWTH = ("Then {he} gets {b} times as many.", "A week later {he} has {b} times as many.")
SHARES = ("{He} puts them into {b} equal boxes and keeps one box.", "{He} shares them equally among {b} friends.")


def draw(rng: random.Random) -> Worked:
    """One word problem; every intermediate value is a whole number in 1..199."""
    while True:
        try:
            return rng.choices(FAMILIES, WEIGHTS)[0](rng)
        except Redraw:
            continue


def _person(rng: random.Random) -> tuple[str, str, str, str]:
    name = rng.choice(NAMES)
    return (name, "He", "he", "him") if name in MEN else (name, "She", "she", "her")


def _chain(rng: random.Random) -> Worked:
    """One store of things that grows and shrinks; ends with a share, if any."""
    name, He, he, him = _person(rng)
    things, sheet = rng.choice(THINGS), Sheet()
    value = rng.randint(5, 60)
    parts = [f"{name} has {value} {things}."]
    steps = rng.randint(2, 4)
    for i in range(steps):
        last = i == steps - 1
        op = rng.choices("+-*/", (4, 4, 1.5, 2.0 if last else 0))[0]
        forms = {"+": GAINS, "-": LOSSES, "*": GROWTH, "/": SHARES}[op]
        b = rng.randint(2, 40) if op in "+-" else rng.randint(2, 5)
        form = rng.choice(forms)
        shared = form == SHARES[1]
        parts.append(form.format(He=He, he=he, him=him, b=b, things=things, friend=other(rng, NAMES, name)))
        value = sheet.calc(value, op, b)
    ask = f"How many {things} does {name} have now?" if not shared else f"How many {things} does each friend get?"
    return sheet.worked(" ".join([*parts, ask]), "number")


def _boxes(rng: random.Random) -> Worked:
    name, He, *_ = _person(rng)
    things, kind, sheet = rng.choice(THINGS), rng.choice(("boxes", "bags")), Sheet()
    a, b, c, d = rng.randint(2, 9), rng.randint(2, 12), rng.randint(2, 30), rng.randint(2, 30)
    text = f"{name} has {a} {kind} with {b} {things} in each and {c} more {things}."
    total = sheet.calc(sheet.calc(a, "*", b), "+", c)
    if rng.random() < 0.6:
        text += f" {He} gives {d} {things} to {other(rng, NAMES, name)}."
        total = sheet.calc(total, "-", d)
    return sheet.worked(f"{text} How many {things} does {name} have now?", "number")


def _together(rng: random.Random) -> Worked:
    first, second, third = rng.sample(NAMES, 3)
    things, sheet = rng.choice(THINGS), Sheet()
    a = rng.randint(4, 40)
    text, b = _compared(rng, sheet, f"{first} has {a} {things}.", things, first, a, second)
    total = sheet.calc(a, "+", b)
    if rng.random() < 0.4:
        c = rng.randint(3, 40)
        text += f" {third} has {c} {things}."
        total = sheet.calc(total, "+", c)
    return sheet.worked(f"{text} How many {things} do they have together?", "number")


def _difference(rng: random.Random) -> Worked:
    first, second = rng.sample(NAMES, 2)
    things, sheet = rng.choice(THINGS), Sheet()
    a, c = rng.randint(4, 30), rng.randint(2, 20)
    text, b = _compared(rng, sheet, f"{first} has {a} {things}.", things, first, a, second)
    text += f" {second} buys {c} more."
    b = sheet.calc(b, "+", c)
    sheet.calc(b, "-", a)
    return sheet.worked(f"{text} How many more {things} does {second} have than {first}?", "number")


def _compared(
    rng: random.Random, sheet: Sheet, text: str, things: str, known: str, a: int, who: str
) -> tuple[str, int]:
    """Add a sentence that says what `who` has beside what `known` has, and its step."""
    way = rng.choice(("more", "fewer", "times"))
    b = rng.randint(2, 4) if way == "times" else rng.randint(2, 25)
    if way == "times":
        return f"{text} {who} has {b} times as many as {known}.", sheet.calc(a, "*", b)
    return f"{text} {who} has {b} {way} than {known}.", sheet.calc(a, "+" if way == "more" else "-", b)


def _shop(rng: random.Random) -> Worked:
    name, *_ = _person(rng)
    first, second = rng.sample(THINGS, 2)
    sheet = Sheet()
    a, b, c, d = (rng.randint(2, 9) for _ in range(4))
    text = f"{name} buys {a} {first} for {b} dollars each and {c} {second} for {d} dollars each."
    total = sheet.calc(sheet.calc(a, "*", b), "+", sheet.calc(c, "*", d))
    if rng.random() < 0.5:
        return sheet.worked(f"{text} How many dollars does {name} pay?", "number")
    purse = total + rng.randint(1, 30)
    sheet.calc(purse, "-", total)
    return sheet.worked(f"{name} has {purse} dollars. {text} How many dollars are left?", "number")


def _work(rng: random.Random) -> Worked:
    name, He, *_ = _person(rng)
    sheet = Sheet()
    a, b, c, d = rng.randint(2, 6), rng.randint(2, 6), rng.randint(2, 9), rng.randint(2, 40)
    text = f"{name} works {a} hours a day for {b} days and earns {c} dollars an hour."
    pay = sheet.calc(sheet.calc(a, "*", b), "*", c)
    if rng.random() < 0.6:
        text += f" {He} spends {d} dollars."
        sheet.calc(pay, "-", d)
        return sheet.worked(f"{text} How many dollars are left?", "number")
    return sheet.worked(f"{text} How many dollars does {name} earn?", "number")


def _pages(rng: random.Random) -> Worked:
    name, He, *_ = _person(rng)
    sheet = Sheet()
    a, b, c, d = rng.randint(30, 190), rng.randint(3, 12), rng.randint(2, 9), rng.randint(2, 25)
    text = f"A book has {a} pages. {name} reads {b} pages a day for {c} days."
    left = sheet.calc(a, "-", sheet.calc(b, "*", c))
    if rng.random() < 0.5:
        text += f" Then {He.lower()} reads {d} more pages."
        sheet.calc(left, "-", d)
    return sheet.worked(f"{text} How many pages are left?", "number")


def _rows(rng: random.Random) -> Worked:
    things, sheet = rng.choice(("trees", "roses", "chairs")), Sheet()
    a, b, c, d = rng.randint(2, 9), rng.randint(3, 12), rng.randint(2, 25), rng.randint(2, 25)
    text = f"There are {a} rows of {b} {things}. {c} {things} are taken away"
    left = sheet.calc(sheet.calc(a, "*", b), "-", c)
    if rng.random() < 0.6:
        text += f" and {d} are added"
        sheet.calc(left, "+", d)
    return sheet.worked(f"{text}. How many {things} are there now?", "number")


def _pool(rng: random.Random) -> Worked:
    first, second = rng.sample(NAMES, 2)
    things, sheet = rng.choice(THINGS), Sheet()
    k = rng.randint(2, 6)
    a = rng.randint(4, 50)
    b = rng.randint(1, 12) * k - a % k
    if b <= 0:
        raise Redraw
    text = f"{first} has {a} {things} and {second} has {b} {things}. They share them equally among {k} friends."
    each = sheet.calc(sheet.calc(a, "+", b), "/", k)
    if rng.random() < 0.4:
        c = rng.randint(2, 20)
        text += f" {other(rng, NAMES, first, second)} is one of them and had {c} {things} before."
        sheet.calc(each, "+", c)
        return sheet.worked(f"{text} How many {things} does this friend have now?", "number")
    return sheet.worked(f"{text} How many {things} does each friend get?", "number")


def _age(rng: random.Random) -> Worked:
    first, second = rng.sample(NAMES, 2)
    sheet = Sheet()
    a, k, c = rng.randint(3, 40), rng.randint(2, 4), rng.randint(2, 30)
    text = f"{first} is {a} years old. {second} is {k} times as old as {first}."
    b = sheet.calc(a, "*", k)
    if rng.random() < 0.5:
        sheet.calc(b, "+", c)
        return sheet.worked(f"{text} How old is {second} in {c} years?", "number")
    sheet.calc(b, "-", a)
    return sheet.worked(f"{text} How many years older is {second} than {first}?", "number")


FAMILIES = (_chain, _boxes, _together, _difference, _shop, _work, _pages, _rows, _pool, _age)
WEIGHTS = (8, 2, 2, 2, 2, 2, 2, 2, 1, 1)
