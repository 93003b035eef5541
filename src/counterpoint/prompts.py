"""The prompts, in one place, built from the bare question. Short on purpose: small models read them too."""

from __future__ import annotations

from collections.abc import Sequence

from counterpoint.records import Kind, Message, Task

LETTERS = "ABCDEFGHIJ"
FORMAT: dict[Kind, str] = {
    "number": "Final answer: <number>",
    "math": "Final answer: \\boxed{...}",
    "choice": "Final answer: <letter>",
    "text": "Final answer: <answer>",
}


def question(task: Task) -> str:
    """The bare question, with its options one a line when it has any."""
    options = [f"{letter}) {text}" for letter, text in zip(LETTERS, task.choices, strict=False)]
    return "\n".join([task.question, *options])


def solve(task: Task) -> tuple[Message, ...]:
    """Ask for a solution to the bare question."""
    return (
        Message("system", f"Solve the problem step by step. End with the line: {FORMAT[task.kind]}"),
        Message("user", question(task)),
    )


def revise(task: Task, pending: str, votes: int, history: Sequence[tuple[str, str]]) -> tuple[Message, ...]:
    """Ask for a new solution beside a pending one; `history` is (speaker, text) in order, without the pending solution."""
    parts = [question(task), *_transcript(history), f"Current solution (votes {votes:+d}):\n{pending}"]
    return (
        Message("system", f"Solve the problem again, better. End with the line: {FORMAT[task.kind]}"),
        Message("user", "\n\n".join(parts)),
    )


def review(task: Task, pending: str, history: Sequence[tuple[str, str]]) -> tuple[Message, ...]:
    """Ask for a judgement that reasons first and ends with its verdict."""
    parts = [question(task), *_transcript(history), f"Solution:\n{pending}"]
    return (
        Message(
            "system",
            "Check the solution: solve the problem yourself and compare. End with the line: Verdict: RIGHT or Verdict: WRONG",
        ),
        Message("user", "\n\n".join(parts)),
    )


def review_verdict_first(task: Task, pending: str, history: Sequence[tuple[str, str]]) -> tuple[Message, ...]:
    """Ask for a judgement as TRACER does: the verdict on the first line, one reason on the second."""
    parts = [question(task), *_transcript(history), f"Solution:\n{pending}"]
    return (
        Message("system", "Is the solution right? First line: RIGHT or WRONG. Second line: one reason."),
        Message("user", "\n\n".join(parts)),
    )


def think(task: Task) -> tuple[Message, ...]:
    """Ask for a plan that does not give the answer away (CCPO's thinker)."""
    return (
        Message("system", "Plan how to solve the problem. Do not give the final answer."),
        Message("user", question(task)),
    )


def solve_with_thought(task: Task, thought: str) -> tuple[Message, ...]:
    """Ask for a solution beside a thinker's plan; the system message is that of `solve` (CCPO's solver)."""
    system, user = solve(task)
    return system, Message("user", f"{user.content}\n\nPlan:\n{thought}")


def rate_split(task: Task, thought: str, solution: str, right: bool) -> tuple[Message, ...]:
    """Ask a member of a think-solve team how the credit or the blame splits (SEPO)."""
    share = "credit" if right else "blame"
    parts = [
        question(task),
        f"Plan:\n{thought}",
        f"Solution:\n{solution}",
        f"The answer is {'right' if right else 'wrong'}.",
    ]
    return (
        Message(
            "system",
            f"Split the {share} between planner and solver. Reply with two shares that add up to 1, planner first, "
            "from [0.9, 0.1] to [0.1, 0.9], and nothing else.",
        ),
        Message("user", "\n\n".join(parts)),
    )


def debate(task: Task, others: Sequence[str]) -> tuple[Message, ...]:
    """Ask for a new solution after reading the other agents' last ones."""
    shown = [f"Solution of agent {i + 1}:\n{text}" for i, text in enumerate(others)]
    return (
        Message("system", f"Solve the problem again, better. End with the line: {FORMAT[task.kind]}"),
        Message("user", "\n\n".join([question(task), *shown])),
    )


def _transcript(history: Sequence[tuple[str, str]]) -> list[str]:
    return [f"Earlier, {speaker}:\n{text}" for speaker, text in history]
