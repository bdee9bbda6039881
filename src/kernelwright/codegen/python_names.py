"""Names that an emitted `forward` has for values, sizes and the modules that hold them."""

import builtins
import keyword
from collections import Counter

from kernelwright.codegen.python_text import (
    constant_path,
    path_expression,
)
from kernelwright.ir.graph import Graph, Node
from kernelwright.ir.kinds import Constant, Input, Parameter
from kernelwright.ir.plan import (
    Launch,
    Plan,
    Reinterpret,
    Step,
)
from kernelwright.ir.program import (
    Program,
)


def size_names(graph: Graph) -> dict[str, str]:
    """A name that says what it is for each symbolic size: `x_size0` for `x.shape[0]`."""
    taken = {node.name for node in graph.nodes}
    names: dict[str, str] = {}
    for symbol in graph.symbols:
        name = f"{symbol.input}_size{symbol.dim}"
        while name in taken:
            name += "_"
        if symbol.dim is not None:
            names[symbol.name] = name
    return names


class Values:
    """Values of a program as Python text: arguments, and what the module keeps."""

    def __init__(self, program: Program) -> None:
        self._program = program
        plan = program.plan
        self._plan = plan
        self._graph: Graph = plan.graph
        # What kernels make for another alone has no node, nor has memory that several write to.
        made = (it.results if isinstance(it, Launch) else (it.result,) for it in plan.steps)
        self._text: dict[str, str] = {name: name for names in made for name in names}
        self._text |= {node.name: _leaf_text(node) for node in plan.graph.nodes}
        self._launched = _reaching_launches(plan)
        self._modules = _module_names(plan.graph, self._launched)
        for node in plan.graph.nodes:
            if isinstance(node.kind, Parameter):
                self._text[node.name] = self._place(node.kind.path)
        self._kept = _given_name("kept", plan.graph)
        self._has_table = any(segment.kept for segment in program.segments)

    def _place(self, path: str) -> str:
        """Where a parameter or buffer is found."""
        parent, _, last = path.rpartition(".")
        if parent not in self._modules:
            return path_expression(path)
        return path_expression(last).replace("self", self._modules[parent], 1)


def _leaf_text(node: Node) -> str:
    match node.kind:
        case Input(argument):
            return argument
        case Parameter(path):
            return path_expression(path)
        case Constant(path, _):
            return path_expression(path or constant_path(node))
    return node.name


def _reaching_launches(plan: Plan) -> frozenset[str]:
    """What launches read, through views or not."""
    found = {name for step in plan.steps for name in launch_inputs(step)}
    for step in reversed(plan.steps):
        if isinstance(step, Reinterpret) and step.result in found:
            found.add(step.input)
    return frozenset(found)


def _module_names(graph: Graph, launched: frozenset[str]) -> dict[str, str]:
    """A name for each module of which launches read several tensors, by its path.

    Finding `self.layers[0].norm` takes Python as long as launching a kernel.
    """
    parents = [
        node.kind.path.rpartition(".")[0]
        for node in graph.nodes
        if isinstance(node.kind, Parameter) and node.name in launched
    ]
    taken = {*_taken(graph), _given_name("kept", graph)}
    names: dict[str, str] = {}
    for path, count in Counter(parents).items():
        name = path.replace(".", "_")
        if not path or count < 2 or not name.isidentifier() or name.startswith("_"):
            continue
        while name in taken or keyword.iskeyword(name):
            name += "_"
        taken.add(name)
        names[path] = name
    return names


def _taken(graph: Graph) -> set[str]:
    """Names that `forward` has for other things."""
    taken = {"device", "torch", "self", *(node.name for node in graph.nodes), *dir(builtins)}
    return taken | {name for pair in size_names(graph).items() for name in pair}


def _given_name(name: str, graph: Graph) -> str:
    """A name in `forward` that nothing else has."""
    taken = _taken(graph)
    while name in taken:
        name += "_"
    return name


def launch_inputs(step: Step) -> tuple[str, ...]:
    """What a step reads, if it is a launch."""
    return step.inputs if isinstance(step, Launch) else ()
