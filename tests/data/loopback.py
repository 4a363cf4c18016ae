"""A web server on this machine that misbehaves to order."""

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Reply = Callable[[BaseHTTPRequestHandler], None]


class Server(ThreadingHTTPServer):
    """Answers each GET with the next of `replies`, the last again and again, HEAD with the first."""

    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.replies: list[Reply] = []
        self.asked: list[str] = []
        self.closing = threading.Event()  # wakes the replies that stall

    def url(self, path: str = "file.bin") -> str:
        return f"http://127.0.0.1:{self.server_port}/{path}"

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that gives up is what these tests are about."""


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        place = sum(asked.startswith("GET") for asked in self.server.asked)
        self.server.asked.append(f"GET {self.path}")
        self.server.replies[min(place, len(self.server.replies) - 1)](self)

    def do_HEAD(self) -> None:
        self.server.asked.append(f"HEAD {self.path}")
        self.server.replies[0](self)

    def log_message(self, *args: object) -> None:
        """Keep the output of the tests quiet."""


def answer(
    body: bytes, *, status: int = 200, promise: int | str | None = None, headers: dict[str, str] | None = None
) -> Reply:
    """Sends `body`; `promise` is the length in the header, another one than is sent or `"none"`."""

    def reply(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        if promise != "none":
            handler.send_header("Content-Length", str(len(body) if promise is None else promise))
        for name, value in (headers or {}).items():
            handler.send_header(name, value)
        handler.end_headers()
        if handler.command == "GET":
            handler.wfile.write(body)

    return reply


def redirect(place: str) -> Reply:
    return answer(b"", status=302, headers={"Location": place})


def stall(body: bytes, after: int) -> Reply:
    """Sends the first `after` bytes and then nothing, with the connection open."""

    def reply(handler: BaseHTTPRequestHandler) -> None:
        answer(body[:after], promise=len(body))(handler)
        handler.server.closing.wait(10)  # type: ignore[attr-defined]

    return reply


def silence(handler: BaseHTTPRequestHandler) -> None:
    """Takes the question and never answers."""
    handler.server.closing.wait(10)  # type: ignore[attr-defined]


def trickle(body: bytes) -> Reply:
    """Sends a little often enough that no single wait is long."""

    def reply(handler: BaseHTTPRequestHandler) -> None:
        answer(b"", promise=len(body))(handler)
        for start in range(0, len(body), 1 << 16):
            handler.wfile.write(body[start : start + (1 << 16)])
            if handler.server.closing.wait(0.6):  # type: ignore[attr-defined]
                return

    return reply


def endless(handler: BaseHTTPRequestHandler) -> None:
    """Sends until the client has enough."""
    answer(b"", promise="none")(handler)
    with suppress(OSError):
        while not handler.server.closing.is_set():  # type: ignore[attr-defined]
            handler.wfile.write(bytes(1 << 16))


def hang_up(handler: BaseHTTPRequestHandler) -> None:
    """Drops the connection with a reset, before any header."""
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.connection.close()


def babble(handler: BaseHTTPRequestHandler) -> None:
    """Answers with something that is not HTTP."""
    handler.wfile.write(b"\x16\x03\x01\x02\x00 what?\r\n\r\n")


def slow(reply: Reply, seconds: float) -> Reply:
    def delayed(handler: BaseHTTPRequestHandler) -> None:
        handler.server.closing.wait(seconds)  # type: ignore[attr-defined]
        reply(handler)

    return delayed
