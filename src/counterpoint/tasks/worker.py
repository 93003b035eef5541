"""A worker process with a deadline: computations that may never end, made safe to ask for from any thread.

A plain subprocess on pipes: it works in threads, in daemonic processes and in Ray actors; no signals in the parent.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

STARTUP = 120.0  # seconds to import sympy on a busy machine; not part of any deadline
STOP = 5.0  # seconds `close` waits for a request to end
Request = Mapping[str, str | int | Sequence[str]]
Reply = Literal["right", "wrong", "error"]


@dataclass(frozen=True, slots=True)
class WorkerCounts:
    """What happened to the worker so far in this process."""

    asked: int = 0
    failed: int = 0  # the computation raised
    killed: int = 0  # the deadline passed
    crashed: int = 0  # the process ended by itself


class Worker:
    """One worker process: started at the first request, killed at a deadline, replaced at once."""

    def __init__(self) -> None:
        self.counts = WorkerCounts()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_ready = False
        self._prepared: set[bytes] = set()

    def ask(self, request: Request, *, deadline: float, prepare: Request | None = None) -> Reply:
        """The worker's answer, or "error" when it raised, crashed or did not answer within `deadline` seconds.

        `prepare` is asked first, once a process, under the time limit of a start: imports and the like.
        """
        with self._lock:
            heard = False
            try:
                answer = self._asked(request, deadline, prepare)
                heard = answer in ("right", "wrong", "error")
            finally:
                if (
                    not heard
                ):  # late, gone, or interrupted: an answer still on its way must not be taken for the next one
                    self._stop()
            self._count(answer)
            if self._process is None:
                self._process = _start()  # imports while the parent goes on
            return "right" if answer == "right" else "wrong" if answer == "wrong" else "error"

    def close(self) -> None:
        """End the process, even under a request that another thread is waiting for; the next one starts another."""
        waited = self._lock.acquire(timeout=STOP)
        self._stop()
        if waited:
            self._lock.release()

    def _asked(self, request: Request, deadline: float, prepare: Request | None) -> str | None:
        process = self._ready_process()
        if prepare is not None and (preparation := _line(prepare, STARTUP)) not in self._prepared:
            if _talk(process, preparation, STARTUP) != "right":
                return ""
            self._prepared.add(preparation)
        return _talk(process, _line(request, deadline), deadline)

    def _count(self, answer: str | None) -> None:
        counts = replace(self.counts, asked=self.counts.asked + 1)
        if answer is None:
            counts = replace(counts, killed=counts.killed + 1)
        elif answer == "error":
            counts = replace(counts, failed=counts.failed + 1)
        elif answer not in ("right", "wrong"):
            counts = replace(counts, crashed=counts.crashed + 1)
        self.counts = counts

    def _ready_process(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._process = _start()
        if not self._is_ready:
            if _talk(self._process, b"", STARTUP) != "ready":
                self._stop()
                raise RuntimeError("the grading worker did not start; its standard error says why")
            self._is_ready = True
        return self._process

    def _stop(self) -> None:
        process, self._process, self._is_ready = self._process, None, False
        self._prepared = set()
        if process is None:
            return
        process.kill()
        process.wait()
        _close_pipes(process)

    def forget(self) -> None:
        """In a forked child: leave the parent's worker alone, and the lock that another thread may have held."""
        self._lock = threading.Lock()
        process, self._process, self._is_ready = self._process, None, False
        self._prepared = set()
        if process is not None:
            process.returncode = 0  # not ours to wait for
            _close_pipes(process)


def _line(request: Request, deadline: float) -> bytes:
    return json.dumps({**request, "deadline": deadline}).encode() + b"\n"


def _start() -> subprocess.Popen[bytes]:
    program = Path(__file__).with_name("worker_child.py")
    return subprocess.Popen(
        [sys.executable, "-P", str(program)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
        start_new_session=True,  # Ctrl-C is for the parent
    )


def _close_pipes(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def _talk(process: subprocess.Popen[bytes], line: bytes, deadline: float) -> str | None:
    """Send `line` and wait for one line; None when the deadline passes, "" when the process has ended."""
    assert process.stdin is not None
    assert process.stdout is not None
    end = time.monotonic() + deadline
    poll = select.poll()  # not select(): it refuses descriptors beyond 1023
    poll.register(process.stdout, select.POLLIN)
    received = b""
    try:
        if line:
            process.stdin.write(line)
        while not received.endswith(b"\n"):
            left = end - time.monotonic()
            if left <= 0 or not poll.poll(1000 * left):
                return None
            chunk = process.stdout.read(64)
            if not chunk:
                return ""
            received += chunk
    except BrokenPipeError:
        return ""
    return received.decode().strip()


WORKER = Worker()
atexit.register(WORKER.close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=WORKER.forget)
