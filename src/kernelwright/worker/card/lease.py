"""Who may use a GPU now: many may verify on a card together, one alone may time on it."""

import fcntl
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kernelwright import env
from kernelwright.worker.card.ledger import Ledger

SHARE, ALONE = "card: to share it", "card: to have it alone"
"""Words of the ledger."""
_PATIENCE = 20.0
"""Seconds that those who verify wait for those who time, who may come one after the other."""
_LOOK_AGAIN = 0.01


class Lease:
    """A lock on one card, held through files that all processes of this user see.

    The kernel drops it with the process, however that ends. Changing from shared to alone lets go
    first, so two holders that both want to time cannot block each other.

    Those who want to time stand in the gate together until the last of them is done: the card is
    emptied for them once and not for each. Who wants to verify passes the gate when nobody stands
    there; who had to wait for long closes the way to it, and those who come later do not overtake.
    """

    def __init__(self, device_index: int, ledger: Ledger | None = None) -> None:
        """`ledger` gets what is waited for the card."""
        self._ledger = ledger or Ledger()
        self._card = lock_file(device_index, "lock")
        self._gate = lock_file(device_index, "gate.lock")
        self._way = lock_file(device_index, "way.lock")

    def share(self) -> None:
        """Wait until nobody times on the card, and keep others from doing so."""
        with self._ledger.spending(SHARE):
            self._pass_the_gate()
            fcntl.flock(self._card, fcntl.LOCK_SH)
            fcntl.flock(self._gate, fcntl.LOCK_UN)

    def claim(self, on_wait: Callable[[], None]) -> None:
        """Wait until nobody else uses the card; `on_wait` is called once if that takes time."""
        self.drop()
        try:
            self._stand_in_the_gate(fcntl.LOCK_NB)
            fcntl.flock(self._card, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            with self._ledger.spending(ALONE):
                self._stand_in_the_gate()
                fcntl.flock(self._card, fcntl.LOCK_EX)

    def drop(self) -> None:
        """Let others have it for now."""
        fcntl.flock(self._card, fcntl.LOCK_UN)
        fcntl.flock(self._gate, fcntl.LOCK_UN)

    def release(self) -> None:
        """Let others have it, for good."""
        for descriptor in (self._card, self._gate, self._way):
            os.close(descriptor)

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Share the card for the length of the block; it is nobody's before and after."""
        self.share()
        try:
            yield
        finally:
            self.drop()

    @contextmanager
    def alone(self, on_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Have the card alone for the length of the block; it is nobody's before and after."""
        self.claim(on_wait)
        try:
            yield
        finally:
            self.drop()

    def _stand_in_the_gate(self, how: int = 0) -> None:
        """Beside the others who want to time; `how` may be LOCK_NB, then BlockingIOError."""
        fcntl.flock(self._way, fcntl.LOCK_SH | how)
        try:
            fcntl.flock(self._gate, fcntl.LOCK_SH | how)
        finally:
            fcntl.flock(self._way, fcntl.LOCK_UN)

    def _pass_the_gate(self) -> None:
        """Wait until nobody stands in it, and close it."""
        patience = time.monotonic() + _PATIENCE
        while not is_locked_by_us(self._gate):
            if time.monotonic() > patience:
                fcntl.flock(self._way, fcntl.LOCK_EX)
                fcntl.flock(self._gate, fcntl.LOCK_EX)
                fcntl.flock(self._way, fcntl.LOCK_UN)
                return
            time.sleep(_LOOK_AGAIN)


def card_name(device_index: int) -> str:
    """What tells a card of this machine from the others, in every process that sees it.

    The name in CUDA_VISIBLE_DEVICES, where there is one: index 0 is another card in each process
    that was given a card of its own.
    """
    names = env.CUDA_VISIBLE_DEVICES.get()
    return names[device_index] if device_index < len(names) else str(device_index)


def lock_folder() -> Path:
    """Where all processes of this user find what they lock."""
    folder = Path(tempfile.gettempdir()) / f"kernelwright-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def lock_file(device_index: int, word: str) -> int:
    """A file of a card to lock, opened: closing it, or the end of the process, unlocks it."""
    path = lock_folder() / f"gpu-{card_name(device_index)}.{word}"
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def is_locked_by_us(descriptor: int) -> bool:
    """Whether a file was free to be locked; now it is locked."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def open_lease(device_index: int, ledger: Ledger | None = None) -> Iterator[Lease]:
    """A lease that holds nothing yet; `ledger` gets what is waited for the card."""
    lease = Lease(device_index, ledger)
    try:
        yield lease
    finally:
        lease.release()
