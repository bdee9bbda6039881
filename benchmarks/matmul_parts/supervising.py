"""Measure many things in one process, and go on where that process hangs or dies.

A kernel that never ends, or that breaks the CUDA context, costs its own case and a new process for
the cases after it: every row says what became of its case.
"""

import multiprocessing
import time
from collections import deque
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection
from typing import Any, Protocol, TypeVar

import torch

from matmul_parts.building import describe

Row = dict[str, Any]
"""What was found out about a case, JSON-ready; has "case" and "status"."""
MEASURED, FAILED, NOT_RUN = "measured", "failed", "not run"
_START_SECONDS = 30.0
"""Added to the patience with the first case of a process, which imports torch."""


class Named(Protocol):
    """A case of some kind."""

    @property
    def name(self) -> str:
        """What its row calls it."""
        ...


Item = TypeVar("Item", bound=Named)


def failed(name: str, message: str) -> Row:
    """The row of a case that gave no numbers."""
    return {"case": name, "status": FAILED, "message": message}


def headline(row: Row) -> str:
    """The first line of why a case has no numbers; the row has the rest."""
    return str(row["message"]).partition("\n")[0][:160]


def measure_all(
    measure: Callable[[Item], Row],
    items: Iterable[Item],
    *,
    patience: float,
    seconds: float,
    on_row: Callable[[Row], None],
) -> None:
    """Hand `on_row` a row for each item, in order, at once when it is known.

    `measure` is a function of a module, as it runs in a spawned process. A case may take `patience`
    seconds; none is begun when `seconds` have passed.
    """
    deadline = time.monotonic() + seconds
    pending = deque(items)
    while pending and time.monotonic() < deadline:
        _one_process(measure, pending, patience, deadline, on_row)
    for item in pending:
        on_row({"case": item.name, "status": NOT_RUN, "message": "out of time"})


def _one_process(
    measure: Callable[[Item], Row],
    pending: deque[Item],
    patience: float,
    deadline: float,
    on_row: Callable[[Row], None],
) -> None:
    """Measure from the left of `pending` until all is done, time is up, or the process is lost."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(there, measure))
    process.start()
    there.close()
    wait = patience + _START_SECONDS
    try:
        while pending and time.monotonic() < deadline:
            item = pending.popleft()
            here.send(item)
            if not here.poll(wait):
                on_row(failed(item.name, f"no answer in {wait:.0f} s"))
                return
            row, usable = here.recv()
            on_row(row)
            wait = patience
            if not usable:
                return
    except (EOFError, OSError):
        process.join(10)
        on_row(failed(item.name, f"the process died, exit code {process.exitcode}"))
    finally:
        here.close()
        process.join(5)
        if process.is_alive():
            process.kill()
            process.join()


def _serve(connection: Connection, measure: Callable[[Item], Row]) -> None:
    while True:
        try:
            item = connection.recv()
        except EOFError:
            return
        started = time.perf_counter()
        try:
            row = measure(item)
        except Exception as error:
            row = failed(item.name, describe(error))
        row["seconds"] = round(time.perf_counter() - started, 2)
        connection.send((row, _context_is_whole()))


def _context_is_whole() -> bool:
    """Whether the device still works after what the last case did to it."""
    if not torch.cuda.is_available():
        return True
    try:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
    except RuntimeError:
        return False
    return True
