"""The parent's side of one child: start it, ask it, and survive whatever it does."""

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any, Self

from kernelwright.verify.records import to_plain
from kernelwright.worker.process.hanging import Patience, Waiting
from kernelwright.worker.process.nursery import CONVERSATION, Birth, Process, current
from kernelwright.worker.process.protocol import (
    Channel,
    ChannelClosedError,
    ChannelTimeoutError,
    GarbledError,
)
from kernelwright.worker.sandbox.confining import Confinement
from kernelwright.worker.sandbox.warden import TOO_MANY_PROCESSES, TOO_MUCH_MEMORY

_LOG_HALF = 32 << 10
"""Bytes kept of the beginning and of the end of what a child prints."""
_LINE = 200
"""Characters of a child's last words that a message quotes."""
_EXIT_GRACE = 5.0
"""Seconds between the end of the conversation and a look at how the process ended."""
_CLOSE_GRACE = 15.0
"""Seconds that a warden may take to end what its child has started."""

_CHILD = "kernelwright.worker.roles.child"


@dataclass(frozen=True, slots=True, kw_only=True)
class Replied:
    """The child answered."""

    body: Any
    """JSON values; from a stranger's process where the child is a candidate's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised:
    """The child could not do what it was asked, and said so."""

    message: str
    location: str | None
    next_step: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Died:
    """The child ended, or answered nonsense and was ended."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Hung:
    """The child did not answer in time and was ended."""

    message: str


Answer = Replied | Raised | Died | Hung


