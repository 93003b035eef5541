"""The command line as a person meets it: exit codes, one line for a mistake, nothing lost."""

import json
import subprocess
import sys

import pytest

from counterpoint import cli
from counterpoint.store import read_episodes

SMALL = [
    "steps=1", "dialogues=3", "tasks.eval=[mini-gsm]", "evaluation.limit=4", "sampling.max_new_tokens=12", "model.device=cpu",
]  # fmt: skip


def counterpoint(monkeypatch, capsys, *words):
    """(exit code, stdout, stderr) of one command."""
    monkeypatch.setattr(sys, "argv", ["counterpoint", *map(str, words)])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    out, err = capsys.readouterr()
    return stop.value.code or 0, out, err


@pytest.fixture
def command(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    return lambda *words: counterpoint(monkeypatch, capsys, *words)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "nowhere.yaml"], "no config file 'nowhere.yaml'"),
        (["train", "stepz=1"], "did you mean 'steps'?"),
        (["train", "method=propose_reviev"], "did you mean 'propose_review'?"),
        (["train", "steps=1", "oops"], "'oops' is neither a config (which comes first) nor key=value"),
        (["train", "tasks.train=mini-gms"], "mini-gsm"),
        (["train", "tasks.train=jsonl:nowhere.jsonl"], "nowhere.jsonl"),
        (["train", "model=no/such/folder.gguf"], "no GGUF file at no/such/folder.gguf"),
        (["train", "--resume"], "nothing to resume"),
        (["train", "dialogues=100000"], "a step needs dialogues=100000"),
        (["evaluate", "nowhere"], "no config file 'nowhere'"),
        (["show", ".", "x"], "no run in ."),
        (["list", "cats"], "cannot list 'cats'"),
        (["grade", "nowhere.jsonl"], "nowhere.jsonl"),
        (["estimate", "model=nobody/none"], "pass --parameters"),
        (["estimate", "--flops", "1e9", "--from", "run"], "by --flops or by --from, not by both"),
        (["estimate", "--flops", "0"], "--flops is above 0, got 0"),
        (["estimate", "--from", "nowhere"], "nowhere tells no rate"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(command, words, message):
    code, out, err = command(*words)
    assert code == 2
    assert message in err
    assert len(err.strip().splitlines()) == 1
    assert "Traceback" not in err + out


def test_malformed_and_empty_data(command, tmp_path):
    (tmp_path / "bad.jsonl").write_text('{"question": "1+1?", "answer": "2"}\n{"question": \n')
    code, _, err = command("train", "tasks.train=jsonl:bad.jsonl", *SMALL)
    assert code == 2
    assert "bad.jsonl" in err
    assert "2" in err
    (tmp_path / "empty.jsonl").write_text("")
    code, _, err = command("train", "tasks.train=jsonl:empty.jsonl", *SMALL)
    assert code == 2
    assert "empty.jsonl" in err


def test_train_evaluate_show_end_to_end(command, micro, tmp_path):
    code, out, err = command("train", f"model.name={micro}", *SMALL, "--out", "run")
    assert code == 0, err
    assert "untrained" in out
    assert "mini-gsm" in out
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert set(summary["eval"]["mini-gsm"]) >= {
        "n", "accuracy", "ci95", "initial_accuracy", "tokens_per_problem", "calls_per_problem", "correction",
        "preservation", "harm", "unreadable", "truncated",
    }  # fmt: skip
    assert summary["eval"]["mini-gsm"]["n"] == summary["untrained"]["mini-gsm"]["n"] == 4
    for report in summary["controllers"].values():
        assert all({"visits", "average_strategy", "average_regret", "bound"} <= set(s) for s in report.values())
    episodes = read_episodes(tmp_path / "run" / "train" / "000001.jsonl")
    calls = summary["cost"]["train"]["calls"]
    assert sum(calls.values()) == sum(len(e.turns) for e in episodes)
    assert calls["candidates"] == sum(t.sample > 0 for e in episodes if e.fork is None for t in e.turns)

    code, out, err = command("show", "run", next(e.id for e in episodes if e.fork is None))
    assert code == 0, err
    assert "gold" in out
    code, out, err = command("show", "run", "no-such-episode")
    assert code == 2
    assert "no episode 'no-such-episode'" in err

    code, out, err = command("evaluate", "run", "evaluation.limit=3", "tasks.eval=[mini-choice]")
    assert code == 0, err
    assert "mini-choice" in out

    code, _, err = command("train", f"model.name={micro}", *SMALL, "--out", "run")
    assert code == 2
    assert "already holds a run" in err
    code, _, err = command("train", f"model.name={micro}", *SMALL, "seed=1", "--out", "run", "--resume")
    assert code == 2
    assert "seed was 0, now 1" in err


def test_prompt_longer_than_the_context_loses_nothing(command, micro, tmp_path):
    (tmp_path / "long.jsonl").write_text(json.dumps({"question": "word " * 3000, "answer": "1"}) + "\n")
    code, _, err = command(
        "train", f"model.name={micro}", *SMALL, "dialogues=1", "tasks.train=jsonl:long.jsonl", "--out", "r"
    )
    assert code == 2
    assert "do not fit the context" in err
    assert (tmp_path / "r" / "untrained" / "mini-gsm.jsonl").exists()


@pytest.mark.parametrize("config", ["tracer-qwen2.5-7b", "tiny", "smollm2-gsm8k"])
def test_dry_run_loads_no_model_and_no_data(command, config):
    code, out, err = command("train", config, "--dry-run")
    assert code == 0, err
    assert "dry run:" in out
    assert "method:" in out


def test_estimate_says_what_where_and_from_what(command):
    code, out, err = command("estimate", "steps=2", "model.device=cpu", "--flops", "1e9", "--devices", "2")
    assert code == 0, err
    for part in ("training: learning", "eval-greedy", "new tokens", "918,656", "2 devices", "1e+09 FLOP/s"):
        assert part in out
    code, out, err = command("estimate", "model=nobody/none-7B", "--flops", "2e14")
    assert code == 0, err
    assert "size taken from the name" in out
    assert "unknown" in out
    code, out, err = command("estimate", "steps=1", "model.device=cpu")
    assert code == 0, err
    assert "0.5 of a product measured here on cpu" in out


def test_a_dry_comparison_prints_one_line_an_entry(command):
    code, out, err = command("compare", "paper-table", "--dry-run")
    assert code == 0, err
    lines = out.strip().splitlines()
    assert len(lines) == 12
    assert all("dry run: at most" in line and "GPU hours" in line for line in lines)


@pytest.mark.parametrize("what", ["methods", "tasks", "engines", "controllers", "configs"])
def test_lists(command, what):
    code, out, _ = command("list", what)
    assert code == 0
    known = {"methods": "propose_review", "tasks": "gsm8k", "engines": "hf", "controllers": "regret", "configs": "tiny"}
    assert known[what] in out


def test_help_needs_no_torch():
    code = "import sys; sys.argv = ['counterpoint', '--help']\nfrom counterpoint import cli\n"
    code += "try: cli.main()\nexcept SystemExit: print('torch' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip().endswith("False")


def test_flexible_extraction_is_reported_apart(command, micro, tmp_path):
    code, _, err = command(
        "evaluate", "tiny", f"model.name={micro}", *SMALL, "evaluation.extraction=flexible", "--out", "flexible"
    )
    assert code == 0, err
    measures = json.loads((tmp_path / "flexible" / "summary.json").read_text())["eval"]["mini-gsm"]
    assert measures["flexible_accuracy"] >= measures["accuracy"]
