"""Neighbours of a growing group, in the order of the graph."""

from collections.abc import Iterable, Iterator, Mapping
from heapq import heappop, heappush


class InOrder:
    """Names of nodes, each once, in the order of the graph or against it, while more come."""

    def __init__(self, places: Mapping[str, int], *, forwards: bool) -> None:
        self._places = places
        self._sign = 1 if forwards else -1
        self._heap: list[tuple[int, str]] = []
        self._seen: set[str] = set()

    def add(self, names: Iterable[str]) -> None:
        """Names that come after the one that was given last."""
        for name in names:
            if name not in self._seen:
                self._seen.add(name)
                heappush(self._heap, (self._sign * self._places[name], name))

    def __iter__(self) -> Iterator[str]:
        while self._heap:
            yield heappop(self._heap)[1]
