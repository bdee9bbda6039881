"""The body of the emitted `forward`: checks, then the work."""

from collections.abc import Mapping
from dataclasses import dataclass

from kernelwright.codegen.python_checks import Checks
from kernelwright.codegen.python_names import size_names
from kernelwright.codegen.python_text import (
    renamed,
    words,
)
from kernelwright.codegen.python_work import Work
from kernelwright.ir.program import (
    Program,
)


def forward_body(program: Program) -> tuple[str, ...]:
    """Statements of `forward`, without indentation of its own."""
    plan = program.plan
    names = size_names(plan.graph)
    work = [renamed(line, names) for line in Work(program).work()]
    mentioned = words(" ".join(work))
    checks = [renamed(line, names) for line in Checks(program).checks(mentioned)]
    if plan.kernels and plan.left_to_pytorch:
        # PyTorch would record a graph for a backward that the kernels do not have.
        return (*checks, "with torch.no_grad():", *(f"    {line}" for line in work))
    return (*checks, *work)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """What kernels read of the module, as Python text."""

    checked: Mapping[str, str]
    """Dtype and sizes of each parameter and buffer, by its dotted path."""
    operands: tuple[str, ...]
    """Statements of the function that lists them for each native call."""
    calls: tuple[str, ...]
    """Native calls that get them packed."""


def parameters(program: Program) -> Parameters | None:
    """The parameters that segments read; None where there are none."""
    calls = tuple(f"launch_{it.name}" for it in program.segments if it.kept)
    if not calls:
        return None
    writer = Checks(program)
    checked = {path: f"({kind}, {sizes})" for path, _, kind, sizes in writer.parameters()}
    return Parameters(checked=checked, operands=tuple(writer.operands()), calls=calls)
