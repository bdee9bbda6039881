"""Taking turns on a card: variants are timed alone on it, and others have it while we compile.

    with Turns(device_index) as turns:
        tune(variants, turns.alone(timer), compile_all=turns.while_compiling(compile_libraries),
             clock=turns.clock, ...)

Whoever waits for the card goes on compiling, so that the next turn has more to time: the busier the
card, the fewer and longer the turns.
"""

import threading
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Self

from kernelwright.errors import KernelwrightError
from kernelwright.tune.tuner import CompileAll, Failure, Measure, Timing, Variant
from kernelwright.worker.card.lease import Lease

_Compiled = tuple[int, Path | KernelwrightError]


class Turns:
    """One tuner's turns on one card; a context that ends with the card free."""

    def __init__(self, device_index: int) -> None:
        self._lease = Lease(device_index)
        self._mine = False
        self._waited = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._lease.release()

    def clock(self) -> float:
        """Seconds that go on while we work, and stand still while others have the card."""
        return time.monotonic() - self._waited

    def alone(self, measure: Measure) -> Measure:
        """The measurement, on a card that nobody else uses."""

        def measure_alone(variant: Variant, library: Path) -> Timing | Failure:
            self._take()
            return measure(variant, library)

        return measure_alone

    def while_compiling(
        self, compile_all: CompileAll, meanwhile: Callable[[], None] = lambda: None
    ) -> CompileAll:
        """The compiling, during which others have the card whenever nothing is ready to be timed.

        `meanwhile` is called once when compiling has begun.
        """

        def compile_and_share(
            sources: Sequence[str], seconds: float
        ) -> Generator[_Compiled, None, None]:
            ready = _Ready(lambda: compile_all(sources, seconds))
            try:
                meanwhile()
                while item := ready.next(before_waiting=self._drop):
                    yield item
            finally:
                ready.stop()

        return compile_and_share

    def _take(self) -> None:
        if not self._mine:
            began = time.monotonic()
            self._lease.claim(lambda: None)
            self._waited += time.monotonic() - began
            self._mine = True

    def _drop(self) -> None:
        self._lease.drop()
        self._mine = False


_SIDE_BY_SIDE = 2
"""Variants for each core that are waited for together."""


def in_one_turn(compile_all: CompileAll, cores: int) -> CompileAll:
    """The compiling; few variants come all together, when the last of them is ready.

    Each turn on a card that others use costs them more than the timing of a variant takes.
    """

    def compile_together(
        sources: Sequence[str], seconds: float
    ) -> Generator[_Compiled, None, None]:
        found = compile_all(sources, seconds)
        try:
            yield from list(found) if len(sources) <= cores * _SIDE_BY_SIDE else found
        finally:
            found.close()

    return compile_together


class _Ready:
    """What a generator has given so far; it runs in a thread of its own."""

    def __init__(self, make: Callable[[], Generator[_Compiled, None, None]]) -> None:
        self._items: SimpleQueue[_Compiled | BaseException | None] = SimpleQueue()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(make,), daemon=True)
        self._thread.start()

    def next(self, before_waiting: Callable[[], None]) -> _Compiled | None:
        """The next item, None at the end; `before_waiting` is called if it is not there yet."""
        try:
            item = self._items.get_nowait()
        except Empty:
            before_waiting()
            item = self._items.get()
        if isinstance(item, BaseException):
            raise item
        return item

    def stop(self) -> None:
        """Nobody wants more."""
        self._stopped.set()

    def _run(self, make: Callable[[], Generator[_Compiled, None, None]]) -> None:
        try:
            items = make()
            try:
                for item in items:
                    self._items.put(item)
                    if self._stopped.is_set():
                        break
            finally:
                items.close()
        except BaseException as error:
            self._items.put(error)
        self._items.put(None)
