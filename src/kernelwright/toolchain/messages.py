"""What compilers say, read by words: the first error, and the line of the user's file it is about.

b.cu(9): error: identifier "x" is undefined                     nvcc's front end
main.cpp:12:5: error: 'x' was not declared in this scope        g++, clang++
ptxas /tmp/b.ptx, line 30; error   : Unknown modifier '.bar'    ptxas
ptxas error   : Entry function 'k' uses too much shared data    ptxas
/usr/bin/ld: main.o: undefined reference to `f()'               the linker
"""

import ast
from dataclasses import dataclass
from pathlib import Path

_CONTEXT_LINES = 2
"""Lines on each side that tell a line apart from another of the same words."""
_SEVERITIES = ("catastrophic error", "fatal error", "error", "fatal")
"""What compilers call what stops them; longer before shorter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """The first error of a compiler's output."""

    text: str
    """The sentence after "error:"."""
    file: str | None
    """File as the compiler names it, or None where it names none (ptxas, the linker)."""
    line: int | None
    """Line in it, from 1."""


def first_error(output: str) -> Message | None:
    """The first error in `output`, or None if no line reads like one."""
    for line in output.splitlines():
        message = _diagnostic(line) or _undefined_reference(line)
        if message is not None:
            return message
    return None


def locate(candidate: Path, generated: str, line: int) -> str | None:
    """The line of the candidate file that line `line` of `generated` comes from: "new.py:57".

    `generated` is a source text that was written from string literals of the candidate, perhaps
    with lines put in front. None if the line is not found, or if it could be one of several.
    """
    wanted = generated.splitlines()
    if not 1 <= line <= len(wanted):
        return None
    text = candidate.read_text(encoding="utf-8", errors="replace")
    for context in range(_CONTEXT_LINES + 1):
        start, stop = max(0, line - 1 - context), min(len(wanted), line + context)
        centre = line - 1 - start
        places = {
            place
            for literal in _string_literals(text)
            for place in _places(literal, wanted[start:stop], centre)
        }
        if len(places) == 1:
            return f"{candidate}:{places.pop()}"
    return None


def _diagnostic(line: str) -> Message | None:
    for severity in _SEVERITIES:
        start = line.find(severity)
        while start >= 0:
            place, text = line[:start], line[start + len(severity) :].lstrip()
            # "error: x" and ptxas's "error   : x"; not "my_error.cu: ...", not "1 error detected".
            if text.startswith(":") and not place[-1:].isalnum():
                file, number = _place(place.rstrip().removesuffix(":"))
                return Message(text=text.removeprefix(":").strip(), file=file, line=number)
            start = line.find(severity, start + 1)
    return None


def _undefined_reference(line: str) -> Message | None:
    _, found, name = line.partition("undefined reference to ")
    return Message(text=f"{found}{name}", file=None, line=None) if found else None


def _place(place: str) -> tuple[str | None, int | None]:
    """File and line of "b.cu(9)" and "main.cpp:12:5"; ptxas counts lines of its own input."""
    if place.startswith(("ptxas", "nvcc", "nvlink")):
        return None, None
    file, bracket, number = place.removesuffix(")").rpartition("(")
    if bracket and number.isdecimal():
        return file, int(number)
    parts = place.split(":")
    numbers = [part for part in parts[1:] if part.isdecimal()]
    return (parts[0], int(numbers[0])) if numbers else (None, None)


def _string_literals(text: str) -> list[tuple[int, list[str]]]:
    """First line number and lines of every string literal in a Python file."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return []
    return [
        (node.lineno, node.value.splitlines())
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]


def _places(literal: tuple[int, list[str]], window: list[str], centre: int) -> list[int]:
    """File lines of `window[centre]`, one for each place where the literal has the window."""
    first, lines = literal
    return [
        first + start + centre
        for start in range(len(lines) - len(window) + 1)
        if lines[start : start + len(window)] == window
    ]
