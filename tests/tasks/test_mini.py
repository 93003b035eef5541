"""The bundled task sets: fixed, disjoint, balanced, and every gold follows from its own solution lines."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from fractions import Fraction

import pytest

from counterpoint import prompts
from counterpoint.errors import ConfigError
from counterpoint.tasks import mini
from counterpoint.tasks.mini import DRAWS, SIZES, MiniSet, stream, worked_split
from counterpoint.tasks.mini_worked import Worked

NAMES = tuple(DRAWS)
SPLITS = tuple(SIZES)
EQUATION = re.compile(r"(\d+)([-+*/])(\d+)=(\d+)(?:/(\d+))?")


def every(name: str) -> list[Worked]:
    return [worked for split in SPLITS for worked in worked_split(name, split)]


def holds(line: str) -> bool:
    """Whether an equation line is true; "42/45=14/15" counts."""
    match = EQUATION.fullmatch(line)
    assert match is not None, line
    a, op, b, top, bottom = match.groups()
    x, y = Fraction(int(a)), Fraction(int(b))
    left = {"+": x + y, "-": x - y, "*": x * y, "/": x / y}[op]
    return left == Fraction(int(top), int(bottom or 1))


@pytest.mark.parametrize("name", NAMES)
def test_counts_ids_and_kinds(name: str) -> None:
    kind = {"mini-gsm": "number", "mini-math": "math", "mini-choice": "choice"}[name]
    for split in SPLITS:
        tasks = MiniSet(name).load(split)
        assert len(tasks) == SIZES[split] >= 1000
        assert tasks[17].id == f"{name}/{split}/17"
        assert {task.kind for task in tasks} == {kind}
        assert all(len(task.choices) == (4 if kind == "choice" else 0) for task in tasks)


@pytest.mark.parametrize("name", NAMES)
def test_splits_are_the_same_every_time(name: str) -> None:
    first = worked_split(name, "train")
    mini.worked_split.cache_clear()
    assert worked_split(name, "train") == first


@pytest.mark.parametrize("name", NAMES)
def test_splits_and_stream_are_disjoint_by_question(name: str) -> None:
    questions = [worked.question for worked in every(name)]
    assert len(set(questions)) == len(questions) == sum(SIZES.values())
    drawn = [worked.question for worked in itertools.islice(stream(name, 3), 5000)]
    assert not set(drawn) & set(questions)
    assert len(set(drawn)) > 4000


@pytest.mark.parametrize("name", NAMES)
def test_streams_depend_on_their_seed_alone(name: str) -> None:
    one, same, other = (list(itertools.islice(stream(name, seed), 20)) for seed in (1, 1, 2))
    assert one == same != other


@pytest.mark.parametrize("name", ["mini-gsm", "mini-math"])
def test_gold_is_the_value_of_the_last_true_equation(name: str) -> None:
    for worked in every(name):
        assert all(holds(line) for line in worked.steps), worked
        value = Fraction(worked.steps[-1].rpartition("=")[2])
        if value.denominator == 1:
            assert worked.answer == str(value)
        else:
            assert worked.answer == f"\\frac{{{value.numerator}}}{{{value.denominator}}}"
        assert 0 < value < 200


def test_operands_come_from_the_question_or_an_earlier_step() -> None:
    for worked in every("mini-gsm"):
        known = set(re.findall(r"\d+", worked.question))
        for line in worked.steps:
            left, _, value = line.rpartition("=")
            assert set(re.findall(r"\d+", left)) <= known, worked
            known.add(value)
        assert 2 <= len(worked.steps) <= 4


def test_choice_gold_is_the_letter_of_the_option_the_solution_names() -> None:
    for worked in every("mini-choice"):
        right, _, letter = worked.steps[-1].rpartition("=")
        assert worked.answer == letter
        assert "so " + worked.choices["ABCD".index(letter)] == right
        assert len(set(worked.choices)) == 4


def test_seat_and_order_puzzles_solved_from_the_question_alone() -> None:
    for worked in every("mini-choice"):
        gold = worked.choices["ABCD".index(worked.answer)]
        if "sit in a row" in worked.question:
            row = re.findall(r"\w+", worked.question.partition(" sit")[0])
            for a, b in re.findall(r"(\w+) and (\w+) swap", worked.question):
                i, j = row.index(a), row.index(b)
                row[i], row[j] = b, a
            seat = re.search(r"seat (\d)", worked.question)
            assert seat is not None
            assert gold == row[int(seat[1]) - 1]
        elif " than " in worked.question:
            facts = dict(re.findall(r"(\w+) is \w+ than (\w+)\.", worked.question))
            (top,) = set(facts) - set(facts.values())
            line = [top]
            while line[-1] in facts:
                line.append(facts[line[-1]])
            asked = worked.question.rpartition("Who is the ")[2].rstrip("?").split()
            low = asked[-1] in ("shortest", "youngest", "slowest")
            place = 1 if asked[0] == "second" else 0
            assert gold == (line[::-1] if low else line)[place]
        elif "lie?" in worked.question:
            told = dict(re.findall(r"(\w+) says: \w+ (lies|tells)", worked.question))
            truth = [worked.question.partition(".")[0].endswith("tells the truth")]
            for says in told.values():
                truth.append(truth[-1] == (says == "tells"))
            assert gold == str(truth.count(False))
        else:
            a, b, *_, last = (int(n) for n in re.findall(r"\d+", worked.question))
            assert gold == str(last + b - a)


@pytest.mark.parametrize("split", SPLITS)
def test_gold_letters_are_equally_many(split: mini.Split) -> None:
    letters = Counter(task.answer for task in MiniSet("mini-choice").load(split))
    assert letters == dict.fromkeys("ABCD", SIZES[split] // 4)


@pytest.mark.parametrize("name", NAMES)
def test_solution_ends_with_the_format_line_and_the_plan_hides_the_answer(name: str) -> None:
    for worked in worked_split(name, "test"):
        shape = re.escape(prompts.FORMAT[worked.kind])
        for hole in ("<number>", "<letter>", re.escape("...")):
            shape = shape.replace(hole, "(.+)")
        match = re.fullmatch(shape, worked.solution.rpartition("\n")[2])
        assert match is not None
        assert match[1] == worked.answer
        assert "Final answer" not in worked.plan
        if worked.kind != "choice":
            assert worked.plan + "=" + worked.steps[-1].rpartition("=")[2] == "\n".join(worked.steps)


def test_unknown_name_is_refused() -> None:
    with pytest.raises(ConfigError, match="mini-gsm, mini-math, mini-choice"):
        MiniSet("mini-chess")
