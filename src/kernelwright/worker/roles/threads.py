"""Which threads a file has started, and which of them still run when a call returns."""

import inspect
import sys
import threading
from functools import wraps
from pathlib import Path
from types import FrameType
from typing import Any

_MACHINERY = (Path(threading.__file__).parent / "concurrent", Path(threading.__file__))
"""What starts threads on somebody else's behalf."""


class ThreadWatch:
    """Remembers every thread that `path` starts, from now on.

    A thread counts as started by the nearest caller outside of the standard library's pools: what
    PyTorch's compiler starts while a file calls it is PyTorch's.
    """

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        self._threads: list[threading.Thread] = []
        # Not on top of another watch: only the latest candidate of a process is watched.
        start = inspect.unwrap(threading.Thread.start)

        @wraps(start)
        def watched(thread: threading.Thread, *args: Any, **keywords: Any) -> None:
            if self._is_ours(sys._getframe(1)):
                self._threads.append(thread)
            start(thread, *args, **keywords)

        # For good: the process belongs to the candidate, and ends with it.
        threading.Thread.start = watched  # type: ignore[method-assign, assignment]

    def alive(self) -> tuple[str, ...]:
        """Names of those that have not ended."""
        return tuple(thread.name for thread in self._threads if thread.is_alive())

    def _is_ours(self, frame: FrameType | None) -> bool:
        while frame is not None and _is_machinery(frame.f_code.co_filename):
            frame = frame.f_back
        return frame is not None and frame.f_code.co_filename == self._path


def _is_machinery(file: str) -> bool:
    return any(file.startswith(str(place)) for place in _MACHINERY)
