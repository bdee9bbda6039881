"""Changes of a text, and what goes with a statement that is taken out."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from kernelwright.kernels.pruning.tokens import Token

_INDENT = "  "
_WIDEST = 100
_SHORT_BODY = re.compile(
    r"^(?P<indent> *)(?P<head>(?!\s|if\b|for\b|while\b|switch\b|else\b|}|//).*\)(?: const)? {)\n"
    r"(?P=indent)  (?P<body>[^\s/#{}][^\n/{}]*;)\n"
    r"(?P=indent)}(?=\n|\Z)",
    re.MULTILINE,
)
"""A function whose body is one statement on a line of its own."""
_EMPTY_BODY = re.compile(r"\) {\n *}(?=\n|\Z)")
_EMPTY_LINES = re.compile(r"\n\n\n+")


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


def tidied(code: str) -> str:
    """As the house's format has it: short functions on one line, one empty line between members."""
    code = _EMPTY_LINES.sub("\n\n", _EMPTY_BODY.sub(") {}", code))
    return _SHORT_BODY.sub(_on_one_line, code)


def _on_one_line(found: re.Match[str]) -> str:
    line = f"{found['indent']}{found['head']} {found['body']} }}"
    return line if len(line) <= _WIDEST else found[0]


def _indent_at(code: str, start: int) -> str:
    line = code[code.rfind("\n", 0, start) + 1 : start]
    return line[: len(line) - len(line.lstrip())]


def dedented(code: str, start: int, body: str) -> str:
    """Lines of a branch as far to the left as the statement that they replace."""
    lines = body.split("\n")
    inner = _INDENT + _indent_at(code, start)
    moved = [line[len(_INDENT) :] if line.startswith(inner) else line for line in lines[1:]]
    return "\n".join([lines[0], *moved])
