"""Rows from files and hubs, rows to tasks, and what a user is told when something is wrong."""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from counterpoint.errors import ConfigError, DataError, MissingExtra
from counterpoint.tasks.grade_file import grade_file, table
from counterpoint.tasks.registry import check_golds, load_tasks
from counterpoint.tasks.spec import read_spec

ROWS = [{"question": "2+2?", "answer": "4"}, {"question": "3+3?", "answer": "6"}]


def jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


# ---- files -------------------------------------------------------------------------------------------------------


def test_jsonl_by_scheme_path_and_folder_gives_the_same_tasks(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "test.jsonl", ROWS)
    by_scheme, by_path, by_folder = (
        load_tasks({"source": source, "name": "mine"}, "test") for source in (f"jsonl:{path}", str(path), str(tmp_path))
    )
    assert [(task.id, task.question, task.answer, task.kind) for task in by_scheme] == [
        ("mine/test/0", "2+2?", "4", "number"),
        ("mine/test/1", "3+3?", "6", "number"),
    ]
    assert by_scheme == by_path == by_folder


def test_a_byte_order_mark_blank_lines_and_ids_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('\ufeff{"question": "q", "answer": "1", "id": "x#1"}\n\n', encoding="utf-8")
    assert [task.id for task in load_tasks({"source": str(path), "name": "a"}, "test")] == ["a/test/x_1"]


