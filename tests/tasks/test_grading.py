"""Replies to outcomes: vectors, real golds, readings of each kind, and properties."""

from __future__ import annotations

import subprocess
import sys
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoint.records import Kind, Task
from counterpoint.tasks.certainty import numeric
from counterpoint.tasks.grading import equal, extract, grade, grade_reply
from counterpoint.tasks.latex import tidy
from counterpoint.tasks.lists import Items, decide, items
from counterpoint.tasks.numbers import canonical, literal, read_number

from .shared_data import lines, needs_shared


def task(kind: Kind, gold: str) -> Task:
    return Task("t", "", gold, kind)


# ---- vectors and real data ---------------------------------------------------------------------------------------


@needs_shared
def test_every_answer_vector() -> None:
    vectors = lines("vectors/answers.jsonl")
    assert len(vectors) == 68
    missed = [v for v in vectors if (grade_reply(task(v["kind"], v["gold"]), v["reply"]) == "right") != v["right"]]
    assert missed == []


def test_every_gold_of_gsm8k_equals_itself_and_nothing_off_by_100_or_a_sign() -> None:
    rows = [*lines("data/gsm8k/train.jsonl"), *lines("data/gsm8k/test.jsonl")]
    if not rows:
        pytest.skip("../shared/data is absent")
    assert len(rows) == 7473 + 1319
    for row in rows:
        gold = row["answer"].split("####")[1].strip()
        value = literal(gold)
        assert value is not None
        assert grade_reply(task("number", gold), f"Final answer: {gold}") == "right"
        for other in {value * 100, value / 100, -value} - {value}:
            assert not equal("number", canonical(other), gold)


def test_every_gold_of_math500_equals_itself_and_numeric_ones_nothing_off_by_100_or_a_sign() -> None:
    rows = lines("data/math500/test.jsonl")
    if not rows:
        pytest.skip("../shared/data is absent")
    assert len(rows) == 500
    numbers = 0
    for row in rows:
        gold = row["answer"]
        assert equal("math", gold, gold)
        assert grade_reply(task("math", gold), f"Final answer: \\boxed{{{gold}}}") == "right"
        value = numeric(tidy(gold))
        if value is None:
            symbolic = [f"100({gold})", f"-({gold})", f"\\frac{{{gold}}}{{100}}"]
            assert not any(equal("math", other, gold) for other in symbolic)
        else:
            numbers += 1
            others = {value * 100, value / 100, -value} - {value}
            assert not any(equal("math", canonical(other), gold) for other in others)
    assert numbers > 350


# ---- readings ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "value"),
    [
        ("9 * 2 = 18", 18),
        ("20 apples in 3 boxes", 20),
        ("$5 per box for 3 boxes", 5),
        ("x = 18", 18),
        ("18 (since 9 * 2 = 18)", 18),
        ("John has 18 apples", 18),
        ("1 1/2", Fraction(3, 2)),
        ("5 million", 5_000_000),
        ("-$5", -5),
        ("$-5", -5),
        ("−5", -5),
        ("٣", 3),
        ("\u200f18\u200f", 18),
        ("１８", 18),
        ("½", Fraction(1, 2)),
        ("1{,}000", 1000),
        ("10\\,000", 10_000),
        ("$\\frac{1}{2}$", Fraction(1, 2)),
        (".5", Fraction(1, 2)),
        ("50%", 50),
        ("1,00,000", 100_000),
        ("1e300", 10**300),
    ],
)
def test_numbers_read(said: str, value: Fraction | int) -> None:
    assert read_number(said) == value
    assert extract("number", f"Work.\nFinal answer: {said}") == canonical(Fraction(value))


@pytest.mark.parametrize(
    "said",
    [
        *("9 * 2", "5-6", "5 to 6", "5, 6", "(5, 6)", "between 5 and 6", "x = 5 or x = 6", "18 = 9 * 3 = 27"),
        *("3:30", "1.2.3", "12,5", "2^3", "5²", "2\\pi", "\\sqrt{16}", "10k", "18 ± 1", "5 < 6", "less than 5"),
        *(
            "not 18",
            "1/0",
            "--18",
            "12 hours 30 minutes",
            "18 dollars and 50 cents",
            "1e301",
            "unknown",
            "{}",
            "",
            "5 maybe 6",
            "5 (or 6)",
            "5 then 6",
        ),
    ],
)
def test_what_is_not_one_number_is_unreadable(said: str) -> None:
    assert extract("number", f"Final answer: {said}") is None


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ("Final answer: 7\nNo.\nFinal answer: 8", "8"),
        ("Final answer: 8\nFinal answer: I do not know", None),
        ("\\boxed{7}. That is wrong. \\boxed{8}", "8"),
        ("\\boxed{8} or \\boxed{7}", None),
        ("\\boxed{8} or \\boxed{8.0}", "8"),
        ("\\boxed{7} and then \\boxed{8", None),
        ("\\boxed{\\boxed{8}}", "8"),
        ("Final answer:\n\n**8**", "8"),
        ("Final answer:\n\\[\n\\boxed{8}\n\\]", "8"),
        ("The final answer is $8$. I hope it is correct.", "8"),
        ("Answer: 8", "8"),
        ("The answer is 8", None),
        ("#### 8", "8"),
        ("#### 8\n#### Step 3: check", "8"),
        ("#### 3. Check", None),
        ("<think>Final answer: 7</think>\nFinal answer: 8", "8"),
        ("<think>Final answer: 8", None),
        ("Final answer: 8\n<think>Final answer: 7", "8"),
    ],
)
def test_the_last_statement_counts(reply: str, answer: str | None) -> None:
    assert extract("number", reply) == answer


