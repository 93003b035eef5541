"""Hostile replies: the grader answers in time, counts what went wrong, and the next grade is unaffected."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoint.records import Kind, Task
from counterpoint.tasks.grading import Outcome, equal, extract, grade, grade_reply, verdict, worker_counts
from counterpoint.tasks.worker import WORKER, Worker

from .shared_data import lines

KINDS: tuple[Kind, ...] = ("number", "math", "choice", "text")
OUTCOMES = ("right", "wrong", "unreadable", "error")
SLACK = 10.0  # seconds beyond the deadline for ending a process and starting another on a busy machine
PAIR = {"op": "math", "golds": ["5"], "ordered": True}
TOWER = "9^{9^{9^{9}}}"
LARGE = {
    "braces": "{" * 1_000_000,
    "boxes": "\\boxed{" * 150_000,
    "closed boxes": "\\boxed{" * 60_000 + "5" + "}" * 60_000,
    "digits": "Final answer: " + "7" * 1_000_000,
    "boxed digits": "\\boxed{" + "7" * 1_000_000 + "}",
    "markers": "Final answer: " * 70_000,
    "spaces": "Final" + " " * 1_000_000 + "answer: 5",
    "newlines": "Final answer:" + "\n" * 1_000_000 + "5",
    "hashes": "#" * 1_000_000,
    "stars": "*" * 1_000_000,
    "dollars": "$" * 1_000_000,
    "backslashes": "\\" * 1_000_000,
    "commas": "Final answer: 1" + ",000" * 250_000,
    "fractions": "Final answer: " + "1/" * 500_000,
    "verdicts": "Verdict: " * 100_000,
    "rights": "right " * 170_000,
    "thoughts": "<think>" * 140_000,
    "marks": "\u200f" * 1_000_000,
}


def task(kind: Kind, gold: str) -> Task:
    return Task("t", "", gold, kind)


@pytest.mark.parametrize("name", LARGE)
def test_a_megabyte_is_read_in_linear_time(name: str) -> None:
    for reply in (LARGE[name], f"Final answer: \\boxed{{5}}\n{LARGE[name]}", f"{LARGE[name]}\nFinal answer: 5"):
        start = time.perf_counter()
        for kind in KINDS:
            extract(kind, reply, mode="flexible")
        verdict(reply)
        assert time.perf_counter() - start < 8  # a quarter of a second alone on a core


@pytest.mark.parametrize("kind", ["number", "math"])
def test_what_is_too_large_is_unreadable(kind: Kind) -> None:
    for name in ("digits", "boxed digits", "boxes", "braces"):
        assert grade_reply(task(kind, "5"), LARGE[name]) == "unreadable"
    assert grade_reply(task("number", "5"), "Final answer: 1e999999999") == "unreadable"
    assert not equal(kind, "7" * 1_000_000, "5")


def test_marks_and_odd_signs_are_read() -> None:
    assert grade_reply(task("number", "-5"), "Final\u00a0answer: \u200f−5\u200e") == "right"
    assert grade_reply(task("math", "-5"), "\\boxed{\u202a−5\u202c}") == "right"
    assert grade_reply(task("math", "5"), "\\boxed{\x00}") in ("wrong", "unreadable", "error")
    assert grade_reply(task("math", "5"), "\\boxed{\ud800}") in ("wrong", "unreadable", "error")


def test_a_power_tower_ends_at_the_deadline_and_the_next_grade_is_unaffected() -> None:
    assert equal("math", "x+1", "1+x")  # the worker is up
    before = worker_counts()
    start = time.perf_counter()
    assert grade(task("math", "5"), TOWER, deadline=0.5) == "error"
    assert time.perf_counter() - start < 0.5 + SLACK
    assert worker_counts().killed == before.killed + 1
    assert grade(task("math", "5"), TOWER, deadline=0.5) == "error"  # an error is not remembered as an outcome
    assert worker_counts().killed == before.killed + 2
    assert equal("math", "y+1", "1+y")
    assert not equal("math", "y+1", "2+y")


def test_a_crash_of_the_worker_is_an_error_and_counted() -> None:
    worker = Worker()
    try:
        assert worker.ask({**PAIR, "answers": ["x"]}, deadline=5) == "wrong"
        assert worker._process is not None
        worker._process.kill()
        worker._process.wait()
        assert worker.ask({**PAIR, "answers": ["x"]}, deadline=5) == "error"
        assert (worker.counts.asked, worker.counts.crashed, worker.counts.killed) == (2, 1, 0)
        assert worker.ask({**PAIR, "answers": ["5"]}, deadline=5) == "right"
        assert worker.ask({"op": "unheard of"}, deadline=5) == "error"
        assert worker.counts.failed == 1
    finally:
        worker.close()


class InterruptedPoll:
    """A poll during which the user presses Ctrl-C."""

    def register(self, *_: object) -> None:
        """Accept anything."""

    def poll(self, *_: object) -> None:
        """Not get to an answer."""
        raise KeyboardInterrupt


def test_an_interrupted_request_never_answers_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker()
    try:
        assert worker.ask({**PAIR, "answers": ["5"]}, deadline=5) == "right"

        with monkeypatch.context() as patch:
            patch.setattr("counterpoint.tasks.worker.select.poll", InterruptedPoll)
            with pytest.raises(KeyboardInterrupt):
                worker.ask({**PAIR, "answers": ["5"]}, deadline=5)
        assert worker.ask({**PAIR, "answers": ["x"]}, deadline=5) == "wrong"
    finally:
        worker.close()


def test_threads_share_the_worker() -> None:
    outcomes: dict[int, Outcome] = {}

    def run(i: int) -> None:
        answer = TOWER if i == 3 else f"x+{i}"
        outcomes[i] = grade(task("math", f"{i}+x"), answer, deadline=0.5 if i == 3 else 30)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == {i: "error" if i == 3 else "right" for i in range(8)}


PROGRAMS = {
    "exit while the worker is idle": "assert equal('math', 'x+1', '1+x')",
    "exit after a kill": "assert grade(Task('t', '', '5', 'math'), '9^{9^{9^9}}', deadline=.3) == 'error'",
    "a forked child starts a worker of its own": """
