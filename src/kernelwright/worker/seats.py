"""Room for the tensors of several judgements in the memory of one card."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from kernelwright.worker.lease import is_locked_by_us, lock_file
from kernelwright.worker.ledger import Ledger

SEATS = 18
"""For those who need many."""
FEW_SEATS = 7
"""For those who need few, who do not wait for the others."""
FEW = 3
_PARTS = 34
"""Of the memory; what is no seat is left to the processes themselves."""
_COPIES = 3
"""Of all that a call has, which a judgement holds at a time: two processes run the same inputs, and
one of them twice; a timer and three contestants have their results side by side."""
_BETWEEN = 6
"""Of what lies between the operators of a call and is larger than its ends: in float64 as well."""
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
        between = max(0, self.largest - self.bytes // 2)
        held = _COPIES * self.bytes + _BETWEEN * between
        return min(SEATS, round(held / self.memory * _PARTS))


class Seats:
    """A judgement's share of the memory of a card: taken when it is first needed, kept to the end.

    As with a lease, the kernel gives them back when the process ends. Of those who need many one
    alone takes what becomes free, and of those who need few: nobody is overtaken.
    """

    def __init__(self, device_index: int, count: int, ledger: Ledger) -> None:
        """`ledger` gets what is waited."""
        self._left = count
        self._ledger = ledger
        kind, places = ("few", FEW_SEATS) if count <= FEW else ("many", SEATS)
        self._turn = lock_file(device_index, f"{kind}-seats.lock")
        self._free = [lock_file(device_index, f"{kind}-{place}.lock") for place in range(places)]
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
