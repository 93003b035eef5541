"""One command, one table: what is on disk is not run again, numbers are those of the runs."""

import json
import shutil
from itertools import takewhile

import numpy as np
import pytest

from counterpoint.compare import Cell, Comparison, _merged, collect, compare, load_comparison, table
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


def test_measures_are_taken_again_from_the_episodes(comparison, out, tmp_path):
    """A summary written before a measure existed gets it from the dialogues on disk; all others stay as they were."""
    old = tmp_path / "old"
    shutil.copytree(out, old)
    for path in old.rglob("summary.json"):
        summary = json.loads(path.read_text())
        for name in ("verdicts", "verdict_accuracy", "prompt_tokens_per_problem"):
            del summary["eval"]["mini-gsm"][name]
        del summary["cost"]
        path.write_text(json.dumps(summary))
    again, before = collect(comparison, old), collect(comparison, out)
    assert [c.measures for c in again] == [c.measures for c in before]
    written = table(comparison, again)
    assert written.split("### training")[0] == (out / "table.md").read_text().split("### training")[0]
    summary = json.loads(Store(out / "tracer" / "seed0").summary_file.read_text())
    assert summary["eval"]["mini-gsm"] == before[1].measures[0]
    assert before[1].spent[0] == summary["cost"]["train"]["tokens"]


def cell(entry, right, tokens, *, method="single", task_set="a", **measures):
    rows = np.array(right, dtype=np.float64)
    common = {"tokens_per_problem": tokens, "calls_per_problem": 1.0, "truncated": 0.0, "initial_accuracy": 0.5}
    common |= {"correction": None, "preservation": 1.0, "harm": 0.0, "changed": 0.0, "unreadable": 0.0}
    common |= {"prompt_tokens_per_problem": tokens - 10, "completion_tokens_per_problem": 10.0} | measures
    return Cell(entry, task_set, rows, (common,) * len(rows), method, ({"trajectory": 1000, "counterfactual": 500},))


def rows_under(text, heading):
    """The rows of the first table after a line, as lists of cells."""
    after = text[text.index(heading) :].splitlines()
    start = next(i for i, line in enumerate(after) if line.startswith("|---"))
    rows = takewhile(lambda line: line.startswith("|"), after[start + 1 :])
    return [[part.strip() for part in row.strip("|").split("|")] for row in rows]


ENTRIES = Comparison(seeds=1, reference="one", entries={"one": {}, "k3": {}, "k10": {}, "team": {}})
RIGHT = {
    "a": ([1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]),
    "b": ([0, 0], [1, 0], [1, 1], [0, 1]),
}
TEAMS = [
    ("one", "single", 50, {}),
    ("k3", "self_consistency", 150, {}),
    ("k10", "self_consistency", 500, {}),
    (
        "team",
        "propose_review",
        400,
        {"verdict_accuracy": 0.75, "changed": 0.2, "harm": 0.125, "calls_per_problem": 2.5},
    ),
]
CELLS = [
    cell(name, [right], tokens, method=method, task_set=task_set, **more)
    for task_set, rights in RIGHT.items()
    for (name, method, tokens, more), right in zip(TEAMS, rights, strict=True)
]


def test_what_was_paid_and_what_came_after_the_first_turn():
    text = table(ENTRIES, CELLS)
    details = rows_under(text, "| entry | prompt tokens")
    assert details[0] == ["one", "40", "10", "0.0", "-", "0.0", "0.0"]
    assert details[3] == ["team", "390", "10", "12.5", "75.0", "20.0", "0.0"]
    assert rows_under(text, "### training")[3] == ["team", "1,000", "0", "500", "1,500"]


def test_equal_budget_takes_the_nearest_self_consistency():
    rows = rows_under(table(ENTRIES, CELLS), "Equal budget")
    assert [row[:4] for row in rows] == [["one", "50", "k3", "150"], ["team", "400", "k10", "500"]]
    assert rows[0][4].startswith("-25.0 [")
    assert rows[1][4].startswith("+25.0 [")
    alone = [c for c in CELLS if c.method != "self_consistency"]
    assert "Equal budget" not in table(ENTRIES, alone)


def test_all_sets_count_the_same():
    text = table(ENTRIES, CELLS)
    rows = rows_under(text, "### all sets")
    assert [row[0] for row in rows] == ["one", "k3", "k10", "team"]
    assert rows[0][1].startswith("12.5 [")  # (1/4 + 0/2) / 2
    assert rows[3][1].startswith("75.0 [")  # (4/4 + 1/2) / 2
    assert rows[0][2] == ""
    assert rows[3][2].startswith("+62.5 [")
    assert (rows[0][3:], rows[3][3:]) == (["1.00", "50"], ["2.50", "400"])
    assert "### all sets" not in table(ENTRIES, [c for c in CELLS if c.task_set == "a"])


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
