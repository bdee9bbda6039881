"""A problem at other sizes: its module-level integer constants changed in the text."""

import ast
import io
from collections.abc import Mapping, Sequence
from itertools import accumulate

from kernelwright.problem.constants import find_constants
from kernelwright.problem.errors import UnknownConstantError, WrongSizeError
from kernelwright.problem.loading import parse_problem
from kernelwright.problem.record import Problem


def resize(problem: Problem, sizes: Mapping[str, int]) -> Problem:
    """The problem with the constants named in `sizes` at those values, all other text as it was.

        small = resize(problem, {"M": 33, "kernel_size[1]": 3})

    Raises UnknownConstantError for a name the file does not have, WrongSizeError for a value that
    is no positive integer.
    """
    for name, value in sizes.items():
        if name not in problem.constants:
            known = ", ".join(problem.constants) or "none"
            raise UnknownConstantError(
                f"{problem.path.name} has no integer constant `{name}`; it has: {known}",
                location=f"{problem.path}:1",
            )
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise WrongSizeError(f"{name} = {value!r} is no size", location=f"{problem.path}:1")
    sites = [site for site in find_constants(ast.parse(problem.source)) if site.name in sizes]
    changes = [(site.node, sizes[site.name]) for site in sites if sizes[site.name] != site.value]
    return parse_problem(problem.path, _replace(problem.source, changes))


def _replace(source: str, changes: Sequence[tuple[ast.expr, int]]) -> str:
    """`source` with the text of each expression replaced by a number."""
    lines = [line.encode() for line in io.StringIO(source, newline="")]
    starts = [0, *accumulate(len(line) for line in lines)]
    spans = []
    for node, value in changes:
        assert node.end_lineno is not None and node.end_col_offset is not None
        begin = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        spans.append((begin, end, str(value).encode()))
    text = b"".join(lines)
    for begin, end, number in sorted(spans, reverse=True):
        text = text[:begin] + number + text[end:]
    return text.decode()
