"""Names of a graph's nodes: which are taken, and which is free next."""

import keyword
from collections.abc import Iterable

RESERVED = frozenset(
    {*keyword.kwlist, *keyword.softkwlist, "self", "torch", "nn", "math", "device"}
)
"""Names that the text of an emitted file needs for itself."""


class Names:
    """Names in use. A loop of n steps asks for n names of one stem, so numbers are remembered."""

    def __init__(self) -> None:
        self._taken: set[str] = set(RESERVED)
        self._numbers: dict[str, int] = {}
        """For a stem a number n: the stem and all of stem_1 to stem_n are taken."""

    def take(self, names: Iterable[str]) -> None:
        """Leave these names to others."""
        self._taken.update(names)

    def claim(self, name: str) -> str:
        """A free name like `name`, numbered where that is taken; it is taken from now on."""
        stem = "".join(letter if letter.isalnum() else "_" for letter in name).strip("_") or "value"
        stem = f"value_{stem}" if stem[0].isdigit() else stem
        number = self._numbers.get(stem, 0)
        unique = f"{stem}_{number}" if number else stem
        while unique in self._taken:
            number += 1
            unique = f"{stem}_{number}"
        self._numbers[stem] = number
        self._taken.add(unique)
        return unique

    def release(self, name: str) -> None:
        """Make a claimed name free again."""
        self._taken.discard(name)
        self._numbers.pop(name, None)
        stem, _, number = name.rpartition("_")
        if number.isdecimal() and self._numbers.get(stem, 0) >= int(number):
            self._numbers[stem] = int(number) - 1
