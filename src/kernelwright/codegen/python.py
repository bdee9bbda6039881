"""The body of the emitted `forward`: checks, launches and the calls left to PyTorch."""

import builtins
import keyword
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from kernelwright.codegen.arrange import Arrangement
from kernelwright.codegen.families import asks_for_tf32, writer_of
from kernelwright.codegen.families.writer import RoundingSizes
from kernelwright.codegen.python_text import (
    TORCH_DTYPE,
    constant_path,
    number,
    path_expression,
    quoted,
    renamed,
    tuple_text,
    view_text,
    words,
)
from kernelwright.ir.calls import Argument, Code, Instance, Record, Ref, Text
from kernelwright.ir.graph import Graph, Node, Symbol, Update
from kernelwright.ir.kinds import Constant, Input, Parameter, Slice
from kernelwright.ir.library_calls import function_of
from kernelwright.ir.plan import (
    Einsum,
    Kernel,
    Launch,
    Plan,
    Reinterpret,
    Room,
    Step,
    Take,
    TorchCall,
    Within,
    sizes_used,
)
from kernelwright.ir.program import (
    Part,
    Program,
    Segment,
    inputs_by_kind,
    part_reads,
    types_of,
)
from kernelwright.ir.types import Dim, DType, ScalarType, TensorType, ValueType

_WIDTH = 80
"""Columns of a list of arguments."""


def forward_body(program: Program) -> tuple[str, ...]:
    """Statements of `forward`, without indentation of its own."""
    plan = program.plan
    names = _size_names(plan.graph)
    work = [renamed(line, names) for line in _Work(program).work()]
    mentioned = words(" ".join(work))
    checks = [renamed(line, names) for line in _Checks(program).checks(mentioned)]
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
    writer = _Checks(program)
    checked = {path: f"({kind}, {sizes})" for path, _, kind, sizes in writer.parameters()}
    return Parameters(checked=checked, operands=tuple(writer.operands()), calls=calls)


def operators(program: Program) -> dict[str, str]:
    """Native calls by name, with their arguments in PyTorch's language of schemas."""
    found = {f"launch_{kernel.name}": _launch_schema(kernel) for kernel in program.called}
    for segment in program.segments:
        found[f"launch_{segment.name}"] = _segment_schema(segment, program.plan.graph)
    return found


def _may_round(tensor: str, sizes: RoundingSizes) -> str:
    captured = f"{tensor}.shape == {sizes.captured}"
    if sizes.elements is None:
        return captured
    return f"{captured} or {tensor}.numel() >= {sizes.elements}"


def _launch_schema(kernel: Kernel) -> str:
    """Arguments of one launch; only results are written to."""
    arguments = [f"Tensor(a{at}!) out{at}" for at, _ in enumerate(kernel.outputs)]
    for at, kind in enumerate(kernel.inputs):
        arguments.append(f"{_schema_type(kind)} in{at}")
    arguments += [f"SymInt size{at}" for at, _ in enumerate(sizes_used(kernel))]
    arguments += ["bool is_measured"] * asks_for_tf32(kernel)
    return ", ".join(arguments)


def _segment_schema(segment: Segment, graph: Graph) -> str:
    """Arguments of a segment: lists, since an operator has at most 64 arguments."""
    tensors, reals, integers = inputs_by_kind(segment, graph)
    arguments = ["Tensor[] inputs"] * bool(tensors) + ["float[] reals"] * bool(reals)
    arguments += ["SymInt[] integers"] * bool(integers or segment.sizes)
    arguments += ["Tensor[] parameters"] * bool(segment.kept)
    return ", ".join(["Tensor(a!)[] results", *arguments])


def _schema_type(kind: ValueType) -> str:
    match kind:
        case TensorType():
            return "Tensor"
        case ScalarType(DType.F64):
            return "float"
    return "SymInt"


def _size_names(graph: Graph) -> dict[str, str]:
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


class _Values:
    """Values of a program as Python text: arguments, and what the module keeps."""

    def __init__(self, program: Program) -> None:
        self._program = program
        plan = program.plan
        self._plan = plan
        self._graph: Graph = plan.graph
        # What a kernel makes for another alone has no node.
        launches = (step for step in plan.steps if isinstance(step, Launch))
        self._text: dict[str, str] = {name: name for step in launches for name in step.results}
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


class _Checks(_Values):
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
        launched = {name for step in self._plan.steps for name in _launch_inputs(step)}
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
            first, *others = _wrapped(items)
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


