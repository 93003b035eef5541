"""The named benchmarks: counts, column maps, the order of options; and reasoning-gym."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import chisquare

from counterpoint.errors import ConfigError, DataError
from counterpoint.tasks.grading import grade, grade_reply
from counterpoint.tasks.registry import check_golds, load_tasks, set_names
from counterpoint.tasks.sets import SETS

from .shared_data import SHARED, needs_shared


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@needs_shared
@pytest.mark.parametrize(
    ("name", "folder", "split", "count"),
    [("gsm8k", "gsm8k", "train", 7473), ("gsm8k", "gsm8k", "test", 1319), ("math500", "math500", "test", 500)],
)
def test_local_copies_of_real_sets(name: str, folder: str, split: str, count: int) -> None:
    tasks = load_tasks({"source": name, "path": str(SHARED / "data" / folder)}, split)
    assert len({task.id for task in tasks}) == count
    kept, failed = check_golds(tasks)
    assert (len(kept), failed) == (count, [])
    assert "####" not in "".join(task.answer for task in tasks)


@needs_shared
def test_a_set_with_another_number_of_rows_is_refused() -> None:
    with pytest.raises(DataError, match=r"gsm8k, split test: expected 1319 rows, got 500"):
        load_tasks({"source": "gsm8k", "path": str(SHARED / "data" / "math500")}, "test")


def test_a_split_that_does_not_exist_is_refused() -> None:
    with pytest.raises(DataError, match="math500 has no split 'train', only test"):
        load_tasks("math500", "train")
    with pytest.raises(ConfigError, match="mini-gsm has the splits train and test, not 'dev'"):
        load_tasks("mini-gsm", "dev")


def gpqa(count: int) -> list[dict[str, Any]]:
    return [
        {"Question": f"Question {i}?", "Correct Answer": "yes", "Record ID": f"rec{i}"}
        | {f"Incorrect Answer {k}": f"no {k}" for k in (1, 2, 3)}
        for i in range(count)
    ]


def test_gpqa_options_are_shuffled_by_the_question_alone(tmp_path: Path) -> None:
    path = write(tmp_path / "gpqa.jsonl", gpqa(198))
    tasks = load_tasks({"source": "gpqa-diamond", "path": str(path)}, "test")
    assert tasks == load_tasks({"source": "gpqa-diamond", "path": str(path)}, "test")
    reversed_rows = write(tmp_path / "reversed.jsonl", gpqa(198)[::-1])
    again = load_tasks({"source": "gpqa-diamond", "path": str(reversed_rows)}, "test")
    assert set(again) == set(tasks)  # neither the place in the file nor the other questions matter
    for task in tasks:
        assert task.choices["ABCD".index(task.answer)] == "yes"
        assert sorted(task.choices) == ["no 1", "no 2", "no 3", "yes"]
    positions = Counter(task.answer for task in tasks)
    assert chisquare([positions[letter] for letter in "ABCD"]).pvalue > 0.05  # 198 in four places, 3 degrees of freedom
    assert len({task.choices for task in tasks}) == 24


EXAMPLES: dict[str, tuple[dict[str, Any], str]] = {
    "gsm8k": ({"question": "q", "answer": "Work #### 3\n#### 1,080"}, "1080"),
    "math500": ({"problem": "q", "answer": "\\frac{1}{2}", "unique_id": "test/1"}, "\\frac{1}{2}"),
    "gpqa-diamond": (gpqa(1)[0], ""),
    "aime24": ({"id": 1, "problem": "q", "solution": "s", "answer": "033"}, "033"),
    "aime25": ({"problem": "q", "answer": "70", "id": "0"}, "70"),
    "amc23": ({"id": 0, "question": "q", "answer": "27.0", "url": "u"}, "27.0"),
    "minerva": ({"question": "q", "answer": "4.5e33"}, "4.5e33"),
    "gaokao2023en": ({"question": "q", "answer": "$\\{1,2\\}$", "id": 3}, "$\\{1,2\\}$"),
    "logiqa": ({"context": "c", "query": "q", "options": ["w", "x", "y", "z"], "correct_option": 2}, "C"),
    "medqa": ({"question": "q", "answer": "x", "options": {"A": "w", "B": "x"}, "answer_idx": "B"}, "B"),
}


@pytest.mark.parametrize("name", SETS)
def test_the_column_map_of_each_set(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row, gold = EXAMPLES[name]
    monkeypatch.setitem(SETS, name, replace(SETS[name], counts={"test": 1}))
    (task,) = load_tasks({"source": name, "path": str(write(tmp_path / "test.jsonl", [row]))}, "test")
    assert task.id.startswith(f"{name}/test/")
    assert task.kind == SETS[name].kind
    assert task.answer == gold or name == "gpqa-diamond"
    assert check_golds([task]) == ([task], [])
    assert task.question == ("c\n\nq" if name == "logiqa" else "Question 0?" if name == "gpqa-diamond" else "q")


def test_counts_and_hub_names() -> None:
    assert (SETS["gsm8k"].counts, SETS["math500"].counts) == ({"train": 7473, "test": 1319}, {"test": 500})
    assert SETS["gpqa-diamond"].counts == {"test": 198}
    assert len(set_names()) == 13
    assert all(known.repo.count("/") == 1 for known in SETS.values())


@pytest.mark.parametrize("name", ["mini-gsm", "mini-math", "mini-choice"])
def test_bundled_sets(name: str) -> None:
    tasks = load_tasks({"source": name, "limit": 200}, "test")
    assert len(tasks) == 200
    assert check_golds(tasks)[1] == []


# ---- reasoning-gym -----------------------------------------------------------------------------------------------


def test_gym_tasks_are_drawn_again_and_scored_by_their_own_scorer() -> None:
    pytest.importorskip("reasoning_gym", reason="reasoning-gym is an extra")
    spec = {"source": "rg:chain_sum", "size": 5, "options": {"min_terms": 2, "max_terms": 3}}
    tasks = load_tasks(spec, "train")
    assert tasks == load_tasks(spec, "train")
    assert {task.question for task in tasks}.isdisjoint(task.question for task in load_tasks(spec, "test"))
    assert check_golds(tasks) == (list(tasks), [])
    task = tasks[0]
    assert grade_reply(task, f"Work.\nFinal answer: {task.answer}") == "right"
    assert grade(task, task.answer + "1") == "wrong"
    assert grade_reply(task, "no idea") == "unreadable"
    assert grade(replace(task, question="another one"), task.answer) == "error"  # its entry is not to be found again


def test_a_gym_set_with_a_scorer_of_its_own() -> None:
    pytest.importorskip("reasoning_gym", reason="reasoning-gym is an extra")
    tasks = load_tasks({"source": "rg:countdown", "size": 3}, "test")
    for task in tasks:
        assert grade(task, task.answer) == "right"
        assert grade(task, f"({task.answer})") == "right"  # another spelling of the expression; text would refuse it


def test_a_gym_set_that_does_not_exist_or_refuses_its_options() -> None:
    pytest.importorskip("reasoning_gym", reason="reasoning-gym is an extra")
    with pytest.raises(ConfigError, match="unknown reasoning-gym set 'nope'"):
        load_tasks("rg:nope", "test")
    with pytest.raises(ConfigError, match="generator refuses"):
        load_tasks({"source": "rg:chain_sum", "options": {"min_terms": 0}}, "test")
    with pytest.raises(ConfigError, match="generator refuses"):
        load_tasks({"source": "rg:chain_sum", "options": {"trems": 3}}, "test")


def test_an_unknown_scorer_is_an_error_of_the_data() -> None:
    (task,) = load_tasks({"source": "mini-gsm", "limit": 1}, "test")
    with pytest.raises(DataError, match="unknown scorer 'xy:z'"):
        grade(replace(task, scorer="xy:z"), "1")
