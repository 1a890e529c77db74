"""The Redis protocol: requests, replies, and a connection that sends one request at a time.

Owns    the encoding of requests, the parser of RESP2 and RESP3, `Connection`.
Rule    text is decoded as UTF-8, and other bytes are shown as `\\xNN`: what is read here is meant for people.
"""

from __future__ import annotations

import socket
import threading
from typing import Any, Generator, Optional, Union

Word = Union[str, bytes, int, float]

#: What `Parser.next` returns while a reply is not complete.
MORE = object()


class CommandError(Exception):
    """The server refused a command. The text is its reply."""


def encode(words: tuple[Word, ...]) -> bytes:
    """A request of these words."""
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        data = word if isinstance(word, bytes) else str(word).encode()
        parts.append(b"$%d\r\n%b\r\n" % (len(data), data))
    return b"".join(parts)


class Parser:
    """Replies out of bytes that come in pieces. Each byte is read once, however small the pieces are."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._at = 0
        self._value: Optional[Generator[None, None, Any]] = None

    def feed(self, data: bytes) -> None:
        """Adds bytes as they arrived."""
        self._buffer += data

    def next(self) -> Any:
        """The next reply, or `MORE`. An error is returned as a `CommandError`; pushes are left out."""
        while True:
            value = self._value = self._value or self._parse()
            try:
                next(value)
                return MORE
            except StopIteration as done:
                self._value = None
                del self._buffer[: self._at]
                self._at = 0
                if done.value is not _PUSH:
                    return done.value

    def _line(self) -> Generator[None, None, bytes]:
        searched = self._at
        while (end := self._buffer.find(b"\r\n", searched)) < 0:
            # The first byte of the line's end may have arrived alone.
            searched = max(self._at, len(self._buffer) - 1)
            yield
        line = bytes(self._buffer[self._at : end])
        self._at = end + 2
        return line

    def _bulk(self, length: int) -> Generator[None, None, str]:
        while len(self._buffer) < self._at + length + 2:
            yield
        data = self._buffer[self._at : self._at + length]
        self._at += length + 2
        return _text(data)

    def _items(self, count: int) -> Generator[None, None, list[Any]]:
        items = []
        for _ in range(count):
            items.append((yield from self._parse()))
        return items

    def _parse(self) -> Generator[None, None, Any]:
        line = yield from self._line()
        kind, rest = line[:1], line[1:]
        if kind == b"+":
            return _text(rest)
        if kind == b"-":
            return CommandError(_text(rest))
        if kind in b":(":
            return int(rest)
        if kind == b",":
            return float(rest)
        if kind == b"#":
            return rest == b"t"
        if kind == b"_" or rest == b"-1":
            return None
        if kind in b"$=!":
            text = yield from self._bulk(int(rest))
            # A verbatim string begins with its format, as in `txt:`.
            return CommandError(text) if kind == b"!" else text[4:] if kind == b"=" else text
        if kind in b"*~":
            return (yield from self._items(int(rest)))
        if kind == b"%":
            items = yield from self._items(2 * int(rest))
            return dict(zip(items[::2], items[1::2]))
        if kind == b"|":
            yield from self._items(2 * int(rest))
            return (yield from self._parse())
        if kind == b">":
            yield from self._items(int(rest))
            return _PUSH
        raise ConnectionError(f"not a reply of the Redis protocol: {line!r}")


class Connection:
    """A connection to a server. Threads may share it: a request waits until the one before it is answered."""

    def __init__(self, host: str, port: int, password: Optional[str], timeout: float) -> None:
        self._socket = socket.create_connection((host, port), timeout)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._parser = Parser()
        self._lock = threading.Lock()
        login: tuple[Word, ...] = ("AUTH", "default", password) if password else ()
        self.call("HELLO", 3, *login, "SETNAME", "redlatch-harness")

    def call(self, *words: Word) -> Any:
        """Sends a request and returns the reply.

        Raises `CommandError` for an error, and `OSError` if the connection is lost; then it is closed.
        """
        with self._lock:
            try:
                self._socket.sendall(encode(words))
                while (reply := self._parser.next()) is MORE:
                    data = self._socket.recv(1 << 16)
                    if not data:
                        raise ConnectionError("the server closed the connection")
                    self._parser.feed(data)
            except BaseException:
                # What arrives later would be taken for the reply to the next request.
                self._socket.close()
                raise
        if isinstance(reply, CommandError):
            raise reply
        return reply

    def close(self) -> None:
        """Closes the connection."""
        self._socket.close()


def _text(data: Union[bytes, bytearray]) -> str:
    return data.decode("utf-8", "backslashreplace")


_PUSH = object()
