"""Room for the tensors of several judgements in the memory of one card."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from kernelwright.worker.lease import is_locked_by_us, lock_file
from kernelwright.worker.ledger import Ledger

SEATS = 24
_PARTS = 34
"""Of the memory; what is no seat is left to the processes themselves."""
_COPIES = 3
"""Of all that a call has, which a judgement holds at a time: two processes run the same inputs, and
one of them twice; a timer and three contestants have their results side by side."""
_POLL = 0.05
_WORD = "card: memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """What one call has on a card."""

    bytes: int
    """Inputs, state and outputs."""
    largest: int
    """Bytes of the largest result of one operator."""
    memory: int
    """Bytes of the card; 0 where there is none."""

    @property
    def seats(self) -> int:
        """Of `SEATS`; 0 for a call that is small beside the card."""
        if not self.memory:
            return 0
        return min(SEATS, round(_COPIES * (self.bytes + self.largest) / self.memory * _PARTS))


class Seats:
    """A judgement's share of the memory of a card: taken when it is first needed, kept to the end.

    As with a lease, the kernel gives them back when the process ends. Whoever waits takes what
    becomes free, and is the only one to do so: who needs much is not overtaken.
    """

    def __init__(self, device_index: int, count: int, ledger: Ledger) -> None:
        """`ledger` gets what is waited."""
        self._left = count
        self._ledger = ledger
        self._turn = lock_file(device_index, "seats.lock")
        self._free = [lock_file(device_index, f"seat-{place}.lock") for place in range(SEATS)]
        self._open = (self._turn, *self._free)

    def take(self) -> None:
        """Wait for as many as were asked for; nothing the second time."""
        if not self._left:
            return
        with self._ledger.spending(_WORD):
            fcntl.flock(self._turn, fcntl.LOCK_EX)
            while not self._took_all():
                time.sleep(_POLL)
            fcntl.flock(self._turn, fcntl.LOCK_UN)

    def close(self) -> None:
        """Give them back."""
        for descriptor in self._open:
            os.close(descriptor)

    def _took_all(self) -> bool:
        for seat in tuple(self._free):
            if self._left and is_locked_by_us(seat):
                self._free.remove(seat)
                self._left -= 1
        return not self._left


@contextmanager
def open_seats(device_index: int, count: int, ledger: Ledger) -> Iterator[Seats]:
    """Seats of which none is taken yet."""
    seats = Seats(device_index, count, ledger)
    try:
        yield seats
    finally:
        seats.close()