class BoundedLog:
    """What a child prints: its beginning and its end, drained so that it never blocks."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._head = bytearray()
        self._tail = bytearray()
        self._thread = threading.Thread(target=self._drain, daemon=True)
        self._thread.start()

    def text(self) -> str:
        """Head and tail, with a line between them where something was left out."""
        self._thread.join(timeout=_EXIT_GRACE)
        head, tail = (bytes(part).decode(errors="replace") for part in (self._head, self._tail))
        cut = "\n... left out ...\n" if len(self._tail) == _LOG_HALF else ""
        return head + cut + tail

    def last_line(self) -> str:
        """The last line that is not empty, shortened."""
        lines = [line.strip() for line in self.text().splitlines() if line.strip()]
        return lines[-1][:_LINE] if lines else ""

    def _drain(self) -> None:
        with suppress(OSError, ValueError), self._stream:
            while piece := os.read(self._stream.fileno(), 1 << 16):
                room = _LOG_HALF - len(self._head)
                self._head += piece[:room]
                self._tail = (self._tail + piece[room:])[-_LOG_HALF:]


def _forked(limits: str, environment: Mapping[str, str], theirs: socket.socket) -> Process | None:
    """A child from the nursery; None without one."""
    nursery = current(environment)
    if nursery is None:
        return None
    birth = Birth(module=_CHILD, arguments=(str(CONVERSATION), limits), environment=environment)
    try:
        process = nursery.start(birth, theirs.fileno())
    except OSError:
        return None
    process.close_stdin()
    return process


def _started(
    limits: str,
    environment: Mapping[str, str],
    theirs: socket.socket,
    modules: Sequence[str] = (),
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        # -P: nothing beside the user's files may shadow a module of ours.
        [sys.executable, "-P", "-m", _CHILD, str(theirs.fileno()), limits, *modules],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        pass_fds=(theirs.fileno(),),
        env=dict(environment),
        start_new_session=True,
    )


@dataclass(frozen=True, slots=True)
class Begun:
    """A child that has been started, and our end of the conversation."""

    process: Process
    conversation: socket.socket

    @classmethod
    def forked_or_anew(cls, environment: Mapping[str, str], confinement: Confinement) -> Self:
        """A fork of the nursery, if there is one."""
        limits = json.dumps(to_plain(confinement))
        ours, theirs = socket.socketpair()
        with theirs:
            process = _forked(limits, environment, theirs) or _started(limits, environment, theirs)
        return cls(process, ours)

    @classmethod
    def anew(
        cls, environment: Mapping[str, str], confinement: Confinement, modules: Sequence[str]
    ) -> Self:
        """A process of its own, which imports `modules` before it listens."""
        ours, theirs = socket.socketpair()
        with theirs:
            limits = json.dumps(to_plain(confinement))
            return cls(_started(limits, environment, theirs, modules), ours)


class Client:
    """One child process in a session of its own; it dies with this process or at `close`.

    Between the two stands the child's warden, which ends whatever the child started.

    The kernel ends the child when the *thread* that started it ends: use and close a client in
    the thread that made it.
    """

    def __init__(
        self,
        name: str,
        environment: Mapping[str, str],
        confinement: Confinement,
        begun: Begun | None = None,
    ) -> None:
        """`begun` is a process with that environment and confinement; None starts one."""
        self.name = name
        self._confinement = confinement
        begun = begun or Begun.forked_or_anew(environment, confinement)
        self._process = begun.process
        assert self._process.stdout is not None
        self.log = BoundedLog(self._process.stdout)
        self._channel = Channel(begun.conversation)
        self._last_id = 0
        self._nonce = ""
        self._posted: tuple[str, float] = ("", 0.0)
        self._unasked = False
        self._dismissed = False

    @property
    def alive(self) -> bool:
        """Whether it can be asked more."""
        return self._process.poll() is None

    @property
    def has_spoken(self) -> bool:
        """Whether `wait` would return at once: there is an answer, or nobody to give one."""
        return not self.alive or self._channel.has_more()

    def post(self, operation: str, body: Any) -> None:
        """Send a request without waiting; each is followed by one `wait`."""
        self._last_id += 1
        self._nonce = secrets.token_hex(16)
        self._posted = operation, time.monotonic()
        # Nothing can be an answer that was here before the question.
        self._unasked = self._unasked or self._channel.has_more()
        head = {"id": self._last_id, "nonce": self._nonce}
        with suppress(ChannelClosedError):  # `wait` finds out how it ended
            self._channel.send(head | {"operation": operation, "body": body})

    def wait(self, timeout: float, patience: Patience | None = None) -> Answer:
        """The answer to the last request, at most `timeout` seconds after it was sent.

        With `patience` no later than that has an end, counted from now; what it lets a child
        compile is not of the `timeout`.
        """
        operation, since = self._posted
        waiting = Waiting(deadline=since + timeout, patience=patience)
        try:
            if self._unasked:
                raise GarbledError("it spoke before it was asked")
            return self._read(self._receive(waiting))
        except ChannelTimeoutError:
            self.close()
            waited = waiting.in_words(timeout)
            return Hung(message=f"the {self.name} did not answer to {operation!r} in {waited}")
        except ChannelClosedError:
            ended = self._how_it_ended()
            said = self.log.last_line()
            words = f"; its last words: {said}" if said else ""
            return Died(message=f"the {self.name} process {ended} during {operation!r}{words}")
        except GarbledError as error:
            self.close()
            return Died(message=f"the {self.name} process answered nonsense: {error}")

    def ask(self, operation: str, body: Any, timeout: float) -> Answer:
        """`post` and `wait`."""
        self.post(operation, body)
        return self.wait(timeout)

    def dismiss(self) -> None:
        """Tell the child to end, and whatever it started; `close` has to follow."""
        self._channel.close()
        if not self._dismissed and self._process.poll() is None:
            self._process.terminate()  # the warden ends the others first
        self._dismissed = True

    def close(self) -> None:
        """End the child and whatever it started; twice is once."""
        self.dismiss()
        if self._process.poll() is None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_CLOSE_GRACE)
        if self._process.returncode is None:
            self._process.kill()
        self._process.wait()

    def _receive(self, waiting: Waiting) -> dict[str, Any]:
        while True:
            try:
                return self._channel.receive(waiting.next_look())
            except ChannelTimeoutError:
                if not waiting.goes_on():
                    raise

    def _read(self, reply: dict[str, Any]) -> Answer:
        match reply:
            case {"id": self._last_id, "nonce": self._nonce, "body": body}:
                return Replied(body=body)
            case {
                "id": self._last_id,
                "nonce": self._nonce,
                "error": {"message": str(message)} as error,
            }:
                location, next_step = error.get("location"), error.get("next_step")
                return Raised(
                    message=message,
                    location=location if isinstance(location, str) else None,
                    next_step=next_step if isinstance(next_step, str) else None,
                )
        raise GarbledError(f"request {self._last_id} was answered with {str(reply)[:80]}")

    def _how_it_ended(self) -> str:
        try:
            code = self._process.wait(_EXIT_GRACE)
        except subprocess.TimeoutExpired:
            self.close()
            return "closed the conversation"
        self.close()
        if code == TOO_MANY_PROCESSES:
            return f"was ended: it had more than {self._confinement.processes} processes"
        if code == TOO_MUCH_MEMORY:
            return "was ended: it was out of memory"
        if code < 0:
            return f"was ended by {signal.Signals(-code).name}"
        return f"exited with code {code}"