def test_csv(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('question,answer,choices\n"which, then?",Paris,"[""Rome"", ""Paris""]"\n', encoding="utf-8")
    (task,) = load_tasks(str(path), "test")
    assert (task.question, task.answer, task.kind, task.choices) == ("which, then?", "B", "choice", ("Rome", "Paris"))
    path.write_text("question,answer\nq\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"a\.csv:2: another number of cells"):
        load_tasks(str(path), "test")


def test_parquet_and_both_arrow_formats(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is an extra")
    import pyarrow.parquet as parquet

    rows = pyarrow.Table.from_pylist(ROWS)
    parquet.write_table(rows, tmp_path / "a.parquet")
    for name, writer in (("stream.arrow", pyarrow.ipc.new_stream), ("file.arrow", pyarrow.ipc.new_file)):
        with writer(str(tmp_path / name), rows.schema) as sink:
            sink.write_table(rows)
    loaded = [
        load_tasks({"source": str(tmp_path / name), "name": "a"}, "test")
        for name in ("a.parquet", "stream.arrow", "file.arrow")
    ]
    assert [task.answer for task in loaded[0]] == ["4", "6"]
    assert loaded[0] == loaded[1] == loaded[2]
    for name in ("broken.parquet", "broken.arrow"):
        (tmp_path / name).write_bytes(b"not a table")
        with pytest.raises(DataError, match="broken"):
            load_tasks(str(tmp_path / name), "test")


def test_a_set_that_datasets_saved_to_disk(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="datasets is an extra")
    datasets.DatasetDict({"test": datasets.Dataset.from_list(ROWS)}).save_to_disk(str(tmp_path / "saved"))
    assert [task.answer for task in load_tasks(str(tmp_path / "saved"), "test")] == ["4", "6"]
    with pytest.raises(DataError, match="no file of split 'train'"):
        load_tasks(str(tmp_path / "saved"), "train")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"question": "q", "answer": "1"}\n{"question": ', r"a\.jsonl:2: not JSON: "),
        ('{"question": "q", "answer": "1"}\n[1]', r"a\.jsonl:2: expected a JSON object, got list"),
        ('{"question": "q", "answer": "1"}\n{"question": "q"}', r"a\.jsonl:2: column 'answer' is missing or empty"),
        ('{"question": " ", "answer": "1"}', r"a\.jsonl:1: the question is empty"),
        ('{"question": "q", "answer": " "}', r"a\.jsonl:1: the gold answer is empty"),
        ('{"question": "q", "answer": "1", "kind": "numbr"}', r"a\.jsonl:1: unknown kind 'numbr'; known: number, math"),
        ('{"q": "q", "answer": "1"}', r"a\.jsonl:1: no column for the question among q, answer; name it with columns"),
        (
            '{"question": "q", "answer": "x+1"}',
            r"a\.jsonl:1: the gold answer is not a plain number; say how to compare",
        ),
        ('{"question": "q", "answer": "1", "id": 7}\n{"question": "r", "answer": "1", "id": 7}', r":2: id .* twice"),
        ('{"question": "q", "answer": "E", "choices": ["a", "b"]}', r":1: the gold 'E' is no letter, index or text"),
        ('{"question": "q", "answer": "A", "choices": ["a"]}', r":1: expected 2 to 10 options"),
        ("", r"a\.jsonl: no rows; a task set needs at least one"),
        ("[" * 100_000, r"a\.jsonl:1: not JSON"),
    ],
)
def test_a_bad_file_is_named_with_its_line_and_reason(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        load_tasks(f"jsonl:{path}", "test")


def test_a_missing_file_and_a_binary_one(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere\.jsonl: no such file"):
        load_tasks(f"jsonl:{tmp_path}/nowhere.jsonl", "test")
    (tmp_path / "a.jsonl").write_bytes(b'{"question": "\xff"}')
    with pytest.raises(DataError, match=r"a\.jsonl: not UTF-8 at byte 14"):
        load_tasks(f"jsonl:{tmp_path}/a.jsonl", "test")


# ---- columns -----------------------------------------------------------------------------------------------------


def test_a_column_map_with_context_and_gold_pattern(tmp_path: Path) -> None:
    rows = [{"Q": "How many?", "A": "so 7.\n=> 1,200", "P": "A passage.", "N": "n1"}]
    spec = {
        "source": f"jsonl:{jsonl(tmp_path / 'a.jsonl', rows)}",
        "name": "a",
        "columns": {"question": "Q", "answer": "A", "context": "P", "id": "N"},
        "gold_pattern": r"=> (.+)",
        "kind": "number",
    }
    (task,) = load_tasks(spec, "test")
    assert (task.id, task.question, task.answer) == ("a/test/n1", "A passage.\n\nHow many?", "1200")
    with pytest.raises(DataError, match=r"a\.jsonl:1: gold_pattern '#.*' does not occur"):
        load_tasks({**spec, "gold_pattern": "#(.+)"}, "test")


@pytest.mark.parametrize(
    ("options", "answer"),
    [
        (["x", "y", "z"], "B"),
        (["x", "y", "z"], "b"),
        (["x", "y", "z"], 1),
        (["x", "y", "z"], "y"),
        ({"A": "x", "B": "y", "C": "z"}, "B"),
        ({"C": "z", "B": "y", "A": "x", "D": None}, "B"),
        ({"label": ["1", "2", "3"], "text": ["x", "y", "z"]}, "2"),
        (["3", "1", "2"], "1"),
    ],
)
def test_golds_of_choices_may_be_letters_indices_or_texts(tmp_path: Path, options: Any, answer: Any) -> None:
    path = jsonl(tmp_path / "a.jsonl", [{"question": "q", "answer": answer, "options": options}])
    (task,) = load_tasks(str(path), "test")
    assert (task.kind, task.answer) == ("choice", "B")
    assert task.choices in (("x", "y", "z"), ("3", "1", "2"))


def test_limit_and_mixed_kinds(tmp_path: Path) -> None:
    rows = [{"question": "q", "answer": "1", "kind": "number"}, {"question": "r", "answer": "x", "kind": "math"}]
    path = jsonl(tmp_path / "a.jsonl", rows)
    assert [task.kind for task in load_tasks(str(path), "test")] == ["number", "math"]
    assert [task.kind for task in load_tasks({"source": str(path), "limit": 1}, "test")] == ["number"]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("gsm8", "unknown task set 'gsm8'; did you mean 'gsm8k'"),
        ("https://example.org", "unknown task set"),
        ({"source": "gsm8k", "limt": 3}, "unknown setting 'limt'; did you mean 'limit'"),
        ({"source": "gsm8k", "kind": "numeric"}, "kind"),
        ({"split": "test"}, "source"),
    ],
)
def test_a_bad_spec_is_refused_with_a_hint(spec: str | dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_tasks(spec, "test")


def test_labels_are_safe_file_names() -> None:
    assert read_spec("hf:owner/name::main").label == "hf-owner-name-main"
    assert read_spec({"source": "jsonl:../x/y.jsonl", "name": "mine"}).label == "mine"


# ---- hubs, by small fakes ----------------------------------------------------------------------------------------


class HubError(Exception):
    """Stands for datasets.exceptions.DatasetsError."""


def fake_datasets(rows: list[dict[str, Any]] | Exception, calls: list[tuple[Any, ...]]) -> types.ModuleType:
    """A module with the two names of `datasets` that are used."""

    def load_dataset(repo: str, config: str | None, *, split: str, revision: str | None) -> list[dict[str, Any]]:
        calls.append((repo, config, split, revision))
        if isinstance(rows, Exception):
            raise rows
        return rows

    module = types.ModuleType("datasets")
    module.load_dataset = load_dataset  # type: ignore[attr-defined]
    module.exceptions = types.SimpleNamespace(DatasetsError=HubError)  # type: ignore[attr-defined]
    return module


def test_any_hub_set_by_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Any, ...]] = []
    monkeypatch.setitem(sys.modules, "datasets", fake_datasets([{"problem": "q", "gold": "3"}], calls))
    (task,) = load_tasks("hf:owner/name::easy", "validation")
    assert (task.id, task.question, task.answer) == ("hf-owner-name-easy/validation/0", "q", "3")
    load_tasks({"source": "hf:owner/name", "split": "train"}, "validation")
    assert calls == [("owner/name", "easy", "validation", None), ("owner/name", None, "train", None)]


