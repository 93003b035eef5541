"""The run directory: whole files or none, resumable, and refusing to mix two runs."""

import json

import pytest

from counterpoint.errors import DataError, ResumeError
from counterpoint.methods import make_method
from counterpoint.store import Store, read_episodes, whole_lines, write_text
from counterpoint.testing import play_all


@pytest.fixture
def episodes():
    return play_all(make_method({"name": "propose_review"}))[0]


def test_episodes_round_trip_bit_equal(tmp_path, episodes):
    store = Store(tmp_path)
    path = store.train_file(3)
    assert list(store.append_episodes(path, episodes)) == episodes
    assert read_episodes(path) == episodes
    assert path.name == "000003.jsonl"


def test_an_unfinished_last_line_is_left_out(tmp_path, episodes):
    store, path = Store(tmp_path), tmp_path / "e.jsonl"
    list(store.append_episodes(path, episodes))
    path.write_bytes(path.read_bytes()[:-7])
    assert read_episodes(path) == episodes[:-1]
    assert len(whole_lines(path)) == len(episodes) - 1


def test_a_malformed_line_names_file_and_line(tmp_path):
    path = tmp_path / "e.jsonl"
    path.write_text('{"id": 1}\n')
    with pytest.raises(DataError, match=r"e\.jsonl, line 1: not an episode"):
        read_episodes(path)


def test_rewind_forgets_later_steps(tmp_path):
    store = Store(tmp_path)
    for step in (1, 2, 3):
        store.append_line(store.metrics_file, {"step": step, "x": 0.1 * step})
        list(store.append_episodes(store.train_file(step), []))
    with store.metrics_file.open("a") as file:
        file.write('{"step": 4, "x"')  # killed here
    store.rewind(2)
    assert [json.loads(line)["step"] for line in store.metrics_file.read_text().splitlines()] == [1, 2]
    assert sorted(p.name for p in (tmp_path / "train").iterdir()) == ["000001.jsonl", "000002.jsonl"]


def test_a_directory_belongs_to_one_config(tmp_path):
    store = Store(tmp_path / "run")
    with pytest.raises(ResumeError, match="nothing to resume"):
        store.check("seed: 0\n", resume=True)
    store.check("seed: 0\n", resume=False)
    assert not store.root.exists()
    store.claim("seed: 0\nmethod: {rounds: 5}\n")
    with pytest.raises(ResumeError, match="already holds a run; add --resume"):
        store.check("seed: 0\n", resume=False)
    store.check("method: {rounds: 5}\nseed: 0\n", resume=True)
    with pytest.raises(ResumeError, match=r"method.rounds was 5, now 3, seed was 0, now 1"):
        store.check("seed: 1\nmethod: {rounds: 3}\n", resume=True)


def test_checkpoints_are_whole_or_absent(tmp_path):
    store = Store(tmp_path)
    assert store.newest_checkpoint() is None
    for step in (1, 2, 3):
        folder = store.start_checkpoint()
        (folder / "x").write_text(str(step))
        store.finish_checkpoint(folder, step, keep=2)
    half = store.start_checkpoint()
    (half / "x").write_text("half")
    step, path = store.newest_checkpoint()
    assert (step, (path / "x").read_text()) == (3, "3")
    assert sorted(p.name for p in store.checkpoints.iterdir()) == ["000002", "000003", "writing"]
    assert list(store.start_checkpoint().iterdir()) == []


def test_write_text_leaves_no_half_file(tmp_path):
    write_text(tmp_path / "a", "1")
    write_text(tmp_path / "a", "22")
    assert (tmp_path / "a").read_text() == "22"
    assert [p.name for p in tmp_path.iterdir()] == ["a"]
