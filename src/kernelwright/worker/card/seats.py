"""Room for the tensors of several judgements in the memory of one card."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from kernelwright.worker.card.lease import is_locked_by_us, lock_file
from kernelwright.worker.card.ledger import Ledger

SEATS = 18
"""For those who need many."""
FEW_SEATS = 7
"""For those who need few, who do not wait for the others."""
FEW = 3
_PARTS = 34
"""Parts of the memory; what is no seat is left to the processes themselves."""
_COPIES = 3
"""Copies of all that a call has which a judgement holds: two processes run the same inputs, and
one of them twice; a timer and three contestants have their results side by side."""
_BETWEEN = 6
"""Copies of what lies between operators and is larger than a call's ends: in float64 as well."""
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
        """How many of `SEATS`; 0 for a call that is small beside the card."""
        if not self.memory:
            return 0
        between = max(0, self.largest - self.bytes // 2)
        held = _COPIES * self.bytes + _BETWEEN * between
        return min(SEATS, round(held / self.memory * _PARTS))


class Seats:
    """A judgement's share of the memory of a card: taken when it is needed, kept to the end.

    It may give some back in between. As with a lease, the kernel gives them back when the process
    ends. Of those who need many one alone takes what becomes free, and of those who need few:
    nobody is overtaken.
    """

    def __init__(self, device_index: int, count: int, ledger: Ledger) -> None:
        """`ledger` gets what is waited."""
        self._count = count
        self._taken: list[int] = []
        self._ledger = ledger
        kind, places = ("few", FEW_SEATS) if count <= FEW else ("many", SEATS)
        self._turn = lock_file(device_index, f"{kind}-seats.lock")
        self._all = [lock_file(device_index, f"{kind}-{place}.lock") for place in range(places)]

    @property
    def has_all(self) -> bool:
        """Whether none is left to be taken."""
        return len(self._taken) == self._count

    def take(self) -> None:
        """Wait for as many as were asked for; nothing where they are here."""
        if self.has_all:
            return
        self._keep(0)  # who waits has none: two that have some would wait for each other
        with self._ledger.spending(_WORD):
            fcntl.flock(self._turn, fcntl.LOCK_EX)
            while not self._took_all():
                time.sleep(_POLL)
            fcntl.flock(self._turn, fcntl.LOCK_UN)

    def halve(self) -> None:
        """Give back what is not needed for one call at a time."""
        self._keep((self._count + 1) // 2)

    def close(self) -> None:
        """Give them back."""
        for descriptor in (self._turn, *self._all):
            os.close(descriptor)

    def _keep(self, count: int) -> None:
        while len(self._taken) > count:
            fcntl.flock(self._taken.pop(), fcntl.LOCK_UN)

    def _took_all(self) -> bool:
        for seat in self._all:
            if not self.has_all and seat not in self._taken and is_locked_by_us(seat):
                self._taken.append(seat)
        return self.has_all


@contextmanager
def open_seats(device_index: int, count: int, ledger: Ledger) -> Iterator[Seats]:
    """Seats of which none is taken yet."""
    seats = Seats(device_index, count, ledger)
    try:
        yield seats
    finally:
        seats.close()
