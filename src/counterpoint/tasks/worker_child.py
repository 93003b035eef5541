"""The grading worker's own program: reads one JSON request a line, answers "right", "wrong" or "error" a line.

Run as a file by worker.py, in a process of its own; imports nothing of counterpoint. Whatever goes wrong here is an
outcome, not an exception. A request that outlives its deadline is killed from outside, or by the alarm should the
parent be gone.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any

MEMORY = 2 << 30  # bytes beyond what is imported: a pathological expression ends in MemoryError, not in swapping


def main() -> None:
    """Serve requests until standard input closes."""
    logging.disable()
    _math_equal("1", "x")  # imports and compiles everything before the first deadline runs
    replies = os.fdopen(os.dup(1), "w", encoding="ascii", buffering=1)
    with open(os.devnull, "w") as nowhere:  # parsers print to both
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    _limit_memory()
    replies.write("ready\n")
    for line in sys.stdin.buffer:
        replies.write(f"{_serve(json.loads(line))}\n")


def _serve(request: dict[str, Any]) -> str:
    _alarm(2 * request["deadline"] + 1)
    try:
        right = _OPERATIONS[request["op"]](request)
    except Exception:  # the one broad except: on arbitrary text sympy raises nearly every type, and that is data
        return "error"
    finally:
        _alarm(0)
    return "right" if right else "wrong"


def _alarm(seconds: float) -> None:
    """Let the system end this process after `seconds` (0: never), so that no orphan computes a power tower for ever."""
    import signal

    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, seconds)


def _limit_memory(*, limited: bool = True) -> None:
    """Allow MEMORY bytes more than now (Linux), or lift the limit."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        with open("/proc/self/statm", encoding="ascii") as sizes:
            now = int(sizes.read().split()[0]) * resource.getpagesize()
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        resource.setrlimit(resource.RLIMIT_AS, (now + MEMORY if limited else hard, hard))


@lru_cache(maxsize=4096)
def _parsed(latex: str) -> Any:
    from math_verify import LatexExtractionConfig, parse

    config = [LatexExtractionConfig(boxed_match_priority=0)]
    return parse(f"\\boxed{{{latex}}}", config, parsing_timeout=None, raise_on_error=True)


def _math_right(request: dict[str, Any]) -> bool:
    """Whether the lists are equal, item by item or as sets."""
    answers, golds = request["answers"], request["golds"]
    if request["ordered"]:
        return all(_math_equal(gold, answer) for gold, answer in zip(golds, answers, strict=True))
    return all(any(_math_equal(gold, answer) for gold in golds) for answer in answers) and all(
        any(_math_equal(gold, answer) for answer in answers) for gold in golds
    )


@lru_cache(maxsize=4096)
def _math_equal(gold: str, answer: str) -> bool:
    from math_verify import verify

    gold_parsed, parsed = _parsed(gold), _parsed(answer)
    right: bool = verify(gold_parsed, parsed, float_rounding=10, timeout_seconds=None, raise_on_error=True)
    return right


@lru_cache(maxsize=8)
def _gym(name: str, options: str) -> Any:
    import reasoning_gym

    return reasoning_gym.create_dataset(name, **json.loads(options))


def _gym_prepare(request: dict[str, Any]) -> bool:
    """Import and draw the set, so that no deadline pays for it."""
    _limit_memory(limited=False)
    drawn = len(_gym(request["name"], request["options"]))
    _limit_memory()
    return drawn > 0


def _gym_right(request: dict[str, Any]) -> bool:
    """Score with the set's own scorer, on the entry drawn again from its seed."""
    dataset = _gym(request["name"], request["options"])
    entry = dataset[request["index"]]
    if entry["question"] != request["question"]:
        raise ValueError("the installed reasoning-gym draws another question here")
    return float(dataset.score_answer(request["answer"], entry)) >= 1.0


_OPERATIONS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "math": _math_right,
    "prepare": _gym_prepare,
    "gym": _gym_right,
}

if __name__ == "__main__":
    main()
