"""Chat servers on loopback for tests: one that answers well, and what can go wrong with one."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from counterpoint.rng import fold

Act = Callable[["Handler", dict[str, Any]], None]
"""What a server does with one request: (handler, parsed body)."""


class Server(ThreadingHTTPServer):
    """Does `act` with every POST; writes down what it was asked."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, act: Act) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.act = act
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.open = self.most_open = 0
        self.closing = threading.Event()
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def asked(self, body: dict[str, Any]) -> int:
        """How often this very request came, this time included."""
        return sum(b == body for b in self.bodies)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has gone is nothing to print."""


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send(200, {"data": []})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        server = self.server
        with server.lock:
            server.bodies.append(body)
            server.headers.append({k.lower(): v for k, v in self.headers.items()})
            server.open += 1
            server.most_open = max(server.most_open, server.open)
        try:
            server.act(self, body)
        finally:
            with server.lock:
                server.open -= 1

    def send(self, status: int, data: Any, **headers: str) -> None:
        raw = data if isinstance(data, bytes) else json.dumps(data).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def running(act: Act) -> Iterator[Server]:
    server = Server(act)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.closing.set()
        server.shutdown()
        thread.join()
        server.server_close()


# ---- acts ----------------------------------------------------------------------------------------------------------


def reply(body: dict[str, Any], text: str | None = None, **over: Any) -> dict[str, Any]:
    """A well-formed answer: right for even seeds, wrong for odd ones, and a verdict where one is asked for."""
    if text is None:
        asked = " ".join(m["content"] for m in body["messages"])
        right = fold(body["seed"], body["model"], asked) % 2 == 0
        text = (
            f"Verdict: {'RIGHT' if right else 'WRONG'}"
            if "Verdict" in asked
            else f"So\nFinal answer: {7 if right else 8}"
        )
    new = min(len(text.split()) + 1, body.get("max_tokens", 1 << 20))
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    if body.get("logprobs"):
        choice["logprobs"] = {"content": [{"token": "x", "logprob": -0.5}] * new}
    return {
        "model": body["model"],
        "choices": [choice | over],
        "usage": {"prompt_tokens": 11, "completion_tokens": new, "total_tokens": 11 + new},
    }


def good(handler: Handler, body: dict[str, Any]) -> None:
    handler.send(200, reply(body))


def status(code: int, data: Any = b"", **headers: str) -> Act:
    return lambda handler, body: handler.send(code, data, **headers)


def says(data: Any) -> Act:
    return status(200, data)


def reset(handler: Handler, body: dict[str, Any]) -> None:
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.connection.close()
    handler.close_connection = True


def half(handler: Handler, body: dict[str, Any]) -> None:
    """Promises more than it sends."""
    raw = json.dumps(reply(body)).encode()
    handler.send_response(200)
    handler.send_header("content-length", str(len(raw)))
    handler.end_headers()
    handler.wfile.write(raw[: len(raw) // 2])
    handler.close_connection = True


def hang(handler: Handler, body: dict[str, Any]) -> None:
    handler.server.closing.wait(20)
    handler.close_connection = True


def drip(handler: Handler, body: dict[str, Any]) -> None:
    """A byte now and then, for ever: no single read takes long."""
    handler.send_response(200)
    handler.send_header("content-length", "100000")
    handler.end_headers()
    while not handler.server.closing.wait(0.05):
        handler.wfile.write(b" ")
        handler.wfile.flush()


def first(times: int, act: Act, then: Act = good) -> Act:
    """`act` for the first `times` times that a request comes, `then` afterwards."""
    return lambda handler, body: (act if handler.server.asked(body) <= times else then)(handler, body)
