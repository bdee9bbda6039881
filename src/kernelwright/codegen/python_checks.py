"""Statements before the work of an emitted `forward`, and what its kernels read of the module."""

from collections.abc import Iterator, Set

from kernelwright.codegen.python_names import Values, launch_inputs
from kernelwright.codegen.python_text import (
    TORCH_DTYPE,
    constant_path,
    path_expression,
    quoted,
    tuple_text,
    view_text,
    words,
    wrapped,
)
from kernelwright.ir.graph import Node, Symbol
from kernelwright.ir.kinds import Constant, Parameter
from kernelwright.ir.plan import (
    Launch,
    Reinterpret,
    Room,
    Step,
    TorchCall,
    sizes_used,
)
from kernelwright.ir.types import Dim, DType, ScalarType, TensorType


class Checks(Values):
    """Statements before the work, and what kernels read of the module."""

    def checks(self, mentioned: Set[str]) -> Iterator[str]:
        """Refuse bad input before anything runs, and name what the work mentions."""
        if self._plan.kernels or self._mentions_device():
            yield f"device = {self._device()}"
        yield from self._input_checks()
        for path, name in self._modules.items():
            if name in mentioned or not self._has_table:
                yield f"{name} = {path_expression(path)}"
        if self._has_table:
            yield f"{self._kept} = _parameters(self, device)"
        elif self._plan.kernels:
            for path, text, kind, sizes in self.parameters():
                name = quoted(path_expression(path).removeprefix("self."))
                yield f"_expect({name}, {text}, {kind}, {sizes}, device)"
        for guard in self._graph.guards:
            yield f"if not ({guard.condition}):"
            yield f"    raise InputError({quoted(guard.message)})"

    def _input_checks(self) -> Iterator[str]:
        """One for each argument, after which the sizes that are read from it have names."""
        launched = {name for step in self._plan.steps for name in launch_inputs(step)}
        mentioned = words(" ".join(self._size_texts()))
        named: set[str] = set()
        late: list[Node] = []
        for node in self._graph.inputs:
            symbols = [s for s in self._graph.symbols if s.input == node.name]
            late += [node] * any(self._unknown(dim, named) for dim in self._derived(node))
            if self._plan.kernels:
                yield from self._input_check(node, launched, named)
            for symbol in symbols:
                named.add(symbol.name)
                if symbol.name in mentioned:
                    yield f"{symbol.name} = {self._symbol(symbol)}"
        for node in late if self._plan.kernels else ():
            yield from self._input_check(node, launched, named)

    def _input_check(self, node: Node, launched: set[str], named: set[str]) -> Iterator[str]:
        text = self._text[node.name]
        match node.type:
            case TensorType(dtype, shape):
                sizes = tuple_text(["None" if self._unknown(d, named) else d.text for d in shape])
                yield f"_expect({quoted(text)}, {text}, {TORCH_DTYPE[dtype]}, {sizes}, device)"
            case ScalarType(dtype) if node.name in launched:
                kinds = "(int, float)" if dtype is DType.F64 else "int"
                yield f"if not isinstance({text}, {kinds}):"
                message = f"{text}: expected a Python number, got "
                yield f"    raise InputError({quoted(message)} + type({text}).__name__)"

    def parameters(self) -> Iterator[tuple[str, str, str, str]]:
        """Path, expression, dtype and sizes of what launches read of the module."""
        for node in self._graph.nodes:
            match node.kind, node.type:
                case (Parameter() | Constant(), TensorType(dtype, shape)) if (
                    node.name in self._launched
                ):
                    path = node.kind.path or constant_path(node)
                    sizes = tuple_text([dim.text for dim in shape])
                    yield path, self._text[node.name], TORCH_DTYPE[dtype], sizes

    def operands(self) -> Iterator[str]:
        """Statements of the function that lists for each segment what it reads of the module."""
        texts = dict(self._text)
        for step in self._plan.steps:
            if isinstance(step, Reinterpret):
                texts[step.result] = f"{texts[step.input]}{view_text(step.map, step.type)}"
        lists = {
            segment.name: [texts[name] for name in segment.inputs if name in segment.kept]
            for segment in self._program.segments
            if segment.kept
        }
        mentioned = words(" ".join(text for items in lists.values() for text in items))
        for path, name in self._modules.items():
            if name in mentioned:
                yield f"{name} = {path_expression(path)}"
        yield "return {"
        for name, items in lists.items():
            first, *others = wrapped(items)
            yield f'    "launch_{name}": {first.lstrip()}'
            yield from others
        yield "}"

    def _derived(self, node: Node) -> list[Dim]:
        """Sizes of an argument that are no symbol's own place."""
        if not isinstance(node.type, TensorType):
            return []
        own = {s.dim for s in self._graph.symbols if s.input == node.name}
        return [dim for place, dim in enumerate(node.type.shape) if place not in own]

    def _unknown(self, dim: Dim, named: set[str]) -> bool:
        """Whether the size mentions a symbol that has no name yet."""
        return any(s.name in words(dim.text) and s.name not in named for s in self._graph.symbols)

    def _symbol(self, symbol: Symbol) -> str:
        """Where the value of a symbol comes from, as an expression over the arguments."""
        source = self._text[symbol.input]
        return source if symbol.dim is None else f"{source}.shape[{symbol.dim}]"

    def _size_texts(self) -> Iterator[str]:
        """Every text in which the name of a symbolic size can occur."""
        for guard in self._graph.guards:
            yield guard.condition
        if self._plan.kernels:
            derived = (dim for node in self._graph.inputs for dim in self._derived(node))
            yield from (dim.text for dim in derived)
        for step in self._plan.steps:
            yield from _step_size_texts(step)
        yield str(self._graph.returns)

    def _device(self) -> str:
        for node in self._graph.inputs:
            if isinstance(node.type, TensorType):
                # What is no tensor is for its check to name.
                return f'getattr({self._text[node.name]}, "device", None)'
        for node in self._graph.nodes:
            if isinstance(node.kind, Parameter):
                return f"{path_expression(node.kind.path)}.device"
        return 'torch.device("cuda")'

    def _mentions_device(self) -> bool:
        calls = [step.call for step in self._plan.steps if isinstance(step, TorchCall)]
        return any("device" in words(str(call)) for call in calls)


def _step_size_texts(step: Step) -> Iterator[str]:
    match step:
        case Launch(kernel=kernel):
            yield from (dim.text for output in kernel.outputs for dim in output.shape)
            yield from (dim.text for dim in sizes_used(kernel))
        case Room(type=kind, within=within):
            yield from (dim.text for dim in kind.shape)
            yield str(within)
        case Reinterpret(map=index_map, type=kind):
            yield from (dim.text for dim in kind.shape)
            yield str(index_map)
        case TorchCall(call=call):
            yield str(call)
