"""One command, one table: what is on disk is not run again, numbers are those of the runs."""

import json
import shutil

import numpy as np
import pytest

from counterpoint.compare import Comparison, _merged, collect, compare, load_comparison, table
from counterpoint.errors import ConfigError
from counterpoint.progress import Progress
from counterpoint.settings import packaged_configs
from counterpoint.store import Store


@pytest.fixture(scope="module")
def comparison(micro):
    return Comparison(
        seeds=2,
        shared={
            "model": {"name": micro, "device": "cpu"},
            "tasks": {"eval": ["mini-gsm"]},
            "dialogues": 2,
            "steps": 1,
            "sampling": {"max_new_tokens": 8},
            "evaluation": {"limit": 5, "untrained": False, "also": "none"},
        },
        entries={
            "cot": {"steps": 0, "agents": 1, "method": {"name": "single"}},
            "tracer": {"method": {"name": "propose_review", "rounds": 3}},
        },
    )


@pytest.fixture(scope="module")
def out(comparison, tmp_path_factory):
    folder = tmp_path_factory.mktemp("compare")
    compare(comparison, folder, progress=Progress(quiet=True))
    return folder


def test_every_run_is_there_and_the_table_says_what_they_measured(comparison, out):
    cells = collect(comparison, out)
    assert [(c.entry, c.task_set, c.right.shape) for c in cells] == [
        ("cot", "mini-gsm", (2, 5)),
        ("tracer", "mini-gsm", (2, 5)),
    ]
    for cell in cells:
        for seed, row in enumerate(cell.right):
            summary = json.loads(Store(out / cell.entry / f"seed{seed}").summary_file.read_text())
            assert summary["eval"]["mini-gsm"]["accuracy"] == row.mean()
    text = (out / "table.md").read_text()
    assert text == table(comparison, cells)
    calls = cells[1].mean("calls_per_problem")
    assert f"| {calls:.2f} |" in text
    assert "| 1.00 |" in text


def test_runs_side_by_side_give_the_same_table(comparison, out, tmp_path):
    text = compare(comparison, tmp_path, progress=Progress(quiet=True), jobs=2)
    assert text == (out / "table.md").read_text()


def test_only_what_is_missing_is_run_again(comparison, out):
    files = {p: p.stat().st_mtime_ns for p in out.rglob("summary.json")}
    gone = out / "tracer" / "seed1"
    before = (gone / "summary.json").read_bytes()
    shutil.rmtree(gone)
    compare(comparison, out, progress=Progress(quiet=True))
    assert (gone / "summary.json").read_bytes() == before
    assert all(p.stat().st_mtime_ns == stamp for p, stamp in files.items() if gone not in p.parents)


@pytest.mark.parametrize("name", sorted(packaged_configs("comparisons")))
def test_packaged_comparisons_validate(name):
    found = load_comparison(name)
    assert len(found.entries) >= 4
    assert packaged_configs("comparisons")[name].read_text().startswith("# ")


def test_mistakes(tmp_path):
    path = tmp_path / "c.yaml"
    for text, message in [
        ("entries: {}", "at least one entry"),
        ("entrys: {}", "did you mean 'entries'"),
        ("entries: {a: {stepz: 1}}", "entry 'a': unknown setting 'stepz'; did you mean 'steps'"),
        ("reference: b\nentries: {a: {}}", "reference 'b' is not an entry: a"),
    ]:
        path.write_text(text)
        with pytest.raises(ConfigError, match=message):
            load_comparison(path)


def test_groups_merge_unless_they_name_another_thing():
    base = {"method": {"name": "x", "a": 1}, "steps": 3}
    assert _merged(base, {"method": {"b": 2}}) == {"method": {"name": "x", "a": 1, "b": 2}, "steps": 3}
    assert _merged(base, {"method": {"name": "y"}}) == {"method": {"name": "y"}, "steps": 3}
    assert np.all([base["method"]["a"] == 1])
