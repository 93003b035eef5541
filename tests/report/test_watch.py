"""Following a run in the terminal."""

import io

from rich.console import Console

from counterpoint.watch import sparkline, watch
from tests.report.build import drop_summary


def seen(root, **arguments):
    console = Console(width=140, record=True, file=io.StringIO())
    watch(root, console=console, **arguments)
    return console.export_text()


def test_a_finished_run(runs):
    text = seen(runs / "immediate")
    for word in ("finished, 6 steps", "accuracy", "reward/proposer", "agent0/review", "mini-math", "trained, greedy"):
        assert word in text


def test_a_run_in_progress(copy):
    root = copy("outcome")
    drop_summary(root)
    text = seen(root, once=True)
    assert "unfinished: 5 of 6 steps" in text
    assert "last written" in text
    assert "step 6: " in text
    assert " of 12 dialogues played" in text


def test_following_ends_with_the_run(copy):
    root = copy("immediate")
    summary = (root / "summary.json").read_text()
    (root / "summary.json").unlink()
    slept = []

    def sleep(seconds):
        slept.append(seconds)
        if len(slept) == 3:
            (root / "summary.json").write_text(summary)

    text = seen(root, sleep=sleep, every=0.5)
    assert slept == [0.5] * 3
    assert "finished" in text


def test_sparkline():
    assert sparkline([0, 1, 0.5, float("nan")]) == "▁█▅"
    assert sparkline([2, 2]) == "▁▁"
    assert sparkline([]) == ""
