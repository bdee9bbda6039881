"""The emitted file."""

import ast
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from kernelwright.codegen.constructor import Kept, keep, keep_nothing
from kernelwright.codegen.cuda import CudaText, cuda_text
from kernelwright.codegen.docstring import docstring
from kernelwright.codegen.families import asks_for_tf32
from kernelwright.codegen.kernel_text import TEMPLATES
from kernelwright.codegen.python import forward_body, parameters
from kernelwright.codegen.python_schemas import operators
from kernelwright.codegen.python_text import TORCH_DTYPE, constant_path, number
from kernelwright.ir.calls import instances
from kernelwright.ir.graph import Node
from kernelwright.ir.kinds import Constant
from kernelwright.ir.plan import Plan, Step, TorchCall
from kernelwright.ir.program import Program
from kernelwright.problem import Problem
from kernelwright.program import program_of
from kernelwright.rewrite import Applied


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A file with `ModelNew`, ours: its text and what is in it."""

    source: str
    """The whole Python file."""
    cuda_source: str
    """The CUDA text inside, "" when everything is left to PyTorch."""
    plan: Plan


def emit(
    problem: Problem, plan: Plan, applied: tuple[Applied, ...], measured: tuple[str, ...] = ()
) -> Candidate:
    """The file for `problem` as `plan` computes it; `measured`: lines of results to show in it."""
    returned = instances(plan.graph.returns)
    own = {it.name.partition(".")[0] for it in returned if it.module is None}
    kept = keep(problem.source, frozenset(own))
    text = docstring(problem, plan, applied, measured)
    return _render(problem.name, kept, plan, text, _Build.ON_IMPORT)


def emit_module(name: str, arguments: str, plan: Plan) -> Candidate:
    """The text for a module that exists in memory: `ModelNew.forward` is called with that as self.

    `arguments` are those of its `forward`, self included. The constructor of `ModelNew` makes only
    the constants that the plan needs besides. Importing the text builds nothing: the first call
    does. UnsupportedError where an argument has a name that the text needs.
    """
    text = f"The kernels of {name}, by kernelwright."
    return _render(name, keep_nothing(arguments), plan, text, _Build.ON_FIRST_CALL)


class _Build(Enum):
    """When the kernels are compiled."""

    ON_IMPORT = "on import"
    ON_FIRST_CALL = "on first call"


def _render(name: str, kept: Kept, plan: Plan, text: str, build: _Build) -> Candidate:
    program = program_of(plan)
    cuda = cuda_text(program) if plan.kernels else CudaText(library="", kernels="")
    schemas = operators(program)
    called = [launch.removeprefix("launch_") for launch in schemas]
    digest = hashlib.sha256(cuda.whole.encode()).hexdigest()[:12]
    source = TEMPLATES.get_template("script.py.jinja").render(
        docstring=text,
        kept=replace(kept, imports=_with_classes(kept.imports, plan)),
        kernels=plan.kernels,
        kernels_text=cuda.kernels,
        library_text=cuda.library,
        schemas=schemas,
        has_segments=bool(program.segments),
        has_numbers=any(not it.startswith("Tensor") for it in _arguments(schemas)),
        parameters=parameters(program),
        raises=bool(plan.kernels or plan.graph.guards),
        built_on_import=build is _Build.ON_IMPORT,
        convolves=any(_is_channels_last(step) for step in plan.steps),
        asking=list(_asking(program)),
        with_workspace=[it for it in called if it in cuda.with_workspace],
        library=f"kernelwright_{_identifier(name)}_{digest}",
        methods=_constructor(kept, plan),
        forward=forward_body(program),
    )
    whole = cuda.whole if plan.kernels else ""
    return Candidate(source=_tidy(source), cuda_source=whole, plan=plan)


def _arguments(schemas: Mapping[str, str]) -> Iterator[str]:
    """The type and the name of each argument of native calls, which segments have in lists."""
    return (argument for schema in schemas.values() for argument in schema.split(", "))


def _with_classes(imports: tuple[str, ...], plan: Plan) -> tuple[str, ...]:
    """Imports of the user's, and those of the classes that a call returns."""
    lines = (instance.import_line for instance in instances(plan.graph.returns))
    return tuple(dict.fromkeys((*imports, *(line for line in lines if line is not None))))


def _asking(program: Program) -> Iterator[str]:
    """Native calls that ask whether the user allows TF32."""
    yield from (kernel.name for kernel in program.called if asks_for_tf32(kernel))
    for segment in program.segments:
        if any(asks_for_tf32(launch.kernel) for launch in segment.launches):
            yield segment.name


def _is_channels_last(step: Step) -> bool:
    return isinstance(step, TorchCall) and step.channels_last is not None


def _identifier(name: str) -> str:
    return "".join(char if char.isalnum() else "_" for char in name)


def _constructor(kept: Kept, plan: Plan) -> tuple[str, ...]:
    """The user's methods; `__init__` first refuses other arguments and last adds constants."""
    constants = [
        node
        for node in plan.graph.nodes
        if isinstance(node.kind, Constant) and node.kind.path is None
    ]
    if not constants:
        return kept.methods
    methods = list(kept.methods)
    if not any(_is_init(method) for method in methods):
        head = ("    def __init__(self, *args, **kwargs):", "super().__init__(*args, **kwargs)")
        methods.insert(0, "\n        ".join(head))
    return tuple(
        "\n".join([method, *_registrations(method, constants)]) if _is_init(method) else method
        for method in methods
    )


def _registrations(method: str, constants: list[Node]) -> list[str]:
    """Statements for the end of a constructor, as deep as its last one."""
    (function,) = ast.parse(f"if True:\n{method}").body[0].body  # type: ignore[attr-defined]
    blanks = " " * int(function.body[-1].col_offset)
    own_name = [*function.args.posonlyargs, *function.args.args][0].arg
    return [f"{blanks}{own_name}.{_register(node)}" for node in constants]


def _is_init(method: str) -> bool:
    return method.lstrip().startswith("def __init__(")


def _register(node: Node) -> str:
    assert isinstance(node.kind, Constant)
    shape = tuple(dim.hint for dim in node.tensor.shape)
    elements = ", ".join(number(value) for value in node.kind.values)
    values = f"torch.tensor([{elements}], dtype={TORCH_DTYPE[node.tensor.dtype]})"
    buffer = f"{values}.reshape({shape!r})"
    return f"register_buffer({constant_path(node)!r}, {buffer}, persistent=False)"


def _tidy(source: str) -> str:
    """Without trailing blanks, and never more than two empty lines in a row."""
    text = "\n".join(line.rstrip() for line in source.splitlines()) + "\n"
    while "\n\n\n\n" in text:
        text = text.replace("\n\n\n\n", "\n\n\n")
    return text