class _Work(_Values):
    """Parts as lines; values that are one short expression are written in place."""

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self._uses = _count_uses(program)
        self._unread = _unread_views(program)
        self._rooms = {step.result for step in program.plan.steps if isinstance(step, Room)}
        self._in_place = program.in_place

    def work(self) -> Iterator[str]:
        """The steps in order, the buffer updates, and the return."""
        lines = [list(self._part(part)) for part in self._program.parts]
        dead = self._last_mentions(lines)
        for position, text in enumerate(lines):
            yield from text
            if position in dead and position + 1 < len(lines):
                yield f"del {', '.join(dead[position])}"
        written = [update.path for update in self._in_place.values()]
        for update in (it for it in self._graph.updates if it.path not in written):
            yield from self._update(update)
        yield f"return {self._argument(self._graph.returns)}"

    def _update(self, update: Update) -> Iterator[str]:
        place, value = self._place(update.path), self._text[update.value]
        if not update.is_assigned:
            yield f"{place}.copy_({value})"
            return
        # An attribute that was left on the host when the module moved would take each call's copy.
        yield f"if {place}.device == {value}.device:"
        yield f"    {place}.copy_({value})"
        yield "else:"
        yield f"    {place} = {value}.clone()"

    def _last_mentions(self, lines: list[list[str]]) -> dict[int, list[str]]:
        """For each step the results that nothing mentions after it.

        A view keeps its base alive by itself, so that a deleted name never frees what is in use.
        """
        final = [self._argument(self._graph.returns)]
        final += [self._text[update.value] for update in self._graph.updates]
        kept = words(" ".join(final))
        mentions = [words(" ".join(text)) for text in lines]
        found: dict[int, list[str]] = {}
        results = (name for part in self._program.parts for name in _results(part))
        for name in dict.fromkeys(results):
            # A view that nobody reads has no line, though a method may have its name.
            if self._text[name] != name or name in self._unread:
                continue
            places = [at for at, mentioned in enumerate(mentions) if name in mentioned]
            if places and name not in kept:
                found.setdefault(places[-1], []).append(name)
        return found

    def _part(self, step: Part) -> Iterator[str]:
        match step:
            case Launch():
                yield from self._launch(step)
            case Segment():
                yield from self._segment(step)
            case Room(result=result, type=kind, within=None):
                yield self._allocation(result, kind)
            case Room(result=result, within=Within(whole=whole, dim=dim, start=start, stop=stop)):
                part = view_text(Slice(dim, start, stop, 1), step.type)
                yield f"{result} = {self._text[whole]}{part}"
            case Reinterpret(result=result) if result in self._unread:
                return
            case Reinterpret(result=result, input=source, map=index_map):
                text = f"{self._text[source]}{view_text(index_map, step.type)}"
                yield from self._name_or_inline(result, text)
            case TorchCall():
                yield self._assign(step.result, self._call(step))
            case Einsum(result=result, contract=contract, inputs=(lhs, rhs)):
                operands = f"{self._text[lhs]}, {self._text[rhs]}"
                yield self._assign(result, f'torch.einsum("{contract.equation}", {operands})')
            case Take(result=result, input=source, index=index):
                yield from self._name_or_inline(result, f"{self._text[source]}[{index}]")

    def _launch(self, step: Launch) -> Iterator[str]:
        kernel = step.kernel
        for name, output in zip(step.results, kernel.outputs, strict=True):
            yield from self._memory(name, output)
        given = [self._operand(name) for name in step.inputs]
        results = [self._text[name] for name in step.results]
        arranged = writer_of(kernel).arrange(kernel)
        results = [_viewed(it, how) for it, how in zip(results, arranged.results, strict=True)]
        operands = [_viewed(given[at], how) for at, how in arranged.inputs]
        numbers = [dim.text for dim in sizes_used(kernel)]
        measured = writer_of(kernel).only_at(kernel)
        if measured is not None:
            numbers.append(_may_round(given[0], measured))
        arguments = ", ".join([*results, *operands, *numbers])
        yield f'_launch("launch_{kernel.name}", {arguments})'

    def _segment(self, segment: Segment) -> Iterator[str]:
        types = types_of(segment)
        rooms = {step.result for step in segment.steps if isinstance(step, Room)}
        for name in segment.results:
            if name in rooms:
                yield self._allocation(name, types[name])
            elif name in self._in_place:  # As it is: the native call reshapes it.
                self._text[name] = self._owner(self._in_place[name].path)[1]
            else:
                yield from self._memory(name, types[name])
        lists = [[self._text[name] for name in segment.results]]
        for names in inputs_by_kind(segment, self._graph):
            lists.append([self._operand(name) for name in names])
        lists[-1] += [dim.text for dim in segment.sizes]
        yield "_launch("
        yield f'    "launch_{segment.name}",'
        for items in filter(None, lists):
            yield from _wrapped(items)
        if segment.kept:
            yield f'    {self._kept}["launch_{segment.name}"],'
        yield ")"

    def _memory(self, name: str, output: TensorType) -> Iterator[str]:
        """What a launch writes to: a buffer, a room that is there, or something new."""
        if name in self._in_place:
            self._text[name] = self._buffer(self._in_place[name].path, output)
        elif name not in self._rooms:
            yield self._allocation(name, output)

    def _allocation(self, name: str, kind: TensorType) -> str:
        sizes = tuple_text([dim.text for dim in kind.shape])
        return f"{name} = torch.empty({sizes}, dtype={TORCH_DTYPE[kind.dtype]}, device=device)"

    def _buffer(self, path: str, output: TensorType) -> str:
        """A buffer in the shape of the result that it takes."""
        owner, text = self._owner(path)
        sizes = ", ".join(dim.text for dim in output.shape)
        return text if owner.tensor.shape == output.shape else f"{text}.view({sizes})"

    def _owner(self, path: str) -> tuple[Node, str]:
        """The node of a buffer, and its text."""
        owner = next(n for n in self._graph.nodes if n.kind == Parameter(path))
        return owner, self._text[owner.name]

    def _call(self, step: TorchCall) -> str:
        arguments = [self._argument(arg) for arg in step.call.args]
        arguments += [f"{key}={self._argument(arg)}" for key, arg in step.call.kwargs]
        operator = function_of(step.call.target)
        if step.channels_last is None:
            return f"{operator}({', '.join(arguments)})"
        given = self._text[step.channels_last.given]
        return f"_convolve({operator}, {step.channels_last.sizes}, {given}, {', '.join(arguments)})"

    def _operand(self, name: str) -> str:
        node, text = self._graph.find(name), self._text[name]
        is_real = node is not None and node.type == ScalarType(DType.F64)
        return f"float({text})" if is_real else text

    def _assign(self, result: str, text: str) -> str:
        return f"{result} = {text}" if self._uses.get(result, 0) else text

    def _name_or_inline(self, result: str, text: str) -> Iterator[str]:
        if self._uses.get(result, 0) == 1 and len(text) < 60:
            self._text[result] = text
        else:
            yield f"{result} = {text}"

    def _argument(self, arg: Argument) -> str:
        match arg:
            case Ref(name):
                return self._text[name]
            case Record(kind, items, keys):
                inside = Record(kind, tuple(Code(self._argument(item)) for item in items), keys)
                return str(inside)
            case Instance():
                args = tuple(Code(self._argument(item)) for item in arg.args)
                kwargs = tuple((key, Code(self._argument(item))) for key, item in arg.kwargs)
                return str(replace(arg, args=args, kwargs=kwargs))
            case Text(value):
                return quoted(value)
            case float():
                return number(arg)
        return str(arg)


