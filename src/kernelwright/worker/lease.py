"""Who may use a GPU now: many may verify on a card together, one alone may time on it."""

import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


class Lease:
    """A lock on one card, held through a file that all processes of this user see.

    The kernel drops it with the process, however that ends. Changing from shared to alone lets go
    first, so two holders that both want to time cannot block each other.
    """

    def __init__(self, device_index: int) -> None:
        folder = Path(tempfile.gettempdir()) / f"kernelwright-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        self._descriptor = os.open(
            folder / f"gpu-{device_index}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
        )

    def share(self) -> None:
        """Wait until nobody times on the card, and keep others from doing so."""
        fcntl.flock(self._descriptor, fcntl.LOCK_SH)

    def claim(self, on_wait: Callable[[], None]) -> None:
        """Wait until nobody else uses the card; `on_wait` is called once if that takes time."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)

    def release(self) -> None:
        """Let others have it."""
        os.close(self._descriptor)


@contextmanager
def shared_lease(device_index: int) -> Iterator[Lease]:
    """A shared lease that `claim` can turn into an exclusive one."""
    lease = Lease(device_index)
    try:
        lease.share()
        yield lease
    finally:
        lease.release()
