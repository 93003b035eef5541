"""Dialogues in the terminal."""

import io

import pytest
from rich.console import Console

from counterpoint.errors import DataError
from counterpoint.report.runs import open_run
from counterpoint.show import plain, show_episode, show_worst


def printed(function, *arguments):
    console = Console(width=160, record=True, force_terminal=True, color_system="truecolor", file=io.StringIO())
    function(*arguments, console=console)
    return console.export_text()


def test_a_training_dialogue_with_credit_and_counterfactuals(runs):
    run = open_run(runs / "outcome")
    episode = next(e for e in run.episodes(run.train_files()[1][1]) if len(e.decisions) > 2)
    text = printed(show_episode, runs / "outcome", episode.id.removeprefix("train/"))
    for word in (
        episode.id,
        "question",
        "p(speak)",
        "worth silent",
        "reward",
        "advantage",
        "had it been:",
        "gold",
        "candidate:",
    ):
        assert word in text


def test_a_method_with_a_history_is_credited_as_in_training(runs):
    run = open_run(runs / "thinkers")
    episode = next(e for e in run.episodes(run.train_files()[-1][1]) if e.fork is None)
    text = printed(show_episode, runs / "thinkers", episode.id)
    assert "without agent0/thinker" in text


def test_an_episode_that_is_not_there(runs):
    with pytest.raises(DataError, match="no episode 'eval/nowhere/3'"):
        show_episode(runs / "immediate", "eval/nowhere/3", console=Console())
    with pytest.raises(DataError, match="no run in"):
        show_episode(runs, "eval/nowhere/3", console=Console())


@pytest.mark.parametrize("kind", ["harmed", "wrong"])
def test_worst(runs, kind):
    text = printed(show_worst, runs / "immediate", kind)
    assert f" {kind}" in text.splitlines()[0]
    last = text.strip().splitlines()[-1]
    assert last.startswith("gold ")
    assert last.endswith("harmed") or kind == "wrong"


def test_worst_of_a_run_without_any_and_of_an_unknown_kind(runs):
    assert "no dialogue of" in printed(show_worst, runs / "immediate", "truncated")
    with pytest.raises(DataError, match="choose harmed, wrong, truncated"):
        show_worst(runs / "immediate", "ugly", console=Console())


def test_worst_while_training_looks_at_the_newest_step(copy):
    root = copy("immediate")
    for path in [*root.glob("eval*/*.jsonl"), root / "summary.json"]:
        path.unlink()
    assert "train/6/" in printed(show_worst, root, "wrong")


def test_hostile_text_reaches_no_terminal(runs):
    run = open_run(runs / "hostile")
    for episode in list(run.episodes(run.phases()["eval"]["mini-gsm"]))[:12]:
        text = printed(show_episode, runs / "hostile", episode.id)
        assert not {"\x1b", "\u202e", "\u2066", "\x00"} & set(text)
    assert plain("a\x1b[31m\u202eb\n") == "a\\u001b[31m\\u202eb\n"