def _wrapped(items: Sequence[str]) -> Iterator[str]:
    """A list over as many lines as it takes, indented as an argument."""
    text = f"[{', '.join(items)}],"
    if len(text) <= _WIDTH:
        yield f"    {text}"
        return
    yield "    ["
    line = ""
    for item in items:
        if line and len(line) + len(item) > _WIDTH:
            yield f"        {line.rstrip()}"
            line = ""
        line += f"{item}, "
    yield f"        {line.rstrip()}"
    yield "    ],"


def _viewed(text: str, how: Arrangement | None) -> str:
    return text if how is None else how.text(text)


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
    found = {name for step in plan.steps for name in _launch_inputs(step)}
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
    return taken | {name for pair in _size_names(graph).items() for name in pair}


def _given_name(name: str, graph: Graph) -> str:
    """A name in `forward` that nothing else has."""
    taken = _taken(graph)
    while name in taken:
        name += "_"
    return name


def _unread_views(program: Program) -> frozenset[str]:
    """Views of what the module keeps that are read where segments' parameters are listed only."""
    views = {part.result: part.input for part in program.parts if isinstance(part, Reinterpret)}
    kept = {name for segment in program.segments for name in segment.kept}
    read = set(program.plan.graph.results)
    read |= {update.value for update in program.plan.graph.updates}
    for part in program.parts:
        match part:
            case Segment(inputs=inputs, kept=own):
                read.update(name for name in inputs if name not in own)
            case Reinterpret():
                pass
            case _:
                read.update(part_reads(part))
    found = set()
    for result, source in reversed(views.items()):
        if result in read:
            read.add(source)
        elif result in kept:
            found.add(result)
            kept.add(source)
        else:
            read.add(source)
    return frozenset(found)


def _launch_inputs(step: Step) -> tuple[str, ...]:
    return step.inputs if isinstance(step, Launch) else ()


def _results(part: Part) -> tuple[str, ...]:
    return part.results if isinstance(part, Launch | Segment) else (part.result,)


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


def _count_uses(program: Program) -> dict[str, int]:
    read = (name for part in program.parts for name in part_reads(part))
    return Counter([*read, *program.plan.graph.results])
