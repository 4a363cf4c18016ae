"""Faults of servers, drawn at random: what is sent, what is promised, how fast, and what the headers say."""

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from random import Random

from loopback import Reply, answer, babble, endless, hang_up, redirect

PATHS = (
    *("../" * up + "victim.txt" for up in range(1, 7)),
    "..\\..\\victim.txt",
    "/victim.txt",
    "x" * 300,
    "",
    ".",
    "..",
    "a/../../../victim.txt",
    "%2e%2e%2fvictim.txt",
    "blobs",
    "0" * 40,
    "f" * 64,
    "F" * 64,
    "0" * 63 + "g",
    "refs/main",
)
ESCAPES = ("\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "\b\b\b\b", "a\tb", "\x9b2J", "é" * 400, "\x00", "\xad\x85")


def drip(body: bytes, pause: float = 0.05, *, headers: bool = False) -> Reply:
    """A byte at a time; with `headers`, of a header that never ends."""

    def reply(handler: BaseHTTPRequestHandler) -> None:
        with suppress(OSError):
            if headers:
                handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Long: ")
            else:
                answer(b"", promise=len(body))(handler)
            for place in range(len(body)):
                if handler.server.closing.wait(pause):  # type: ignore[attr-defined]
                    return
                handler.wfile.write(body[place : place + 1] if not headers else b"x")

    return reply


def status(line: str) -> Reply:
    """Answers with this text after the number of the status."""

    def reply(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(
            f"HTTP/1.1 {line}\r\nContent-Length: 0\r\nX-Error-Message: {line}\r\n\r\n".encode("latin-1")
        )

    return reply


class Ranges:
    """A server of parts, each cut after `most` bytes; remembers how much it has sent.

    `begin` changes where it says and where it does begin, as a server would that counts wrongly.
    """

    def __init__(
        self, body: bytes, most: int, begin: Callable[[int], int] = lambda start: start, *, whole: bool = False
    ):
        self.body, self.most, self.begin, self.whole = body, most, begin, whole
        self.sent = 0

    def __call__(self, handler: BaseHTTPRequestHandler) -> None:
        asked = re.fullmatch(r"bytes=(\d+)-", handler.headers.get("Range", ""))
        first = self.begin(int(asked[1])) if asked and not self.whole else 0
        rest = self.body[first:]
        part = rest[: self.most]
        self.sent += len(part)
        if asked and not self.whole:
            headers = {"Content-Range": f"bytes {first}-{len(self.body) - 1}/{len(self.body)}"}
            answer(part, status=206, promise=len(rest), headers=headers)(handler)
        else:
            answer(part, promise=len(rest))(handler)


def drawn_reply(dice: Random, body: bytes) -> Reply:
    """Any answer that takes no time: right, cut, changed, of another status, with any headers, or none at all."""
    place = dice.randrange(len(body))
    changed = body[:place] + bytes([body[place] ^ (1 << dice.randrange(8))]) + body[place + 1 :]
    sent = dice.choice([body, body, changed, body[:place], body[place:], body + body[:place], b"", bytes(len(body))])
    headers = {
        "ETag": f'"{dice.choice(PATHS)}"',
        "Content-Range": f"bytes {dice.choice([0, place, -1])}-{place}/{dice.choice([len(body), '*', 0])}",
        "Content-Encoding": dice.choice(["gzip", "identity", "br", "x"]),
        "Content-Disposition": f'attachment; filename="{dice.choice(PATHS)}"',
        "Location": dice.choice(["/again", "file:///etc/passwd", "http://127.0.0.1:9/", "", "//", "gopher://x/"]),
        "Transfer-Encoding": "chunked",
        "Retry-After": dice.choice(["100000", "-1", "soon"]),
    }
    some = {name: headers[name] for name in dice.sample(sorted(headers), dice.randrange(4))}
    code = dice.choice([200, 200, 200, 200, 206, 206, 204, 301, 302, 304, 404, 416, 429, 500, 503])
    promise = dice.choice([None, None, len(body), place, "none", "many", -1, 10**18])
    whole = answer(sent, status=code, promise=promise, headers=some)
    others = [hang_up, babble, endless, redirect("/again"), status(f"{code} {dice.choice(ESCAPES)}")]
    others += [
        Ranges(body, place + 1),
        Ranges(body, place + 1, whole=True),
        Ranges(body, place + 1, lambda start: start // 2),
    ]
    return whole if dice.random() < 0.7 else dice.choice(others)


def drawn_replies(dice: Random, body: bytes) -> Sequence[Reply]:
    """What a server says one after the other."""
    return [drawn_reply(dice, body) for _ in range(dice.randrange(1, 4))]
