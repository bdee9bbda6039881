"""The driver may shut a card down that nobody has open, as between the processes of a suite."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

_DEVICES = Path("/dev")
_CARDS = "nvidia[0-9]*"


@contextmanager
def kept_awake(devices: Path = _DEVICES) -> Iterator[None]:
    """Have every card of this machine open that may be opened; does not wait for it to start."""
    with ExitStack() as stack:
        for path in sorted(devices.glob(_CARDS)):
            with suppress(OSError):  # another's card, or one that does not start
                stack.callback(os.close, os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC))
        yield
