"""torch.compile at work on its module while others are judged."""

from collections.abc import Callable, Set
from contextlib import suppress

from kernelwright.errors import KernelwrightError
from kernelwright.verify.cases import Case, Sizes
from kernelwright.verify.records import to_plain
from kernelwright.worker.card.seats import Footprint
from kernelwright.worker.process.child_process import ChildProcess
from kernelwright.worker.process.requests import CaseRequest

ROOM_TO_COMPILE = 2 << 30
"""Bytes of a call up to which it is made once more while others run."""


class EarlyCompile:
    """Lets the compiled baseline compile as soon as there is room for one more call."""

    def __init__(self, child: Callable[[], ChildProcess | None], seconds: float) -> None:
        """`child` has been launched and is nobody's yet; `seconds` is the longest it may take."""
        self.by_itself = 0
        """Bytes of a call up to which it compiles as soon as it has started, unasked."""
        self._child = child
        self._seconds = seconds
        self._begun = False

    def begin(self, size: int, most: int) -> None:
        """Let it work meanwhile, once, if a call of `size` bytes takes no more than `most`."""
        child = self._child()
        if child is None or self._begun or not self.by_itself < size <= most:
            return
        self._begun = True
        request = to_plain(CaseRequest(case=Case()))
        with suppress(KernelwrightError):  # it is asked again when it is to be timed
            child.begin("compile", request, self._seconds)

    def begin_beside(self, case: Case, footprint: Footprint, own: Sizes, seen: Set[Sizes]) -> None:
        """Let it work while `case` runs, if nobody has to wait for the start of its process."""
        child = self._child()
        if child is not None and child.has_started():
            room = room_beside(case, footprint, own, seen)
            self.begin(footprint.bytes + footprint.largest, room)

    def finish(self) -> None:
        """Wait for what was begun."""
        if child := self._child():
            child.finish()


def room_beside(case: Case, footprint: Footprint, own: Sizes, seen: Set[Sizes]) -> int:
    """Bytes of a call that may be made beside `case`, after cases at the sizes `seen`.

    All that the card has where only smaller ones than its `own` are left: its share of the memory
    lies idle then.
    """
    went_on = case.sizes != own and case.sizes in seen
    return footprint.memory if went_on else ROOM_TO_COMPILE
