"""Short logic puzzles with four options in the manner of GPQA, each with its worked solution."""

from __future__ import annotations

import itertools
import random

from counterpoint.prompts import LETTERS
from counterpoint.tasks.mini_gsm import NAMES
from counterpoint.tasks.mini_worked import Redraw, Worked

COMPARISONS = (
    ("taller", "tallest", "shortest"),
    ("older", "oldest", "youngest"),
    ("faster", "fastest", "slowest"),
)


def draw(rng: random.Random) -> Worked:
    """One puzzle; the gold letter is uniform over A to D."""
    while True:
        try:
            return rng.choice(FAMILIES)(rng)
        except Redraw:
            continue


def _puzzle(rng: random.Random, question: str, lines: list[str], right: str, wrong: list[str]) -> Worked:
    """Put the right option at a uniform place; the solution's last step names the letter."""
    if len({right, *wrong}) != 4:
        raise Redraw
    place = rng.randrange(4)
    options = rng.sample(wrong, 3)
    options.insert(place, right)
    letter = LETTERS[place]
    return Worked(question, letter, "choice", (*lines, f"so {right}={letter}"), "\n".join(lines), tuple(options))


def _order(rng: random.Random) -> Worked:
    """Four people in a row of comparisons; who comes first, last, second or third?"""
    people = rng.sample(NAMES, 4)
    more, most, least = rng.choice(COMPARISONS)
    facts = [f"{a} is {more} than {b}." for a, b in itertools.pairwise(people)]
    rng.shuffle(facts)
    place = rng.randrange(4)
    ask = (most, f"second {most}", f"second {least}", least)[place]
    line = f"order {' > '.join(people)}"
    right = people[place]
    return _puzzle(rng, f"{' '.join(facts)} Who is the {ask}?", [line], right, [p for p in people if p != right])


def _sequence(rng: random.Random) -> Worked:
    """An arithmetic sequence; what comes next?"""
    step, start = rng.choice((1, -1)) * rng.randint(2, 15), rng.randint(1, 120)
    terms = [start + i * step for i in range(5)]
    if min(terms) <= 0 or max(terms) >= 200:
        raise Redraw
    shown, right = terms[:4], terms[4]
    text = rng.choice(("Which number comes next: {}?", "Find the next number: {}?", "What follows {}?"))
    wrong = rng.sample([right + d for d in (-10, -3, -2, -1, 1, 2, 3, 10) if right + d > 0], 3)
    op = "+" if step > 0 else "-"
    first = f"{shown[1]}-{shown[0]}" if step > 0 else f"{shown[0]}-{shown[1]}"
    lines = [f"{first}={abs(step)}", f"{shown[3]}{op}{abs(step)}={right}"]
    return _puzzle(rng, text.format(", ".join(map(str, shown))), lines, str(right), [str(w) for w in wrong])


def _seats(rng: random.Random) -> Worked:
    """Four people in seats, then two swaps; who sits in a seat at the end?"""
    people = rng.sample(NAMES, 4)
    text = f"{', '.join(people)} sit in a row in this order."
    row, lines = list(people), []
    for _ in range(rng.randint(1, 2)):
        i, j = sorted(rng.sample(range(4), 2))
        text += f" {row[i]} and {row[j]} swap seats."
        row[i], row[j] = row[j], row[i]
        lines.append(f"row {' '.join(row)}")
    seat = rng.randrange(4)
    right = row[seat]
    ask = f"Who sits in seat {seat + 1}?"
    return _puzzle(rng, f"{text} {ask}", lines, right, [p for p in people if p != right])


def _liars(rng: random.Random) -> Worked:
    """Chains of who tells the truth: each speaker says whether the next one lies; how many lie?"""
    people = rng.sample(NAMES, 4)
    truth = [rng.random() < 0.5]
    first = "tells the truth" if truth[0] else "lies"
    text = f"{people[0]} {first}."
    for speaker, about in itertools.pairwise(people):
        says_lies = rng.random() < 0.5
        text += f" {speaker} says: {about} {'lies' if says_lies else 'tells the truth'}."
        truth.append(truth[-1] != says_lies)
    lines = [f"{person} {'true' if t else 'lies'}" for person, t in zip(people, truth, strict=True)]
    liars = truth.count(False)
    wrong = [str(n) for n in rng.sample([n for n in range(5) if n != liars], 3)]
    return _puzzle(rng, f"{text} How many of the four lie?", [f"so {', '.join(lines)}"], str(liars), wrong)


FAMILIES = (_order, _sequence, _seats, _liars)
