"""One dialogue in the terminal, from files alone; model text is shown as text, whatever it contains."""

from __future__ import annotations

from pathlib import Path

import yaml
from rich.console import Console
from rich.panel import Panel
from rich.text import Text

from counterpoint.dialogue import Method
from counterpoint.errors import DataError
from counterpoint.methods import make_method
from counterpoint.records import Episode
from counterpoint.store import read_episodes
from counterpoint.tasks.grading import grade


def show_episode(run: Path, wanted: str, *, console: Console) -> None:
    """Print the dialogue whose id is, or ends with, `wanted`, and the forks made of it."""
    config_file = run / "config.yaml"
    if not config_file.is_file():
        raise DataError(f"no run in {run}: it has no config.yaml")
    method = make_method(yaml.safe_load(config_file.read_text(encoding="utf-8"))["method"])
    episodes = _find(run, wanted)
    main = next((e for e in episodes if e.fork is None), episodes[0])
    for episode in episodes:
        _print(episode, console)
    outcome = grade(main.task, main.answer)
    console.print(Text(f"gold {main.task.answer}   answer {plain(str(main.answer))}   {outcome}"))
    _print_values(method, main, [e for e in episodes if e.fork is not None], console)


def _find(run: Path, wanted: str) -> list[Episode]:
    """The episode and its forks, from whichever file holds them."""
    for path in sorted(run.rglob("*.jsonl")):
        if path.parent.name != "train" and not path.parent.name.startswith(("eval", "untrained")):
            continue
        episodes = read_episodes(path)
        found = [e for e in episodes if e.id == wanted] or [e for e in episodes if e.id.endswith(wanted)]
        if found:
            root = found[0].id.split("~")[0]
            return [e for e in episodes if e.id.split("~")[0] == root]
    raise DataError(f"no episode {wanted!r} in {run}; ids read like train/12/mini-gsm/train/17 or eval/mini-gsm/test/3")


def _print(episode: Episode, console: Console) -> None:
    fork = episode.fork
    title = episode.id if fork is None else f"{episode.id}: at decision {fork.at} instead action {fork.action}"
    console.rule(Text(title), align="left")
    if fork is None:
        console.print(Panel(Text(plain(episode.task.question)), title="question"))
    decisions = {d.group: d for d in episode.decisions if d.action == 1}
    for skipped in (d for d in episode.decisions if d.action == 0):
        console.print(Text(f"{skipped.controller} skips in {skipped.state} (p(speak) {skipped.probs[1]:.2f})"))
    for turn in (t for t in episode.turns if t.sample == 0):
        decision = decisions.get(turn.group)
        chance = f", p(speak) {decision.probs[1]:.2f} in {decision.state}" if decision else ""
        siblings = sum(t.group == turn.group for t in episode.turns) - 1
        more = f", {siblings} more candidates" if siblings else ""
        console.print(
            Panel(Text(plain(turn.completion.text)), title=Text(f"{turn.agent}{chance}{more}"), title_align="left")
        )


def _print_values(method: Method, episode: Episode, forks: list[Episode], console: Console) -> None:
    if not any(t.sample for t in episode.turns):
        return
    credit = method.credit(episode, forks, {})
    for value in credit.values:
        console.print(
            Text(f"{value.controller} in {value.state}: skip {value.values[0]:+.2f}, speak {value.values[1]:+.2f}")
        )
    for sample in credit.samples:
        console.print(Text(f"{sample.agent}: advantage {sample.advantage:+.2f} on {len(sample.token_ids)} tokens"))


def plain(text: str) -> str:
    """Model text without control characters: no escape sequence reaches the terminal, no mark reorders a line."""
    kept = []
    for c in text:
        if c in "\n\t" or (
            c.isprintable() and c not in "\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
        ):
            kept.append(c)
        else:
            kept.append(f"\\u{ord(c):04x}")
    return "".join(kept)