assert equal('math', 'x+1', '1+x')
child = os.fork()
if child == 0:
    same = equal('math', 'y+1', '1+y')
    os._exit(0 if same else 3)
assert os.waitpid(child, 0)[1] == 0
assert equal('math', 'z+1', '1+z')
""",
    "a daemonic process, where multiprocessing itself would refuse": """
def work():
    raise SystemExit(0 if equal('math', 'x+1', '1+x') else 3)
if __name__ == '__main__':
    process = multiprocessing.get_context('fork').Process(target=work, daemon=True)
    process.start(); process.join(); assert process.exitcode == 0, process.exitcode
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_interpreter_ends_cleanly(name: str) -> None:
    head = (
        "import os, multiprocessing\nfrom counterpoint.records import Task\nfrom counterpoint.tasks.grading import *\n"
    )
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", head + PROGRAMS[name]],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_closing_is_safe_twice_and_a_grade_after_it_works() -> None:
    WORKER.close()
    WORKER.close()
    assert equal("math", "a+1", "1+a")


@given(st.sampled_from(KINDS), st.text(max_size=120), st.text(max_size=20))
@settings(max_examples=300, deadline=None)
def test_any_text_has_an_outcome_in_time(kind: Kind, reply: str, gold: str) -> None:
    start = time.perf_counter()
    for said in (reply, f"Final answer: {reply}", f"\\boxed{{{reply}}}"):
        assert grade_reply(task(kind, gold), said, mode="flexible", deadline=1) in OUTCOMES
    assert time.perf_counter() - start < 3 * (1 + SLACK)


PIECES = (
    r"\frac \sqrt { } ^ _ ( ) [ ] , = + - \pm < x y \text{or} \pi \infty \begin{pmatrix} \end{pmatrix} & \\ ! % 2 0"
)
LATEX = st.lists(st.sampled_from(PIECES.split()), max_size=14)


@given(LATEX, LATEX)
@settings(max_examples=150, deadline=None)
def test_any_latex_has_an_outcome_in_time(answer: list[str], gold: list[str]) -> None:
    start = time.perf_counter()
    reply = f"Final answer: \\boxed{{{''.join(answer)}}}"
    assert grade_reply(task("math", "".join(gold)), reply, deadline=1) in OUTCOMES
    assert time.perf_counter() - start < 1 + SLACK


# ---- soak --------------------------------------------------------------------------------------------------------

SEEDS = [
    "Final answer: 18",
    "We get 7.\n#### 1,234",
    "Final answer: \\boxed{\\frac{1}{2}}",
    "So $x = 3 \\pm \\sqrt{2}$.\nFinal answer: $3 \\pm \\sqrt{2}$",
    "Final answer: (B) Helium",
    "\\boxed{\\begin{pmatrix} 1 \\\\ 2 \\end{pmatrix}}",
    "Verdict: RIGHT",
]
NASTY = [
    "\u200f",
    "−",
    "{",
    "}",
    "\\boxed{",
    "\\frac",
    "Final answer: ",
    "####",
    "1e99999",
    "0",
    "/0",
    "$",
    "\n",
    "\ud800",
]
HOSTILE = [TOWER, "(x+y+z)^{900}", "1000000!", "\\sqrt{" * 40, "((((" * 20]


def mutated(rng: random.Random, seeds: list[str]) -> str:
    """A reply with a few cuts, repeats and insertions; in one of a hundred cases something that computes for ever."""
    text = rng.choice(seeds)
    for _ in range(rng.randrange(4)):
        i, j = sorted(rng.randrange(len(text) + 1) for _ in range(2))
        text = rng.choice([text[:i] + text[j:], text[:j] + text[i:], text[:i] + rng.choice(NASTY) + text[i:], text])
    if rng.random() < 0.01:
        text = f"Final answer: \\boxed{{{rng.choice(HOSTILE)}}}"
    return text[:4000]


@pytest.mark.slow
def test_soak_of_ten_thousand_random_and_mutated_replies() -> None:
    rng = random.Random(0)
    seeds = SEEDS + [row["reply"] for row in lines("vectors/answers.jsonl") if row["reply"]]
    golds = ["18", "\\frac{1}{2}", "B", "east", "(3, \\frac{\\pi}{2})", "x+1", "3 \\pm \\sqrt{2}", "\\{1,2\\}", "9i+6"]
    counts = dict.fromkeys(OUTCOMES, 0)
    longest = 0.0
    for i in range(10_000):
        noise = "".join(chr(rng.randrange(0x3000)) for _ in range(rng.randrange(200)))
        reply = f"\\boxed{{{noise}}}" if i % 10 == 0 else mutated(rng, seeds)
        start = time.perf_counter()
        counts[grade_reply(task(rng.choice((*KINDS, "math", "math")), rng.choice(golds)), reply, deadline=0.5)] += 1
        longest = max(longest, time.perf_counter() - start)
        assert verdict(reply) in ("right", "wrong", None)
    print(f"\n{counts}, longest {longest:.2f} s, {worker_counts()}")
    assert sum(counts.values()) == 10_000
    assert min(counts.values()) > 0
    assert longest < 0.5 + SLACK