@pytest.mark.parametrize(
    ("said", "letter"),
    [
        *[
            (said, "B")
            for said in ("B", "b", "(b)", "b) cat", "B: cat", "B because", "[B]", "\\boxed{\\text{B}}", "$B$")
        ],
        *[(said, "B") for said in ("Option (B)", "option B.", '"B"', "B (not C)", "B - Helium")],
        *[("A because it is", "A"), ("A, because B is wrong", "A"), ("A. A neutron", "A")],
        *[(said, None) for said in ("A solution cannot be found", "I am not sure", "a cat", "K", "ABCD", "not B")],
        *[(said, None) for said in ("B, C", "B and C", "B/C", "B.C", "A B C D", "A.B.C.D", "both B", "None of these")],
    ],
)
def test_letters(said: str, letter: str | None) -> None:
    assert extract("choice", f"Final answer: {said}") == letter


def test_flexible_reads_what_strict_does_not() -> None:
    assert extract("number", "so 3 apples and then 42 pears", mode="flexible") == "42"
    assert extract("math", "so it is 42 then", mode="flexible") == "42"
    assert extract("choice", "I would take (C) here", mode="flexible") == "C"
    assert extract("text", "Hm.\nParis.", mode="flexible") == "Paris"
    assert extract("number", "Final answer: 7 or 8\n", mode="flexible") == "8"  # strict: unreadable
    assert extract("number", "no digits", mode="flexible") is None


@pytest.mark.parametrize(
    ("answer", "gold", "right"),
    [
        ("5", "5\\text{ cm}", True),
        ("50", "50\\%", True),
        ("0.5", "50\\%", False),
        ("50\\%", "0.5", False),
        ("1\\frac{4}{5}", "\\frac{9}{5}", True),
        ("6.72 \\times 10^{-5}", ".0000672", True),
        ("0", "6.72\\times10^{-8}", False),
        ("11111111100", "11,\\! 111,\\! 111,\\! 100", True),
        ("East", "\\text{east}", True),
        ("C", "\\text{(C)}", True),
        ("2x+3", "y = 2x + 3", True),
        ("(2,1)", "(1,2)", False),
        ("2,1", "1, 2", True),
        ("2,1", "(1,2)", False),
        ("1,1,2", "1,2", True),
        ("\\{1,3\\}", "\\{1,2\\}", False),
        ("(x+1, 0.5)", "(1+x, \\frac12)", True),
        ("(\\frac12, x+1)", "(1+x, \\frac12)", False),
        ("\\{1+x, 2\\}", "\\{2, x+1\\}", True),
        ("((1,2),3)", "(1,(2,3))", False),
        ("[-2, 7)", "x \\in [-2,7)", True),
        ("(9,36)\\cup(0,9)", "(0,9) \\cup (9,36)", True),
        ("(0,9]\\cup(9,36)", "(0,9) \\cup (9,36)", False),
        ("1+\\sqrt{2},1-\\sqrt{2}", "1 \\pm \\sqrt{2}", True),
        ("\\begin{bmatrix} 1 & 0.5 \\\\ 2 & 3 \\end{bmatrix}", "\\begin{pmatrix}1&\\frac12\\\\2&3\\end{pmatrix}", True),
        ("\\begin{pmatrix} 1 \\\\ 2 \\end{pmatrix}", "\\begin{pmatrix} 1 & 2 \\end{pmatrix}", False),
        ("\\begin{vmatrix} 1 \\\\ 2 \\end{vmatrix}", "\\begin{pmatrix} 1 \\\\ 2 \\end{pmatrix}", False),
        ("(1,2)", "\\{1,2\\}", False),
        ("\\{1,2\\}", "(1,2)", False),
        ("1,2", "\\{2,1\\}", True),
        ("(0,9)\\cup(9,36)", "(0,9) \\cup (9,36)", True),
        ("5,6", "5", False),
        ("5 \\text{ or } 6", "5", False),
        ("5 \\text{ or not}", "5", False),
        ("\\pm 5", "5", False),
        ("5=6=5", "5", False),
        ("5 \\text{ million}", "5", False),
        ("11", "11_2", True),
        ("11_2", "11", False),
        ("52_8", "52_9", False),
        ("3.141593", "\\pi", False),
        ("0.333333", "\\frac13", False),
        ("2π", "2\\pi", True),
        ("x²", "x^2", True),
    ],
)
def test_math_pairs(answer: str, gold: str, right: bool) -> None:
    assert equal("math", answer, gold) is right


