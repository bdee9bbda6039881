"""The record that every later stage starts from."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """The text of a problem file and what can be read in it without running it."""

    path: Path
    """The file it came from; messages and line numbers refer to it, also after a resize."""
    source: str
    """The whole text, with the line ends of the file."""
    name: str
    """The file's stem, for example "linear_relu_div"."""
    constants: Mapping[str, int]
    """Module-level integers by name; "kernel_size[1]" is the second element of a tuple or list."""
    lines: Mapping[str, int]
    """Line numbers, from 1, of "Model", "forward", "get_inputs" and "get_init_inputs"; a name
    that the file imports or inherits from elsewhere has none."""

    def location(self, name: str) -> str:
        """`file:line` of one of the names in `lines`; the file's first line where there is none."""
        return f"{self.path}:{self.lines.get(name, 1)}"
