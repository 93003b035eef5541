"""The pre-training examples of the bundled model: every role of prompts.py over fresh mini problems."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from counterpoint import prompts
from counterpoint.records import Message, Task
from counterpoint.rng import fold
from counterpoint.tasks.mini import stream
from counterpoint.tasks.mini_worked import Worked, final_line

EQUATION = re.compile(r"(\d+)([-+*/])(\d+)=(\d+)")


@dataclass(frozen=True, slots=True)
class Mix:
    """The shares of sets, roles and kinds of drill sheet in one phase of pre-training."""

    sets: dict[str, float]
    roles: dict[str, float]
    sheets: dict[str, float]


FIRST = Mix(  # how to compute, compare and look up, and the problems themselves
    {"mini-gsm": 0.45, "mini-math": 0.22, "mini-choice": 0.33},
    {"solve": 0.60, "drill": 0.40},
    {"equations": 0.50, "comparisons": 0.45, "lookups": 0.05},
)
LAST = Mix(
    {"mini-gsm": 0.36, "mini-math": 0.24, "mini-choice": 0.40},
    {
        "solve": 0.30,
        "drill": 0.14,
        "review": 0.26,
        "revise": 0.11,
        "think": 0.05,
        "solve_with_thought": 0.06,
        "debate": 0.05,
        "review_verdict_first": 0.03,
    },
    {"equations": 0.30, "comparisons": 0.65, "lookups": 0.05},
)
PHASES = ((600, FIRST),)  # (until step, mix); then LAST
SETS = LAST.sets
ROLES = LAST.roles
SPEAKERS = (("proposer", "reviewer"), ("agent0", "agent1"), ("agent1", "agent0"))


@dataclass(frozen=True, slots=True)
class Example:
    """A prompt and the reply to learn."""

    messages: tuple[Message, ...]
    reply: str
    results_only: bool = False  # learn only what follows each "=" or "Verdict: ", to the end of its line


@dataclass(frozen=True, slots=True)
class Attempt:
    """A solution somebody wrote, and whether it is right."""

    worked: Worked
    text: str
    right: bool


@dataclass(slots=True)
class Pool:
    """The model's own sampled solutions, split by their true label; empty until it solves some."""

    right: list[Attempt] = field(default_factory=list)
    wrong: list[Attempt] = field(default_factory=list)

    @property
    def ready(self) -> bool:
        """Whether there are enough of both to draw from."""
        return min(len(self.right), len(self.wrong)) >= 50


def answer_in(text: str) -> str | None:
    """The answer of a reply that ends with a final line, as written."""
    line = text.rpartition("\n")[2]
    if not line.startswith("Final answer: "):
        return None
    answer = line.removeprefix("Final answer: ")
    if answer.startswith("\\boxed{") and answer.endswith("}"):
        answer = answer.removeprefix("\\boxed{").removesuffix("}")
    return answer


