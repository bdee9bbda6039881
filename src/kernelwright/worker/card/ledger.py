"""Where the wall time of one judgement goes: an account of every wait of its parent.

The parent computes next to nothing: it waits, for one process at a time or for the card. So the
waits, each under the word of what was waited for, add up to the time that a judgement takes.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

_LEAST = 0.05
"""Seconds: less than this in all is left out."""
_MOST_WORDS = 64


class Ledger:
    """Adds up seconds by word; used by one thread."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    def add(self, word: str, seconds: float) -> None:
        """So many seconds more went there."""
        self._seconds[word] = self._seconds.get(word, 0.0) + seconds

    def include(self, word: str, parts: Mapping[str, float]) -> None:
        """Parts of what went to `word`, which is left with the rest."""
        for name, seconds in parts.items():
            self.add(f"{word}, {name}", seconds)
            self.add(word, -seconds)

    @contextmanager
    def spending(self, word: str) -> Iterator[None]:
        """What the block takes goes to `word`."""
        start = time.monotonic()
        try:
            yield
        finally:
            self.add(word, time.monotonic() - start)

    @property
    def total(self) -> float:
        """Seconds of all words together."""
        return sum(self._seconds.values())

    def take(self) -> Mapping[str, float]:
        """All of it, to be included elsewhere; none of it is here any more."""
        seconds, self._seconds = self._seconds, {}
        return seconds

    def entries(self) -> dict[str, float]:
        """Seconds by word, the largest first; words of hardly any are left out."""
        kept = {word: round(it, 2) for word, it in self._seconds.items() if it >= _LEAST}
        longest = sorted(kept.items(), key=lambda entry: -entry[1])
        return dict(longest[:_MOST_WORDS])
