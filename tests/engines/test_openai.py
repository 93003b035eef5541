"""The openai engine against servers on loopback: what is answered, what is not, and that the two are never mixed up."""

import json
import sys
import time

import pytest

from counterpoint.cli import main
from counterpoint.config import load_config
from counterpoint.engines import make_engine_settings
from counterpoint.engines.base import Roster
from counterpoint.errors import ConfigError, EngineError, MissingExtra
from counterpoint.lora import LoraSettings
from counterpoint.models import ModelSettings
from counterpoint.records import NO_ID, Message, Request, Sampling
from counterpoint.rng import fold
from counterpoint.store import read_episodes
from counterpoint.testing import check_engine
from counterpoint.train import evaluate_only, evaluation_config, train
from tests.engines.servers import drip, first, good, half, hang, reply, reset, running, says, status

pytest.importorskip("httpx2", reason='httpx2 is not installed: pip install "counterpoint[serve]"')

NAMES = ["a/x", "b/x"]
KEY = "sk-very-secret-0123456789"
SAMPLING = Sampling(max_new_tokens=12)
QUICK = {"name": "openai", "backoff": 0.01, "retries": 2, "deadline": 5.0}


def engine_of(url, **settings):
    roster = Roster({name: ModelSettings(name="small") for name in NAMES}, LoraSettings(), 0)
    return make_engine_settings({**QUICK, "base_url": url, **settings}).open(roster, {})


def ask(engine, n=1, text="3 + 4 =", seed=0):
    [group] = engine.generate(
        [Request("a/x", (Message("system", "Solve."), Message("user", text)), "t", n)], seeds=[seed], sampling=SAMPLING
    )
    return group


def test_contract():
    with running(good) as server:
        check_engine(engine_of(server.url, logprobs=True), NAMES)


def test_what_is_sent():
    with running(good) as server:
        engine = engine_of(server.url, served={"b/x": "large"})
        asked = [Request(a, (Message("system", "Solve."), Message("user", "3 + 4")), "t", 2) for a in NAMES]
        sampling = Sampling(0.7, 12, 0.9)
        replies = engine.generate(asked, seeds=[5, 6], sampling=sampling)
    by_seed = {body["seed"]: body for body in server.bodies}
    assert sorted(by_seed) == sorted(fold(s, j) >> 32 for s in (5, 6) for j in (0, 1))
    assert by_seed[fold(6, 1) >> 32] == {
        "model": "large", "messages": [{"role": "system", "content": "Solve."}, {"role": "user", "content": "3 + 4"}],
        "temperature": 0.7, "top_p": 0.9, "seed": fold(6, 1) >> 32, "max_tokens": 12,
    }  # fmt: skip
    assert by_seed[fold(5, 0) >> 32]["model"] == "small"
    assert not any("authorization" in headers for headers in server.headers)
    assert all(c.logprobs == () and c.finish == "stop" for group in replies for c in group)


def test_counts_come_from_the_server_and_ids_say_that_they_are_none():
    with running(lambda h, b: h.send(200, reply(b, "one two", finish_reason="length"))) as server:
        [c] = ask(engine_of(server.url, limit_name="max_completion_tokens"))
    assert (c.prompt_ids, c.token_ids, c.finish) == ((NO_ID,) * 11, (NO_ID,) * 3, "length")
    assert server.bodies[0]["max_completion_tokens"] == 12


def test_no_more_requests_at_a_time_than_allowed():
    def slow(handler, body):
        time.sleep(0.02)
        good(handler, body)

    with running(slow) as server:
        assert len(ask(engine_of(server.url, concurrency=3), n=12)) == 12
    assert 1 < server.most_open <= 3


