"""A child that is started when it is first needed, and again after it died."""

import os
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from kernelwright.verify.records import RecordError, from_plain, to_plain
from kernelwright.worker.card.ledger import Ledger
from kernelwright.worker.errors import ChildStartError
from kernelwright.worker.process.client import Answer, Client, Died, Hung, Raised, Replied
from kernelwright.worker.process.early_start import client_of
from kernelwright.worker.process.hanging import Patience
from kernelwright.worker.process.requests import StartRequest
from kernelwright.worker.sandbox.confining import Confinement, Started
from kernelwright.worker.timeline import waited_for


class ChildProcess:
    """Asks one role; a dead process is replaced at the next question."""

    def __init__(
        self,
        start: StartRequest,
        environment: Mapping[str, str],
        confinement: Confinement,
        start_seconds: float,
        ledger: Ledger,
    ) -> None:
        """`ledger` gets what is waited for its answers."""
        self.started: Started | None = None
        """What the latest process said of itself before anything strange ran in it."""
        self._start = start
        self._environment = environment
        self._confinement = confinement
        self._start_seconds = start_seconds
        self._client: Client | None = None
        self._starting = False
        self._launched = 0.0
        self._ledger = ledger
        self._asked = ""
        self._begun = 0.0
        """Seconds that an operation may take which nobody has waited for."""
        self._late: Hung | None = None

    def launch(self) -> None:
        """Start it without waiting until it is ready."""
        self._launched = time.monotonic()
        self._client = client_of(self._start.role.value, self._environment, self._confinement)
        self._client.post("start", to_plain(self._start))
        self._starting = True

    def has_started(self) -> bool:
        """Whether it could be asked something without waiting for its start."""
        return self._client is not None and (not self._starting or self._client.has_spoken)

    def is_busy(self) -> bool:
        """Whether `post` would wait: for its start, or for what was begun."""
        spoken = self._client is not None and self._client.has_spoken
        return not self.has_started() or (self._begun > 0 and not spoken)

    def ready(self) -> None:
        """Wait until it has started; ChildStartError if it does not."""
        self._ready()

    def post(self, operation: str, body: Any) -> None:
        """Ask without waiting for the answer; ChildStartError if there is no process to ask.

        What was begun ends first. If that took too long, it is the answer.
        """
        self.finish()
        if self._late is None:
            self._ready().post(operation, body)
            self._asked = operation

    def begin(self, operation: str, body: Any, seconds: float) -> None:
        """Ask for what takes up to `seconds` and has no answer of interest, and let it work."""
        self.post(operation, body)
        self._begun = seconds

    def finish(self) -> None:
        """Wait for what was begun."""
        if self._begun:
            seconds, self._begun = self._begun, 0.0
            answer = self.wait(seconds)
            self._late = answer if isinstance(answer, Hung) else None

    def wait(self, seconds: float, patience: Patience | None = None) -> Answer:
        """The answer to the last `post`; `patience` as a client has it."""
        if self._late is not None:
            late, self._late = self._late, None
            return late
        assert self._client is not None
        with self._ledger.spending(f"{self._start.role.value}: {self._asked}"):
            return self._client.wait(seconds, patience)

    def ask(
        self, operation: str, body: Any, seconds: float, patience: Patience | None = None
    ) -> Answer:
        """`post` and `wait`."""
        self.post(operation, body)
        return self.wait(seconds, patience)

    def freeze(self) -> None:
        """Stop it where it is, if it runs: it neither computes nor launches until `thaw`."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        """To the child, which may have left its group, and to those that are in it still."""
        if self._client is None or not self._client.alive or self.started is None:
            return
        for send in (os.kill, os.killpg):
            with suppress(ProcessLookupError):
                send(self.started.pid, number)

    def threads(self) -> int:
        """Threads of the process now, as the kernel counts them; 0 if it does not run."""
        if self._client is None or not self._client.alive or self.started is None:
            return 0
        with suppress(OSError):
            return len(list(Path(f"/proc/{self.started.pid}/task").iterdir()))
        return 0

    def number(self) -> int:
        """What the kernel calls the process; 0 if it does not run."""
        running = self._client is not None and self._client.alive and self.started is not None
        return self.started.pid if running and self.started is not None else 0

    def log(self) -> str:
        """What the process printed so far, shortened."""
        return "" if self._client is None else self._client.log.text()

    def dismiss(self) -> None:
        """Let the process begin to end; `close` has to follow."""
        if self._client is not None:
            self._client.dismiss()

    def close(self) -> None:
        """End the process; a further question starts another."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _ready(self) -> Client:
        if self._client is None or not self._client.alive:
            self.close()
            self.launch()
        assert self._client is not None
        if self._starting:
            self._starting = False
            word, since = f"{self._start.role.value}: start", time.monotonic()
            with self._ledger.spending(word):
                answer = self._client.wait(self._start_seconds)
            match answer:
                case Replied(body=body):
                    self.started = _read(body)
                    steps = waited_for(
                        self.started.moments, self._launched, since, time.monotonic()
                    )
                    self._ledger.include(word, dict(steps))
                case Raised(message=message, location=location, next_step=next_step):
                    raise ChildStartError(message, location=location, next_step=next_step)
                case Died(message=message) | Hung(message=message):
                    raise ChildStartError(message)
        return self._client


def _read(body: Any) -> Started:
    try:
        return from_plain(Started, body)
    except RecordError as error:
        raise ChildStartError(f"a child process answered nonsense: {error}") from error
