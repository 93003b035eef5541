"""Leaks: what gives an answer away, and what is taken out before a thought is handed on."""

import pytest

from counterpoint.records import Task
from counterpoint.tasks.leak import states_answer, without_answer


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("Add them.", "Add them."),
        ("Add. \\boxed{7} Then check.", "Add.  Then check."),
        ("\\boxed{\\frac{1}{2}} first, \\boxed{x^{2}} later", "first,  later"),
        ("\\boxed{\\text{a {b} c}} end", "end"),
        ("start \\boxed{7", "start"),
        ("\\fbox{7} and \\boxed {8}", "and"),
        ("Plan.\nFinal answer: 7\nMore.", "Plan.\nMore."),
        ("**Final Answer**: 7", ""),
        ("re\\bo\\boxed{x}xed{7}formed", "reformed"),
        ("nested \\boxed{a \\boxed{b} c} out", "nested  out"),
        ("the final answers differ", "the final answers differ"),
        ("", ""),
    ],
)
def test_without_answer(text, kept):
    assert without_answer(text) == kept


def test_without_answer_is_linear_on_hostile_text():
    for text in ("\\boxed{" * 20000, "{" * 50000 + "\\boxed{1}", "final answer " * 5000):
        assert len(without_answer(text)) <= len(text)


def number(answer):
    return Task("q", "?", answer, "number")


CHOICE = Task("q", "?", "B", "choice", ("4", "7 apples", "9", "15"))
FIRST = Task("q", "?", "A", "choice", ("cat", "dog"))


@pytest.mark.parametrize(
    ("task", "text", "stated"),
    [
        (number("7"), "so 3 + 4 = 7.", True),
        (number("7"), "70 and 17 and 7.5 and 1/7", False),
        (number("7"), "7,000 or x7", False),
        (number("1234"), "about 1,234 of them", True),
        (number("1,234"), "1234", True),
        (number("0.5"), "a half: 1/2", True),
        (number("-3"), "it is -3", True),
        (number("18"), "18.0", True),
        (Task("q", "?", "\\frac{1}{2}", "math"), "we get \\frac{1}{2} of it", True),
        (Task("q", "?", "x^2", "math"), "x^21", False),
        (Task("q", "?", "12", "math"), "12 it is", True),
        (CHOICE, "The answer is B.", True),
        (CHOICE, "Buy one", False),
        (CHOICE, "there are 7 apples", True),
        (FIRST, "A good plan", False),
        (FIRST, "option (A)", True),
        (Task("q", "?", "Paris", "text"), "It is PARIS!", True),
        (Task("q", "?", "Paris", "text"), "Parisian", False),
        (Task("q", "?", "", "text"), "anything", False),
    ],
)
def test_states_answer(task, text, stated):
    assert states_answer(task, text) is stated