PASSING = {
    "reset": reset,
    "half": half,
    "not json": says(b"<html>busy</html>"),
    "deep json": says(b"[" * 100_000),
    "500": status(500, {"error": "oops"}),
    "503": status(503),
    "429": status(429, b"", Retry_After="0"),
    "no choices": says({"usage": {"prompt_tokens": 1, "completion_tokens": 1}}),
    "no usage": says({"choices": [{"message": {"content": "7"}, "finish_reason": "stop"}]}),
    "a list": says([1]),
    "null": says(None),
    "endless count": lambda h, b: h.send(
        200, reply(b) | {"usage": {"prompt_tokens": float("inf"), "completion_tokens": 1}}
    ),
    "text is a number": lambda h, b: h.send(200, reply(b, message={"content": 7})),
    "logprob is nan": lambda h, b: h.send(200, reply(b, logprobs={"content": [{"logprob": float("nan")}]})),
}


@pytest.mark.parametrize("act", PASSING.values(), ids=PASSING.keys())
def test_what_may_pass_is_asked_again(act):
    with running(first(2, act)) as server:
        [c] = ask(engine_of(server.url))
    assert c.finish == "stop"
    assert "Final answer" in c.text
    assert len(server.bodies) == 3


@pytest.mark.parametrize("act", PASSING.values(), ids=PASSING.keys())
def test_what_does_not_pass_ends_as_an_error_with_its_reason(act):
    with running(act) as server:
        [c] = ask(engine_of(server.url))
    assert (c.finish, c.token_ids, c.logprobs) == ("error", (), ())
    assert c.text.endswith("attempt 3")
    assert len(server.bodies) == 3


@pytest.mark.parametrize("act", [hang, drip], ids=["hang", "drip"])
def test_an_attempt_has_a_deadline_for_the_whole_reply(act):
    with running(first(1, act)) as server:
        start = time.monotonic()
        [c] = ask(engine_of(server.url, deadline=0.4))
        assert time.monotonic() - start < 3
    assert c.finish == "stop"
    with running(act) as server:
        [c] = ask(engine_of(server.url, deadline=0.2, retries=1))
    assert c.text == "no reply within 0.2 s, attempt 2"


@pytest.mark.parametrize("code", [301, 400, 401, 404, 422])
def test_what_asking_again_cannot_help_is_asked_once(code):
    with running(status(code, {"error": {"message": "no such model"}}, location="http://127.0.0.1:1/")) as server:
        [c] = ask(engine_of(server.url))
    assert c.text.startswith(f"HTTP {code} ")
    assert "no such model" in c.text
    assert len(server.bodies) == 1


def test_a_filtered_reply_is_no_answer():
    with running(lambda h, b: h.send(200, reply(b, "", finish_reason="content_filter"))) as server:
        [c] = ask(engine_of(server.url))
    assert (c.finish, c.text) == ("error", "finish_reason 'content_filter', attempt 1")


def test_retry_after_is_honoured_up_to_the_longest_wait():
    with running(first(1, status(429, b"", Retry_After="0.3"))) as server:
        start = time.monotonic()
        [c] = ask(engine_of(server.url))
        assert time.monotonic() - start >= 0.3
    assert c.finish == "stop"
    with running(status(429, b"", Retry_After="86400")) as server:
        [c] = ask(engine_of(server.url))
    assert c.finish == "error"
    assert len(server.bodies) == 1


def test_pauses_double_and_differ_by_seed_but_not_by_run():
    with running(good) as server:
        engine = engine_of(server.url, backoff=1.0, longest_wait=8.0)
    pauses = [engine._pause(1, k) for k in range(6)]
    assert pauses == [engine._pause(1, k) for k in range(6)] != [engine._pause(2, k) for k in range(6)]
    assert all(full / 2 <= p <= full for p, full in zip(pauses, [1, 2, 4, 8, 8, 8], strict=True))


def test_half_a_surrogate_pair_can_be_stored():
    with running(
        says(json.dumps(reply({"model": "m", "seed": 0, "messages": []}, "x")).replace('"x"', r'"a\ud800b"').encode())
    ) as server:
        [c] = ask(engine_of(server.url))
    assert c.text == "a?b"