def test_text_is_compared_without_case_spaces_quotes_and_period() -> None:
    assert equal("text", '"New  York."', "new york")
    assert not equal("text", "New York City", "new york")
    assert extract("text", "Final answer:\n1 2\n3 4\n\nDone.") == "1 2\n3 4"


def test_an_unreadable_reply_and_a_wrong_one_are_told_apart() -> None:
    assert grade(task("number", "5"), None) == "unreadable"
    assert grade_reply(task("number", "5"), "") == "unreadable"
    assert grade_reply(task("number", "5"), "Final answer: 6") == "wrong"


def test_importing_the_grader_loads_neither_sympy_nor_torch() -> None:
    program = (
        "import sys, counterpoint.tasks.grading; sys.exit(bool({'sympy', 'math_verify', 'torch'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_lists_are_split_outside_brackets_only() -> None:
    assert items("(\\frac{1}{2},f(3,4),\\{5,6\\})") == Items("()", ("\\frac{1}{2}", "f(3,4)", "\\{5,6\\}"))
    assert items("(-\\infty,2)\\cup(3,\\frac{7}{2}]") == Items("union", ("(-\\infty,2)", "(3,\\frac{7}{2}]"))
    assert items("(a+5)(b+2)") is None
    assert items("(1,2),(3,4)") == Items("bare", ("(1,2)", "(3,4)"))
    assert items("(1,2") is None
    assert decide("(3,\\frac{13}{7})", "(3,\\frac{12}{7})") is False  # without asking the worker


# ---- properties --------------------------------------------------------------------------------------------------

FORMULAS = ["5", "-5", "\\frac{1}{2}", "(1, 2)", "[2, 5)", "x + 1", "\\sqrt{3}", "2\\pi", "\\{1, 2\\}", "\\text{east}"]
DRESSES = [
    lambda s: f" {s} ",
    lambda s: f"$ {s}$",
    lambda s: f"{s}.",
    lambda s: s.replace("(", "\\left(").replace(")", "\\right)").replace("[", "\\left[").replace("]", "\\right]"),
    lambda s: s.replace(" ", "  ").replace("+", "  +  "),
    lambda s: s.replace("+ ", "+").replace(" +", "+").replace(", ", ","),
]


@given(
    st.sampled_from(FORMULAS), st.sampled_from(FORMULAS), st.lists(st.sampled_from(DRESSES), max_size=3, unique=True)
)
@settings(max_examples=150, deadline=None)
def test_dress_never_changes_the_outcome_of_a_formula(answer: str, gold: str, dresses: list) -> None:
    dressed = answer
    for dress in dresses:
        dressed = dress(dressed)
    plain = grade_reply(task("math", gold), f"Final answer: \\boxed{{{answer}}}")
    assert plain == ("right" if answer == gold else "wrong")
    assert grade_reply(task("math", gold), f"Final answer: \\boxed{{{dressed}}}") == plain
    assert grade_reply(task("math", gold), f"Final answer: {dressed}") == plain


@given(
    st.fractions(max_denominator=1000), st.sampled_from(["{}", " {} ", "${}$", "{}.", "**{}**", "\\boxed{{{}}}", "{} "])
)
def test_dress_never_changes_the_outcome_of_a_number(value: Fraction, dress: str) -> None:
    reply = f"Final answer: {dress.format(canonical(value))}"
    assert grade_reply(task("number", str(value)), reply) == "right"
    assert grade_reply(task("number", str(value + 1)), reply) == "wrong"


@given(
    st.sampled_from(["number", "math", "choice", "text"]),
    st.text(max_size=60),
    st.sampled_from(["{}", "\\boxed{{{}}}"]),
)
@settings(max_examples=400, deadline=None)
def test_equal_is_reflexive_on_readable_answers(kind: Kind, text: str, frame: str) -> None:
    answer = extract(kind, f"Final answer: {frame.format(text)}", mode="flexible")
    assert answer is None or equal(kind, answer, answer)


@given(st.integers(-(10**12), 10**12), st.integers(0, 6))
def test_numbers_are_compared_exactly(value: int, places: int) -> None:
    number = Fraction(value, 10**places)
    near = number + Fraction(1, 10**9)
    assert equal("number", f"{value}e-{places}", canonical(number))
    assert equal("math", canonical(number), canonical(number))
    assert not equal("number", canonical(near), canonical(number))
    assert not equal("math", canonical(near), canonical(number))
