"""Any run can be reported: unfinished, killed, from elsewhere, partly lost; what is no run is refused."""

import shutil

import pytest

from counterpoint.errors import DataError
from counterpoint.report import write_report
from counterpoint.report.runs import flat, open_run, open_runs
from tests.report.build import drop_summary, strip_machine


def page(root, tmp_path):
    return write_report([root], tmp_path / "out.html").read_text(encoding="utf-8")


def test_a_killed_run(copy, tmp_path):
    root = copy("immediate")
    drop_summary(root)
    text = page(root, tmp_path)
    assert "unfinished: 5 of 6 steps" in text
    assert "its last line is unfinished and is left out" in text
    assert "step 6 is not whole" in text


def test_a_run_that_has_only_its_config(copy, tmp_path):
    root = copy("immediate")
    for path in sorted(root.rglob("*"), reverse=True):
        if path.name != "config.yaml":
            path.rmdir() if path.is_dir() else path.unlink()
    assert "unfinished: 0 of 6 steps" in page(root, tmp_path)


def test_a_run_from_another_machine(copy, tmp_path):
    root = copy("immediate")
    strip_machine(root)
    assert "/no/such/place/model" in page(root, tmp_path)


def test_a_run_whose_hooks_are_not_here(copy, tmp_path):
    root = copy("immediate")
    config = root / "config.yaml"
    config.write_text(config.read_text().replace("counterpoint.tasks.grading:extract", "./gone.py:extract"))
    text = page(root, tmp_path)
    assert "credit and rewards are not shown" in text
    assert "gone.py" in text


def test_lost_steps_are_said_and_not_credited(copy):
    root = copy("immediate")
    (root / "train" / "000002.jsonl").unlink()
    run = open_run(root)
    write_report([root])
    from counterpoint.report.replay import Replay

    replay = Replay(run)
    assert [bool(s.controllers) for s in replay.steps()] == [True, False, False, False, False]
    assert run.notes == ["steps 2 to 2 have no episodes: later ones are not credited"]
    assert replay.agrees() is None


def test_controllers_are_read_from_the_metrics_where_episodes_are_lost(copy):
    from counterpoint.report.collect import collect
    from counterpoint.report.pack import Packer

    root = copy("immediate")
    [whole] = collect([open_run(root)], Packer(), limit=1000)
    shutil.rmtree(root / "train")
    [lost] = collect([open_run(root)], Packer(), limit=1000)
    assert list(lost.controllers) == list(whole.controllers) == [1, 2, 3, 4, 5, 6]
    for step, names in whole.controllers.items():
        for name, states in names.items():
            for state, report in states.items():
                again = lost.controllers[step][name][state]
                assert again["visits"] == report["visits"]
                assert again["strategy"] == pytest.approx(report["strategy"])


def test_spoiled_lines_are_counted(copy, tmp_path):
    root = copy("immediate")
    with (root / "eval" / "mini-gsm.jsonl").open("a") as file:
        file.write('{"id": 3}\nnot json\n')
    assert "eval/mini-gsm.jsonl: 2 lines are not episodes and are left out" in page(root, tmp_path)


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"it has no config\.yaml"):
        write_report([tmp_path])
    (tmp_path / "config.yaml").write_text("steps: 3\n")
    with pytest.raises(DataError, match="not the resolved config of a run"):
        write_report([tmp_path])
    with pytest.raises(DataError, match="at least one"):
        write_report([])


def test_labels_tell_runs_apart(copy, runs):
    first = copy("immediate")
    labels = [run.label for run in open_runs([first, runs / "immediate", runs / "voters"])]
    assert labels == [f"{first.parent.name}/immediate", f"{runs.name}/immediate", "voters"]
    with pytest.raises(DataError, match="named twice"):
        open_runs([first, first])


def test_a_folder_of_runs_stands_for_them(runs):
    assert [run.label for run in open_runs([runs])] == ["hostile", "immediate", "outcome", "thinkers", "voters"]


def test_flat():
    data = {"a": {"b": 1, "c": []}, "d": [{"e": 2}, {"e": 3}], "f": ["x", "y"]}
    assert flat(data) == {"a.b": 1, "a.c": [], "d.0.e": 2, "d.1.e": 3, "f": ["x", "y"]}
