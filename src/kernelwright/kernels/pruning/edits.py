"""Changes of a text, and what goes with a statement that is taken out."""

from collections.abc import Sequence
from dataclasses import dataclass

from kernelwright.kernels.pruning.tokens import Token

_INDENT = "  "


@dataclass(frozen=True, slots=True)
class Edit:
    """A part of the text, and what stands there instead."""

    start: int
    end: int
    text: str


def text_of(code: str, tokens: Sequence[Token], begin: int, end: int) -> str:
    return code[tokens[begin].start : tokens[end - 1].end] if begin < end else ""


def without_line(code: str, start: int, end: int) -> Edit:
    """Nothing in the place of a statement: nor the rest of its line, nor the comment above it."""
    line = code.rfind("\n", 0, start) + 1
    if code[line:start].strip():
        return Edit(start, end, "")
    rest = code.find("\n", end)
    rest = len(code) if rest < 0 else rest
    if code[end:rest].strip() and not code[end:rest].lstrip().startswith("//"):
        return Edit(start, end, "")
    while line > 0:
        above = code.rfind("\n", 0, line - 1) + 1
        if not code[above:line].lstrip().startswith("//"):
            break
        line = above
    return Edit(line, min(rest + 1, len(code)), "")


def _indent_at(code: str, start: int) -> str:
    line = code[code.rfind("\n", 0, start) + 1 : start]
    return line[: len(line) - len(line.lstrip())]


def dedented(code: str, start: int, body: str) -> str:
    """Lines of a branch as far to the left as the statement that they replace."""
    lines = body.split("\n")
    inner = _INDENT + _indent_at(code, start)
    moved = [line[len(_INDENT) :] if line.startswith(inner) else line for line in lines[1:]]
    return "\n".join([lines[0], *moved])
