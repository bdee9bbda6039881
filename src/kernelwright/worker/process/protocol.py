"""How parent and child talk: one JSON object per line over a private socket.

    request  {"id": 3, "nonce": "9f...", "operation": "run", "body": {...}}
    reply    {"id": 3, "nonce": "9f...", "body": {...}}
    failure  {"id": 3, "nonce": "9f...",
              "error": {"message": ..., "location": ..., "next_step": ...}}

The nonce is drawn for each request, so that what was written ahead or is said twice answers
nothing; a message that nobody asked for ends the conversation. Nothing is pickled. What a child
sends is data from a stranger: it is parsed, checked and bounded.
"""

import json
import select
import socket
import time
from typing import Any

_MAX_LINE = 64 << 20
"""Bytes: far above any reply, far below what would hurt the parent."""
_PIECE = 1 << 16


class ChannelClosedError(Exception):
    """The other side ended or closed its end."""


class ChannelTimeoutError(Exception):
    """Nothing complete arrived in time."""


class GarbledError(Exception):
    """What arrived is not a message."""


class Channel:
    """One end of the conversation."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._buffer = bytearray()

    def send(self, message: dict[str, Any]) -> None:
        """Write one message; `ChannelClosedError` if nobody reads any more."""
        try:
            self._connection.sendall(json.dumps(message, allow_nan=False).encode() + b"\n")
        except OSError as error:
            raise ChannelClosedError(str(error)) from error

    def receive(self, timeout: float | None = None) -> dict[str, Any]:
        """The next message, waiting `timeout` seconds (None: for ever)."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while (end := self._buffer.find(b"\n")) < 0:
            if len(self._buffer) > _MAX_LINE:
                raise GarbledError(f"a line of more than {_MAX_LINE >> 20} MiB")
            self._buffer += self._read(deadline)
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return _parse(line)

    def has_more(self) -> bool:
        """Whether anything lies here that nobody has asked for."""
        try:
            ready, _, _ = select.select([self._connection], [], [], 0)
            return bool(self._buffer) or bool(
                ready and self._connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
            )
        except (OSError, ValueError):
            return bool(self._buffer)

    def close(self) -> None:
        """Close this end; the other sees the end of the conversation."""
        self._connection.close()

    def _read(self, deadline: float | None) -> bytes:
        remaining = None if deadline is None else max(0.0, deadline - time.monotonic())
        try:
            ready, _, _ = select.select([self._connection], [], [], remaining)
            if not ready:
                raise ChannelTimeoutError
            piece = self._connection.recv(_PIECE)
        except OSError as error:
            raise ChannelClosedError(str(error)) from error
        if not piece:
            raise ChannelClosedError("end of the conversation")
        return piece


def _parse(line: bytes) -> dict[str, Any]:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise GarbledError(f"{line[:80]!r} is not JSON") from error
    if not isinstance(message, dict):
        raise GarbledError(f"{line[:80]!r} is not an object")
    return message