# ---- settings ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"key_variable": KEY}, "expected the NAME of an environment variable"),
        ({"base_url": f"https://user:{KEY}@host/v1"}, "without user, password"),
        ({"base_url": f"https://host/v1?key={KEY}"}, "without user, password"),
        ({"base_url": "ftp://host"}, "without user, password"),
        ({"key_variable": "NO_SUCH_VARIABLE"}, "'NO_SUCH_VARIABLE', which is not set"),
        ({"served": {"c/x": "m"}}, "names 'c/x', which is no adapter; known: a/x, b/x"),
        ({"base_url": "http://127.0.0.1:1/v1"}, "no server answers at http://127.0.0.1:1/v1/models"),
        ({"base_url": "http://[x/v1"}, "no server answers at"),
    ],
)
def test_mistakes_are_told_before_the_first_dialogue_and_without_the_key(settings, message):
    with pytest.raises(ConfigError, match=message) as caught:
        engine_of(
            settings.get("base_url", "http://127.0.0.1:1/v1"), **{k: v for k, v in settings.items() if k != "base_url"}
        )
    assert KEY not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_top_k_is_refused():
    with running(good) as server, pytest.raises(ConfigError, match="cannot cut at top_k"):
        engine_of(server.url).generate([], seeds=[], sampling=Sampling(top_k=5))


def test_without_the_client_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "httpx2", None)
    with pytest.raises(MissingExtra, match=r'pip install "counterpoint\[serve\]"'):
        engine_of("http://127.0.0.1:1/v1")


# ---- whole evaluations ---------------------------------------------------------------------------------------------


def evaluate(monkeypatch, capsys, url, folder, *words):
    """(exit code, what was printed) of `counterpoint evaluate tiny` against a server."""
    line = ["evaluate", "tiny", f"engine={{name: openai, base_url: '{url}', backoff: 0.01, retries: 1, deadline: 5}}"]
    line += ["tasks.eval=[mini-gsm]", "evaluation.limit=12", f"--out={folder}", *words]
    monkeypatch.setattr(sys, "argv", ["counterpoint", *line])
    with pytest.raises(SystemExit) as stop:
        main()
    return stop.value.code or 0, "".join(capsys.readouterr())


def summary_of(folder):
    return json.loads((folder / "summary.json").read_text())


def test_an_evaluation_that_errors_broke_off_is_completed_and_equals_an_undisturbed_one(monkeypatch, capsys, tmp_path):
    """Nothing answered is asked again, nothing that failed is counted, and the end is the same."""
    with running(good) as server:
        assert evaluate(monkeypatch, capsys, server.url, tmp_path / "calm")[0] == 0
    calm = read_episodes(tmp_path / "calm" / "eval" / "mini-gsm.jsonl")
    whole = len(server.bodies)

    def moody(handler, body):
        (status(500, b"overloaded") if fold(body["seed"]) % 5 == 0 else good)(handler, body)

    with running(moody) as server:
        code, said = evaluate(monkeypatch, capsys, server.url, tmp_path / "run")
        kept = read_episodes(tmp_path / "run" / "eval" / "mini-gsm.jsonl")
        failed = read_episodes(tmp_path / "run" / "failed" / "eval" / "mini-gsm.jsonl")
        assert code == 2
        assert (
            f"{len(failed)} of 12 dialogues of mini-gsm were not answered (HTTP 500 overloaded, attempt 2)"
            in said.replace("\n", " ")
        )
        assert not (tmp_path / "run" / "summary.json").exists()
        assert 0 < len(failed) < 12
        assert len(kept) + len(failed) == 12
        expected = {e.id: e for e in calm}
        assert all(e == expected[e.id] for e in kept)
        assert all(e.answer is None for e in failed)
        server.act = good
        port, before = server.url, len(server.bodies)
        code, _ = evaluate(monkeypatch, capsys, port, tmp_path / "run")
    assert code == 0
    again = read_episodes(tmp_path / "run" / "eval" / "mini-gsm.jsonl")
    assert {e.id: e for e in again} == expected
    assert again[: len(kept)] == kept
    assert len(server.bodies) - before == sum(len(e.turns) for e in again[len(kept) :]) < whole
    assert summary_of(tmp_path / "run")["eval"] == summary_of(tmp_path / "calm")["eval"]