@pytest.mark.parametrize("error", [HubError("it is gated\nlong"), ConnectionError("offline"), ValueError("bad config")])
def test_a_gated_or_missing_set_names_set_page_and_token(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    monkeypatch.setitem(sys.modules, "datasets", fake_datasets(error, []))
    with pytest.raises(DataError) as caught:
        load_tasks("gpqa-diamond", "test")
    for part in (
        "gpqa-diamond",
        "https://huggingface.co/datasets/Idavidrein/gpqa",
        "HF_TOKEN",
        str(error).split("\n")[0],
    ):
        assert part in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_empty_hub_set_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", fake_datasets([], []))
    with pytest.raises(DataError, match="no rows"):
        load_tasks("hf:owner/name", "test")


def fake_modelscope(answers: Mapping[str, list[dict[str, Any]]]) -> types.ModuleType:
    class MsDataset:
        @staticmethod
        def load(repo: str, *, split: str, subset_name: str = "default") -> Iterator[dict[str, Any]]:
            if repo not in answers:
                raise ValueError(f"{repo} does not exist")
            return iter([{**row, "id": f"{subset_name}-{split}"} for row in answers[repo]])

    module = types.ModuleType("modelscope.msdatasets")
    module.MsDataset = MsDataset  # type: ignore[attr-defined]
    return module


def test_modelscope(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "modelscope", types.ModuleType("modelscope"))
    monkeypatch.setitem(sys.modules, "modelscope.msdatasets", fake_modelscope({"owner/name": ROWS[:1]}))
    (task,) = load_tasks("ms:owner/name::hard", "test")
    assert (task.id, task.answer) == ("ms-owner-name-hard/test/hard-test", "4")
    with pytest.raises(DataError, match=r"https://modelscope.cn/datasets/owner/other and set MODELSCOPE_API_TOKEN"):
        load_tasks("ms:owner/other", "test")


@pytest.mark.parametrize(
    ("module", "spec", "command"),
    [
        ("datasets", "gsm8k", 'pip install "counterpoint[hub]"'),
        ("modelscope", "ms:owner/name", 'pip install "counterpoint[modelscope]"'),
        ("pyarrow", "parquet:a.parquet", 'pip install "counterpoint[hub]"'),
    ],
)
def test_a_missing_extra_names_the_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, module: str, spec: str, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    for name in [name for name in sys.modules if name.split(".")[0] == module]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra) as caught:
        load_tasks(spec, "test")
    assert command in str(caught.value)


# ---- golds and graded files --------------------------------------------------------------------------------------


def test_golds_that_cannot_be_stated_are_told_apart(tmp_path: Path) -> None:
    rows = [
        {"question": "a", "answer": "\\frac{1}{2}", "kind": "math"},
        {"question": "b", "answer": "\\frac{1}{2", "kind": "math"},
        {"question": "c", "answer": "5 or 6", "kind": "number"},
        {"question": "d", "answer": "5", "kind": "number"},
        {"question": "e", "answer": "Paris", "kind": "text"},
    ]
    kept, failed = check_golds(load_tasks(str(jsonl(tmp_path / "a.jsonl", rows)), "test"))
    assert [task.question for task in kept] == ["a", "d", "e"]
    assert [task.question for task in failed] == ["b", "c"]


def test_a_file_of_replies_is_graded(tmp_path: Path) -> None:
    path = jsonl(
        tmp_path / "replies.jsonl",
        [
            {"reply": "Final answer: 4", "gold": "4", "kind": "number", "note": "kept"},
            {"reply": "Final answer: 5", "gold": 4, "kind": "number"},
            {"reply": "so it is 4", "gold": "4", "kind": "number"},
            {"reply": "\\boxed{1+x}", "gold": "x+1", "kind": "math"},
        ],
    )
    counts = grade_file(path)
    assert counts.by_kind == {"number": {"right": 1, "wrong": 1, "unreadable": 1}, "math": {"right": 1}}
    graded = [json.loads(line) for line in (tmp_path / "replies.graded.jsonl").read_text().splitlines()]
    assert [row["outcome"] for row in graded] == ["right", "wrong", "unreadable", "right"]
    assert graded[0] == {"reply": "Final answer: 4", "gold": "4", "kind": "number", "note": "kept"} | {
        "answer": "4",
        "outcome": "right",
    }
    flexible = grade_file(path, out=tmp_path / "flexible.jsonl", mode="flexible")
    assert flexible.by_kind["number"] == {"right": 2, "wrong": 1}
    shown = table(counts)
    assert [column.header for column in shown.columns] == [
        "kind",
        "replies",
        "right",
        "wrong",
        "unreadable",
        "error",
        "right %",
    ]
    assert list(shown.columns[1]._cells) == ["1", "3", "4"]


def test_a_file_of_replies_with_a_fault_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", [{"reply": "x", "gold": "1", "kind": "number"}, {"reply": "x", "gold": "1"}])
    with pytest.raises(DataError, match=r"a\.jsonl:2: column 'kind' is missing"):
        grade_file(path)
    assert not (tmp_path / "a.graded.jsonl").exists()
    with pytest.raises(DataError, match="cannot be read: No such file"):
        grade_file(tmp_path / "b.jsonl")
    with pytest.raises(DataError, match="would overwrite"):
        grade_file(jsonl(path, [{"reply": "x", "gold": "1", "kind": "number"}]), out=path)
