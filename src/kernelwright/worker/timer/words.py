"""A page of memory that two processes share: a few words to hold each other by.

The timer stamps its clock when it writes "gate" or "go" and when it sees "done", so the time of a
call is taken outside the process that makes it. Writing a word takes well below a microsecond.
"""

import ctypes
import mmap
import os
import tempfile
import time
from enum import IntEnum
from pathlib import Path

PAGE = mmap.PAGESIZE
_STRIDE = 16
"""32-bit words between two of ours: a cache line."""
_MEMORY_FOLDER = Path("/dev/shm")


class Word(IntEnum):
    """What a word is for; each holds the number of the latest turn that it was reached in."""

    GATE = 0
    """Written by the timer: the inputs are there and the device may begin."""
    GO = 1
    """Written by the timer: the host may begin."""
    READY = 2
    """The call is about to be made."""
    QUEUED = 3
    """The call has returned, and what it launched waits behind the gate; or, where the host's time
    is taken, the device has turned to this process."""
    DONE = 4
    """The device has nothing left to do."""


def make_words_folder(fallback: Path) -> Path:
    """A new private folder in memory, which a device can be given the address of."""
    parent = _MEMORY_FOLDER if os.access(_MEMORY_FOLDER, os.W_OK) else fallback
    return Path(tempfile.mkdtemp(prefix="kernelwright-words-", dir=parent))


def words_of(folder: Path, name: str) -> Path:
    """The page of that name; made, all words zero, when it is first asked for."""
    path = folder / f"{name}.words"
    if not path.exists():
        path.write_bytes(bytes(PAGE))
    return path


class Words:
    """The page behind a file, mapped here."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), PAGE)
        self._words = memoryview(self._memory).cast("I")
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        """Where the page lies in this process."""

    def place(self, word: Word) -> int:
        """Bytes from the start of the page to a word."""
        return int(word) * _STRIDE * 4

    def set(self, word: Word, turn: int) -> None:
        """Write a word."""
        self._words[word * _STRIDE] = turn

    def wait(self, word: Word, turn: int, seconds: float) -> bool:
        """Spin until a word is `turn`; False if that takes too long."""
        place, deadline = word * _STRIDE, time.perf_counter() + seconds
        while self._words[place] != turn:
            if time.perf_counter() > deadline:
                return False
        return True