def test_a_kill_loses_no_finished_dialogue(monkeypatch, capsys, tmp_path):
    with running(good) as server:
        assert evaluate(monkeypatch, capsys, server.url, tmp_path / "run")[0] == 0
        file = tmp_path / "run" / "eval" / "mini-gsm.jsonl"
        lines = file.read_bytes().splitlines(keepends=True)
        file.write_bytes(b"".join(lines[:5]) + lines[5][:30])  # what a kill leaves
        before = len(server.bodies)
        assert evaluate(monkeypatch, capsys, server.url, tmp_path / "run")[0] == 0
    assert file.read_bytes().splitlines(keepends=True)[:5] == lines[:5]
    assert sorted(file.read_bytes().splitlines()) == sorted(b"".join(lines).splitlines())
    assert len(server.bodies) - before < before


def test_a_comparison_may_use_it_with_no_steps(tmp_path):
    """`train` with steps=0 measures, stops where a reply is missing, and goes on with --resume."""
    with running(status(503)) as server:
        settings = f"engine={{name: openai, base_url: '{server.url}', backoff: 0.01, retries: 0}}"
        config = load_config(None, [settings, "steps=0", "tasks.eval=[mini-gsm]", "evaluation.limit=3"])
        with pytest.raises(EngineError, match=r"3 of 3 dialogues of mini-gsm .* \(train: with --resume\)"):
            train(config, tmp_path / "run")
        server.act = good
        summary = train(config, tmp_path / "run", resume=True)
    assert summary["eval"]["mini-gsm"]["n"] == summary["untrained"]["mini-gsm"]["n"] == 3


def test_a_server_that_answers_nothing_ends_in_one_line(monkeypatch, capsys, tmp_path):
    with running(status(404, {"error": "no model tiny"})) as server:
        code, said = evaluate(monkeypatch, capsys, server.url, tmp_path / "run")
    assert code == 2
    assert "12 of 12 dialogues of mini-gsm were not answered (HTTP 404" in said.replace("\n", " ")
    assert len(server.bodies) == 12


@pytest.mark.parametrize("act", ["echo in the reply", "echo in the error", "escaped"])
def test_the_key_reaches_the_server_and_no_file_or_message(monkeypatch, capsys, tmp_path, caplog, act):
    def echo(handler, body):
        sent = handler.headers["authorization"].removeprefix("Bearer ")
        if act == "echo in the error":
            handler.send(401, {"error": f"Incorrect API key provided: {sent}"})
        elif act == "escaped":
            raw = json.dumps(reply(body, "KEY Final answer: 7"))
            handler.send(200, raw.replace("KEY", "".join(f"\\u{ord(c):04x}" for c in sent)).encode())
        else:
            handler.send(200, reply(body, f"{sent}\nFinal answer: 7"))

    caplog.set_level("DEBUG")
    monkeypatch.setenv("TEST_KEY", KEY)
    with running(echo) as server:
        line = f"engine={{name: openai, base_url: '{server.url}', key_variable: TEST_KEY, retries: 0}}"
        _, said = evaluate(monkeypatch, capsys, server.url, tmp_path / "run", line)
    assert all(h["authorization"] == f"Bearer {KEY}" for h in server.headers)
    files = [p for p in (tmp_path / "run").rglob("*") if p.is_file()]
    assert len(files) >= 2
    assert not any(KEY.encode() in p.read_bytes() for p in files)
    assert KEY not in said
    assert KEY not in caplog.text
    assert "TEST_KEY" in (tmp_path / "run" / "config.yaml").read_text()


def test_it_does_not_train_and_loads_no_checkpoint(monkeypatch, capsys, tmp_path):
    with pytest.raises(ConfigError, match="engine 'openai' only answers: set steps=0"):
        train(load_config(None, ["engine=openai", "steps=1"]), tmp_path / "run")
    run = str(tmp_path / "done")
    (tmp_path / "done").mkdir()
    (tmp_path / "done" / "config.yaml").write_text(load_config(None, ["steps=0"]).to_yaml())
    with pytest.raises(ConfigError, match="engine 'openai' loads no checkpoint"):
        evaluate_only(run, evaluation_config(run, ["engine=openai"]), tmp_path / "x", None)
