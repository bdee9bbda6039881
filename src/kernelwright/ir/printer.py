"""Graphs as text that a person can read and diff."""

from collections.abc import Iterator
from dataclasses import fields

from kernelwright.ir.graph import (
    Concat,
    Constant,
    Contract,
    Conv,
    Gather,
    Graph,
    Input,
    Node,
    Opaque,
    Pad,
    Parameter,
    Pointwise,
    Project,
    Reduce,
    Scan,
    View,
    ViewMap,
    Window,
)
from kernelwright.ir.plan import (
    AnyKernel,
    Einsum,
    Kernel,
    Launch,
    Plan,
    Reinterpret,
    Room,
    RowKernel,
    ScanKernel,
    Step,
    Take,
    TorchCall,
    WindowKernel,
)


def print_graph(graph: Graph) -> str:
    """One line a node, then what is returned, updated, guarded and noted."""
    symbols = ", ".join(
        f"{s.name} = {s.input}" + ("" if s.dim is None else f".shape[{s.dim}]")
        for s in graph.symbols
    )
    lines = [f"graph {graph.name}" + (f" where {symbols}" if symbols else "")]
    lines += [f"  {print_node(node)}" for node in graph.nodes]
    lines += [f"  update {update.path} = {update.value}" for update in graph.updates]
    lines += [f"  require {guard.condition}" for guard in graph.guards]
    lines += [f"  note {note}" for note in graph.notes]
    return "\n".join([*lines, f"  return {graph.returns}"]) + "\n"


def print_node(node: Node) -> str:
    """`name: type = kind(inputs; attributes)  # file:line`."""
    where = f"  # {node.source}" if node.source else ""
    return f"{node.name}: {node.type} = {_right_hand_side(node)}{where}"


def _right_hand_side(node: Node) -> str:
    inputs = ", ".join(node.inputs)
    match node.kind:
        case Input(argument):
            return f"input({argument})"
        case Parameter(path):
            return f"parameter({path})"
        case Constant(path, values):
            return f"constant({path or _shorten(values)})"
        case Pointwise(expr):
            return f"pointwise({inputs}; {expr})"
        case Contract():
            return f"contract({inputs}; {node.kind})"
        case Reduce(op, dims):
            return f"{op}({inputs}; dims={_show(dims)})"
        case Scan(op, dim, reverse, exclusive):
            flags = ["reverse"] * reverse + ["exclusive"] * exclusive
            return f"scan({', '.join([f'{inputs}; {op}', f'dim={dim}', *flags])})"
        case Window(op, size, stride, padding, dilation):
            numbers = {"size": size, "stride": stride, "padding": padding, "dilation": dilation}
            shown = ", ".join(f"{name}={_show(value)}" for name, value in numbers.items())
            return f"window({inputs}; {op}, {shown})"
        case Conv():
            return f"conv({inputs}; {_attributes(node.kind)})"
        case Gather() | Concat() | Pad():
            return f"{type(node.kind).__name__.lower()}({inputs}; {_attributes(node.kind)})"
        case View(index_map):
            attributes = _attributes(index_map)
            separator = "; " if attributes else ""
            return f"{type(index_map).__name__.lower()}({inputs}{separator}{attributes})"
        case Opaque(mutates, _):
            return f"opaque {node.origin}" + (f" mutates {', '.join(mutates)}" if mutates else "")
        case Project(index):
            return f"{inputs}[{index}]"


def _attributes(record: ViewMap | Conv | Gather | Concat | Pad) -> str:
    """`name=value` of each field."""
    return ", ".join(
        f"{field.name}={_show(getattr(record, field.name))}" for field in fields(record)
    )


def _show(value: object) -> str:
    return f"({', '.join(map(str, value))})" if isinstance(value, tuple) else str(value)


def _shorten(values: tuple[float | int | bool, ...]) -> str:
    shown = ", ".join(repr(value) for value in values[:8])
    return f"[{shown}, ... {len(values)} values]" if len(values) > 8 else f"[{shown}]"


def print_plan(plan: Plan) -> str:
    """The steps, one a line, then each kernel with its epilogue and configuration."""
    lines = [f"plan {plan.graph.name}"]
    lines += [f"  {_print_step(step)}" for step in plan.steps]
    lines += [f"  update {update.path} = {update.value}" for update in plan.graph.updates]
    lines += [f"  return {plan.graph.returns}"]
    for kernel in plan.kernels:
        lines += [
            f"kernel {kernel.name}: {kernel.family}" + _what(kernel),
            f"  replaces  {', '.join(kernel.operators)}",
            f"  takes     {', '.join(str(item) for item in kernel.inputs)}",
            *(f"  computes  {line}" for line in _computations(kernel)),
            f"  config    {kernel.config}",
        ]
    return "\n".join(lines) + "\n"


def _what(kernel: AnyKernel) -> str:
    match kernel:
        case Kernel(anchor=anchor) if anchor is not None:
            return f" {anchor}" + (f", {kernel.triangle}" if kernel.triangle else "")
        case RowKernel(program=program):
            shape = ", ".join(map(str, program.shape))
            return f" of [{shape}] along {', '.join(map(str, program.dims))}"
        case ScanKernel(scan=Scan() as scan):
            order = ", reverse" * scan.reverse + ", exclusive" * scan.exclusive
            return f" {scan.op} along {scan.dim}{order}"
        case WindowKernel(window=window):
            return f" {window.op} of {' x '.join(map(str, window.size))}"
    return ""


def _computations(kernel: AnyKernel) -> Iterator[str]:
    match kernel:
        case Kernel(output=output, epilogue=epilogue):
            yield f"{output} = {epilogue}"
        case RowKernel(program=program):
            first = 0
            for fold in program.folds:
                names = [f"total{first + i}" for i in range(len(fold.totals))]
                first += len(fold.totals)
                yield f"{', '.join(names)} = {fold.op} of {fold.value}"
            for result, output in zip(program.results, kernel.outputs, strict=True):
                yield f"{output} = {result.value}"
        case ScanKernel() | WindowKernel():
            yield f"acc of {kernel.prologue}"
            yield f"{kernel.output} = {kernel.epilogue}"


def _print_step(step: Step) -> str:
    match step:
        case Launch(results=results, kernel=kernel, inputs=inputs):
            made = ", ".join(f"{n}: {o}" for n, o in zip(results, kernel.outputs, strict=True))
            return f"{made} = launch {kernel.name}({', '.join(inputs)})"
        case Room(result=result, type=kind, within=within):
            return f"{result}: {kind} = room{'' if within is None else f' in {within}'}"
        case Reinterpret(result=result, input=source, map=index_map, type=kind):
            return f"{result}: {kind} = {type(index_map).__name__.lower()}({source})"
        case TorchCall(result=result, call=call, type=kind, why=why, channels_last=planned):
            when = f" at {planned.sizes}, at others on {planned.given}" if planned else ""
            return f"{result}: {kind} = torch {call}{when}  # {why}"
        case Einsum(result=result, contract=contract, inputs=inputs, type=kind, why=why):
            return f"{result}: {kind} = einsum {contract}({', '.join(inputs)})  # {why}"
        case Take(result=result, input=source, index=index):
            return f"{result} = {source}[{index}]"
