"""Dialogues in the terminal, from files alone; model text is shown as text, whatever it contains."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Console, Group
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from counterpoint.dialogue import training_step
from counterpoint.errors import DataError
from counterpoint.records import Episode
from counterpoint.report.readings import Branch, Dialogue, Move, Reply, read_dialogue
from counterpoint.report.replay import Replay
from counterpoint.report.runs import Run, open_run

WORST = ("harmed", "wrong", "truncated")
LONGEST = 4_000  # characters of a reply that are printed
LISTED = 10
TONES = {"right": "green", "wrong": "red", "unreadable": "yellow", "error": "yellow"}


def show_episode(root: Path, wanted: str, *, console: Console) -> None:
    """Print the dialogue whose id is, or ends with, `wanted`, with what was played beside it."""
    run = open_run(root)
    _print(_find(run, wanted), console)


def show_worst(root: Path, kind: str, *, console: Console) -> None:
    """List examples of what went wrong, the costliest first, and print the first of them."""
    if kind not in WORST:
        raise DataError(f"cannot look for {kind!r}; choose {', '.join(WORST)}")
    run = open_run(root)
    tests: dict[str, Callable[[Dialogue], float]] = {
        "harmed": lambda d: (d.change == "harmed") * _tokens(d),
        "wrong": lambda d: (d.final != "right") * _tokens(d),
        "truncated": lambda d: sum(t.completion.finish == "length" for t in d.episode.turns),
    }
    scored = ((tests[kind](dialogue), dialogue) for dialogue in _dialogues(run))
    found = sorted((pair for pair in scored if pair[0] > 0), key=lambda pair: (-pair[0], pair[1].episode.id))
    if not found:
        console.print(f"no dialogue of {root} is {kind}", markup=False)
        return
    table = Table(
        "dialogue", "gold", "first", "final", "replies", "tokens", title=f"{len(found)} {kind}", title_justify="left"
    )
    for _, d in found[:LISTED]:
        cells = (d.episode.id, d.episode.task.answer, d.first_answer, d.episode.answer)
        table.add_row(*(Text(plain(str(c))[:60]) for c in cells), str(len(d.episode.turns)), str(_tokens(d)))
    console.print(table)
    _print(_find(run, found[0][1].episode.id), console)


def _tokens(dialogue: Dialogue) -> int:
    return sum(len(turn.completion.token_ids) for turn in dialogue.episode.turns)


def _dialogues(run: Run) -> Iterator[Dialogue]:
    """The trained team's; before it was measured, those of the newest training step."""
    phases = run.phases()
    files = [path for phase, sets in phases.items() if phase != "untrained" for path in sets.values()]
    if not files:
        files = [path for _, path in run.train_files()[-1:]] or [p for s in phases.values() for p in s.values()]
    for path in files:
        yield from (read_dialogue(run.method, e) for e in run.episodes(path) if e.fork is None)


def _find(run: Run, wanted: str) -> Dialogue:
    """The dialogue, credited where it belongs to a whole training step."""
    root = wanted.split("~")[0]
    files = [path for sets in run.phases().values() for path in sets.values()]
    files = [path for _, path in run.train_files()] + files
    episode = _search(run, files, root, str.__eq__) or _search(run, files, root, str.endswith)
    if episode is None:
        raise DataError(
            f"no episode {wanted!r} in {run.root}; ids read like train/12/mini-gsm/train/17 or eval/mini-gsm/test/3"
        )
    if not training_step(episode):
        return read_dialogue(run.method, episode)
    return next(d for d in Replay(run).at(training_step(episode)).dialogues if d.episode.id == episode.id)


def _search(run: Run, files: list[Path], wanted: str, test: Callable[[str, str], bool]) -> Episode | None:
    found = (e for path in files for e in run.episodes(path, near=wanted))
    return next((e for e in found if e.fork is None and test(e.id, wanted)), None)


# ---- one dialogue ------------------------------------------------------------------------------------------------


def _print(dialogue: Dialogue, console: Console) -> None:
    task = dialogue.episode.task
    console.rule(Text(dialogue.episode.id), align="left")
    options = "".join(f"\n{'ABCDEFGHIJ'[i]}) {choice}" for i, choice in enumerate(task.choices))
    console.print(Panel(Text(plain(task.question + options)), title="question", title_align="left"))
    for move in dialogue.moves:
        console.print(_move(move))
    for branch in dialogue.others:
        console.print(_branch(branch))
    console.print(
        Text.assemble(
            f"gold {plain(task.answer)}   first ",
            (plain(str(dialogue.first_answer)), TONES[dialogue.first]),
            "   final ",
            (plain(str(dialogue.episode.answer)), TONES[dialogue.final]),
            f"   {dialogue.change}",
        )
    )


def _move(move: Move) -> Group:
    head = Text.assemble((f"{move.agent}/{move.role}", "bold"), f" {move.action}")
    if move.decision is not None:
        head.append(f", p(speak) {1 - move.decision.probs[0]:.2f} in {move.decision.state}")
    if move.values is not None:
        named = zip(
            ("silent", "speak", *(f"action {i}" for i in range(2, len(move.values)))), move.values, strict=False
        )
        head.append("; worth " + ", ".join(f"{name} {value:+.2f}" for name, value in named), "dim")
    parts: list[Panel | Text | Padding] = [
        Panel(_reply(r), title=head, title_align="left") for r in move.replies[:1]
    ] or [head]
    for reply in move.replies[1:]:
        parts.append(Padding(Text.assemble("candidate: ", _reading(reply)), (0, 0, 0, 2)))
    if move.branch is not None:
        parts.append(_branch(move.branch))
    return Group(*parts)


def _branch(branch: Branch) -> Padding:
    title = Text(branch.title)
    if branch.outcome is not None:
        title.append(f": {plain(str(branch.answer))} ({branch.outcome})", TONES[branch.outcome])
    body = Group(*(_move(move) for move in branch.moves))
    return Padding(Panel(body, title=title, title_align="left", style="dim"), (0, 0, 0, 4))


def _reply(reply: Reply) -> Text:
    text = reply.turn.completion.text
    shown = plain(text[:LONGEST])
    more = f"\n[{len(text) - LONGEST:,} more characters]" if len(text) > LONGEST else ""
    return Text.assemble(shown, (more, "dim"), "\n", _reading(reply))


def _reading(reply: Reply) -> Text:
    """How a reply was read and what it was worth, in one line."""
    tone = {True: "green", False: "red", None: ""}[reply.right]
    parts = [] if reply.said is None else [plain(reply.said)[:200]]
    parts += {True: ["right"], False: ["not right"], None: []}[reply.right]
    parts += [
        f"{name} {value:+.2f}"
        for name, value in (("reward", reply.reward), ("advantage", reply.advantage))
        if value is not None
    ]
    parts.append(f"{len(reply.turn.completion.token_ids)} tokens")
    if reply.turn.completion.finish != "stop":
        parts.append("truncated" if reply.turn.completion.finish == "length" else reply.turn.completion.finish)
    return Text(" · ".join(parts), tone)


MARKS = "\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


def plain(text: str) -> str:
    """Model text without control characters: no escape sequence reaches the terminal, no mark reorders a line."""
    return "".join(c if c in "\n\t" or (c.isprintable() and c not in MARKS) else f"\\u{ord(c):04x}" for c in text)