def misread(worked: Worked, rng: random.Random) -> str:
    """A solution that goes wrong by misreading: one step has another operation or operand, or is missing."""
    if worked.kind == "choice":
        letter = rng.choice([c for c in prompts.LETTERS[:4] if c != worked.answer])
        option = worked.choices[prompts.LETTERS.index(letter)]
        return "\n".join([*worked.steps[:-1], f"so {option}={letter}", final_line("choice", letter)])
    equations = [EQUATION.fullmatch(step) for step in worked.steps]
    broken = rng.randrange(len(equations))
    renamed: dict[str, str] = {}
    lines: list[str] = []
    for i, (step, equation) in enumerate(zip(worked.steps, equations, strict=True)):
        if equation is None:  # the reduction of a fraction: keep its form, change a value
            lines.append(step if i != broken else re.sub(r"=(\d+)", f"={rng.randint(1, 20)}", step))
            continue
        a, op, b, value = equation.groups()
        a, b = renamed.get(a, a), renamed.get(b, b)
        if i == broken:
            if rng.random() < 0.5:
                op = rng.choice([o for o in "+-*" if o != op])
            else:
                b = str(max(1, int(b) + rng.choice((-10, -2, -1, 1, 2, 10))))
            if rng.random() < 0.2 and len(equations) > 2:
                renamed[value] = a
                continue
        x, y = int(a), int(b)
        new = {"+": x + y, "-": abs(x - y), "*": x * y, "/": x // max(y, 1)}[op]
        renamed[value] = str(new)
        lines.append(f"{a}{op}{b}={new}")
    answer = lines[-1].rpartition("=")[2] if lines else "1"
    if "/" in answer:
        top, bottom = answer.split("/")
        answer = f"\\frac{{{top}}}{{{bottom}}}"
    return "\n".join([*lines, final_line(worked.kind, answer)])


def attempt(worked: Worked, rng: random.Random, right: bool) -> Attempt:
    """A made-up attempt: the reference solution, or a misreading of it."""
    text = worked.solution if right else misread(worked, rng)
    return Attempt(worked, text, answer_in(text) == worked.answer)


def review_of(pending: Attempt, verdict_first: bool = False) -> str:
    """What a good reviewer writes: its own solution of the question, the comparison, the verdict."""
    worked, theirs = pending.worked, answer_in(pending.text)
    verdict = "RIGHT" if pending.right else "WRONG"
    reason = f"I get {worked.answer}, the solution says {theirs if theirs else 'nothing'}."
    if verdict_first:
        return f"{verdict}\n{reason}"
    return "\n".join([*worked.steps, reason, f"Verdict: {verdict}"])


class Corpus:
    """Draws examples; `pool` may be filled while training goes on."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(fold(seed, "corpus"))
        self.streams = {name: stream(name, seed) for name in SETS}
        self.pool = Pool()
        self.mix = LAST

    def worked(self) -> Worked:
        """One fresh problem of a set drawn by the mix."""
        (name,) = self.rng.choices(list(self.mix.sets), list(self.mix.sets.values()))
        return next(self.streams[name])

    def attempt(self, right: bool) -> Attempt:
        """An attempt with the wanted label on a fresh problem, or from the pool when there is one."""
        if self.pool.ready and self.rng.random() < 0.7:
            return self.rng.choice(self.pool.right if right else self.pool.wrong)
        return attempt(self.worked(), self.rng, right)

    def history(self, worked: Worked) -> list[tuple[str, str]]:
        """Zero to four earlier turns of a dialogue about `worked`: solutions and their reviews in turn."""
        turns: list[tuple[str, str]] = []
        solver, reviewer = self.rng.choice(SPEAKERS)
        for _ in range(self.rng.choice((0, 0, 0, 1, 1, 2))):
            tried = attempt(worked, self.rng, self.rng.random() < 0.4)
            turns.append((solver, tried.text))
            if self.rng.random() < 0.7:
                turns.append((reviewer, review_of(tried)))
        return turns

    def example(self, role: str | None = None) -> Example:
        """One example of `role`, or of a role drawn by the mix."""
        rng = self.rng
        if role is None:
            (role,) = rng.choices(list(self.mix.roles), list(self.mix.roles.values()))
        if role in ("review", "review_verdict_first", "revise", "debate"):
            pending = self.attempt(rng.random() < 0.5)
            return self._beside(role, pending, _bare(pending.worked))
        if role == "drill":
            return self._drill()
        worked = self.worked()
        task = _bare(worked)
        if role == "think":
            return Example(prompts.think(task), worked.plan)
        if role == "solve_with_thought":
            return Example(prompts.solve_with_thought(task, self._plan(worked)), worked.solution)
        return Example(prompts.solve(task), worked.solution)

    def _beside(self, role: str, pending: Attempt, task: Task) -> Example:
        worked = pending.worked
        if role == "review":
            history = self.history(worked) if self.rng.random() < 0.3 else []
            return Example(prompts.review(task, pending.text, history), review_of(pending))
        if role == "review_verdict_first":
            return Example(prompts.review_verdict_first(task, pending.text, []), review_of(pending, verdict_first=True))
        if role == "debate":
            others = [pending.text]
            others += [attempt(worked, self.rng, self.rng.random() < 0.5).text for _ in range(self.rng.randint(0, 2))]
            return Example(prompts.debate(task, others), worked.solution)
        votes = self.rng.randint(-3, 3)
        return Example(prompts.revise(task, pending.text, votes, self.history(worked)), worked.solution)

    def _drill(self) -> Example:
        """A sheet of equations as in solutions, of comparisons as in reviews, or of options to look up."""
        (kind,) = self.rng.choices(list(self.mix.sheets), list(self.mix.sheets.values()))
        if kind == "comparisons":
            lines = [self._comparison() for _ in range(8)]
        elif kind == "lookups":
            lines = [self._lookups(), self._lookups()]
        else:
            lines = [step for name in ("mini-gsm", "mini-math") * 3 for step in next(self.streams[name]).steps]
            self.rng.shuffle(lines)
            lines = lines[:12]
        return Example((Message("user", "Drill"),), "\n".join(lines), results_only=True)

    def _comparison(self) -> str:
        worked = self.worked()
        right = self.rng.random() < 0.5
        text = worked.solution if right else misread(worked, self.rng)
        return review_of(Attempt(worked, text, answer_in(text) == worked.answer)).split("\n", len(worked.steps))[-1]

    def _lookups(self) -> str:
        """The options of a puzzle, and five look-ups in them."""
        choices = next(self.streams["mini-choice"]).choices
        options = [f"{letter}) {text}" for letter, text in zip(prompts.LETTERS, choices, strict=False)]
        places = self.rng.choices(range(4), k=5)
        return "\n".join([*options, *(f"so {choices[i]}={prompts.LETTERS[i]}" for i in places)])

    def _plan(self, worked: Worked) -> str:
        """A plan as a thinker may give it: good, cut short, misread or missing."""
        draw = self.rng.random()
        if draw < 0.5:
            return worked.plan
        if draw < 0.65:
            return worked.plan.partition("\n")[0]
        if draw < 0.9:
            return misread(worked, self.rng).rpartition("\n")[0].rpartition("=")[0]
        return ""


def _bare(worked: Worked) -> Task:
    return worked.task("pretrain")


def examples(seed: int) -> Iterator[Example]:
    """Unbounded examples without a pool (for the tokenizer)."""
    corpus = Corpus(seed)
    while True:
        yield corpus.example()
