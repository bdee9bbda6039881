"""What goes into a graph and what comes out: arguments, parameters, results, buffer updates."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import sympy
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.export.graph_signature import InputKind, InputSpec, OutputKind, OutputSpec

from kernelwright.capture.arguments import Leaf
from kernelwright.capture.builder import Builder, Number
from kernelwright.capture.errors import UnsolvedSizeError, UnsupportedValueError
from kernelwright.capture.exporting import Exported
from kernelwright.capture.pointwise import RULES
from kernelwright.capture.relations import relations_of, solved
from kernelwright.capture.structures import structured
from kernelwright.ir.calls import Argument, AtenCall, Ref
from kernelwright.ir.expr import Operand
from kernelwright.ir.graph import Guard, Update
from kernelwright.ir.kinds import Constant, Input, Kind, Opaque, Parameter, Write
from kernelwright.ir.library_calls import CLONE, COPY_INTO
from kernelwright.ir.types import DType, ScalarType, ValueType


def add_inputs(builder: Builder, exported: Exported) -> list[Guard]:
    """Add a node for every argument, parameter, buffer and constant; guards on the arguments."""
    program = exported.program
    nodes = [node for node in program.graph.nodes if node.op == "placeholder"]
    pairs = list(zip(nodes, program.graph_signature.input_specs, strict=True))
    arguments = [node for node, spec in pairs if spec.kind is InputKind.USER_INPUT]
    leaves = list(zip(arguments, exported.arguments.leaves, strict=True))
    relations = relations_of(nodes)
    builder.sizes.simplify(solved(relations))
    _declare_sizes(builder, leaves)
    builder.names.take(symbol.name for symbol in builder.sizes.symbols)
    guards: list[Guard] = []
    for node, leaf in leaves:
        guards += _add_argument(builder, node, leaf)
    guards += [_constant_guard(leaf) for leaf in exported.arguments.absent]
    guards += exported.arguments.counts
    guards += _range_guards(builder, exported)
    guards += _relation_guards(builder, relations)
    mutated = _mutated_paths(exported)
    for node, spec in pairs:
        if spec.kind is not InputKind.USER_INPUT and (node.users or spec.target in mutated):
            builder.values[node] = builder.add(
                _state(exported, spec),
                builder.type_of(node.meta["val"]),
                name=spec.target or node.name,
            )
    builder.mutable |= {
        value
        for node, spec in pairs
        if spec.target in mutated or node.name in mutated
        if isinstance(value := builder.values.get(node), str)
    }
    return guards


def _declare_sizes(builder: Builder, leaves: list[tuple[fx.Node, Leaf]]) -> None:
    """Name the sizes of all arguments: the plain ones first, as others may be made of them."""
    for declare in (builder.sizes.declare, builder.sizes.declare_derived):
        for node, leaf in leaves:
            traced = node.meta.get("val")
            if isinstance(traced, torch.SymInt):
                declare(traced, int(leaf.value), leaf.name, None)
            elif isinstance(traced, torch.Tensor) and isinstance(leaf.value, torch.Tensor):
                for dim, size in enumerate(traced.shape):
                    with _blamed(leaf, dim):
                        declare(size, int(leaf.value.shape[dim]), leaf.name, dim)


@contextmanager
def _blamed(leaf: Leaf, dim: int) -> Iterator[None]:
    """Say of a size that cannot be solved for whose it is."""
    try:
        yield
    except UnsolvedSizeError as error:
        raise UnsolvedSizeError(frozenset({(leaf.path, dim)})) from error


def _add_argument(builder: Builder, node: fx.Node, leaf: Leaf) -> list[Guard]:
    """Add an argument that is known at call time only; a guard for one that became a constant."""
    traced = node.meta.get("val")
    kind = Input(leaf.path)
    if leaf.is_scalar:
        scalar = len(builder.scalars)
        builder.scalars.append(_add_named(builder, kind, ScalarType(DType.F64), leaf.name))
        builder.values[node] = Number(Operand(scalar, DType.F64))
    elif isinstance(traced, torch.SymInt) and not builder.sizes.dim(traced).is_static:
        _add_named(builder, kind, ScalarType(DType.I64), leaf.name)
        return [] if _is_plain_number(node) else [_at_least(leaf.path, 0)]
    elif isinstance(leaf.value, torch.Tensor):
        result = builder.type_of(traced)
        builder.values[node] = _add_named(builder, kind, result, leaf.name)
        return _held_guards(builder, node, leaf)
    else:
        return [_constant_guard(leaf)]
    return []


def _add_named(builder: Builder, kind: Kind, result: ValueType, name: str) -> str:
    """Add an argument's node under the argument's own name, which nothing has taken yet."""
    added = builder.add(kind, result, name=name)
    assert added == name
    return added


def _is_plain_number(node: fx.Node) -> bool:
    """True for an int that is only a factor or an addend: no size is computed from it."""
    names = (getattr(user.target, "_schema", None) for user in node.users)
    return all(schema and schema.name.removeprefix("aten::") in RULES for schema in names)


def _at_least(text: str, lowest: int) -> Guard:
    return Guard(condition=f"{text} >= {lowest}", message=f"{text} must be at least {lowest}")


def _constant_guard(leaf: Leaf) -> Guard:
    """The module was traced with this value of the argument; another type may do another thing."""
    path, value = leaf.path, leaf.value
    match value:
        case None:
            condition = f"{path} is None"
        case bool():
            condition = f"{path} is {value}"
        case float() if math.isnan(value):
            condition = f"isinstance({path}, float) and {path} != {path}"
        case float() if math.isinf(value):
            condition = f'{path} == float("{value}")'
        case int() | float():
            condition = f"isinstance({path}, {type(value).__name__}) and {path} == {value!r}"
        case _:
            condition = f"{path} == {value!r}"
    return Guard(condition=condition, message=f"compiled for {path} = {value!r} only")


def _held_guards(builder: Builder, node: fx.Node, leaf: Leaf) -> list[Guard]:
    """One for each size of an argument that equations leave one value; it takes their place."""
    sizes: Sequence[object] = node.meta["val"].shape
    symbolic = {
        dim: builder.sizes.dim(size)
        for dim, size in enumerate(sizes)
        if isinstance(size, torch.SymInt) and size.node.expr.free_symbols
    }
    return [
        Guard(
            condition=f"{leaf.path}.shape[{dim}] == {size}",
            message=f"size {dim} of {leaf.path} must be {size}",
        )
        for dim, size in symbolic.items()
        if size.is_static
    ]


def _range_guards(builder: Builder, exported: Exported) -> list[Guard]:
    """Bounds that tracing found on the sizes, such as 5 for a module that takes `x[:5]`."""
    guards = []
    for symbol, bounds in exported.program.range_constraints.items():
        if not builder.sizes.knows(symbol):
            continue
        size = builder.sizes.resolve(symbol)
        if size.is_Integer:
            continue
        text = builder.sizes.text(size)
        if bounds.lower.is_Integer and bounds.lower > 2:  # 2 is what tracing assumes of any size
            guards.append(_at_least(text, int(bounds.lower)))
        if bounds.upper.is_Integer:
            highest = int(bounds.upper)
            message = f"{text} must be at most {highest}"
            guards.append(Guard(condition=f"{text} <= {highest}", message=message))
    return guards


def _relation_guards(builder: Builder, relations: list[sympy.Basic]) -> list[Guard]:
    """What sizes must have to do with each other."""
    found: dict[str, Guard] = {}
    for relation in relations:
        resolved = builder.sizes.resolve(relation)
        if resolved is not sympy.true:
            text = builder.sizes.text(resolved)
            found[text] = Guard(condition=text, message=f"sizes must satisfy {text}")
    return list(found.values())


def _state(exported: Exported, spec: InputSpec) -> Kind:
    """The kind of node for something that the module holds."""
    path = spec.target
    match spec.kind:
        case InputKind.PARAMETER if path is not None:
            return Parameter(path)
        case InputKind.BUFFER if path is not None:
            attribute = path in exported.attributes and path not in _mutated_paths(exported)
            return Constant(path) if attribute else Parameter(path)
        case InputKind.CONSTANT_TENSOR if path in exported.attributes:
            return Constant(path)
        case InputKind.CONSTANT_TENSOR if path is not None:
            value = exported.program.constants[path]
            if isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor):
                return Constant(None, tuple(value.flatten().tolist()))
    raise UnsupportedValueError(f"`forward` uses {path}, which is neither tensor nor number")


def _mutated_paths(exported: Exported) -> frozenset[str]:
    """Buffers by path, and arguments by the name tracing gave them, that a call changes."""
    specs = exported.program.graph_signature.output_specs
    return frozenset(
        spec.target
        for spec in specs
        if spec.kind is not OutputKind.USER_OUTPUT and spec.target is not None
    )


def collect_updates(builder: Builder, exported: Exported) -> tuple[Update, ...]:
    """Values that buffers take at the end of a call, where no call wrote them in place.

    An argument that `forward` changes is written by a copy_ call at the end.
    """
    updates = list(builder.updates)
    for spec, value in _outputs(exported):
        match spec.kind:
            case OutputKind.USER_OUTPUT:
                continue
            case OutputKind.USER_INPUT_MUTATION:
                _write_argument(builder, exported, str(spec.target), builder.tensor(value))
            case OutputKind.BUFFER_MUTATION | OutputKind.PARAMETER_MUTATION:
                name = builder.tensor(value)
                if builder.node(name).kind != Parameter(str(spec.target)):
                    path = str(spec.target)
                    assigned = path in exported.assigned
                    updates.append(Update(path=path, value=name, is_assigned=assigned))
            case _:
                raise UnsupportedValueError(f"`forward` has an effect: {spec.kind.name}")
    return tuple(updates)


def _write_argument(builder: Builder, exported: Exported, target: str, value: str) -> None:
    (node,) = (node for node in exported.program.graph.nodes if node.name == target)
    argument = builder.tensor(node)
    kind = builder.node(argument).kind
    assert isinstance(kind, Input)
    builder.add(
        Opaque(mutates=(kind.argument,)),
        builder.node(argument).type,
        (argument, value),
        name=f"{argument}_written",
        origin=AtenCall(COPY_INTO, (Ref(argument), Ref(value))),
        operators=("copy_",),
    )


def collect_returns(builder: Builder, exported: Exported) -> Argument:
    """What `forward` returns, in the objects that it returns it in."""
    leaves = [
        _returned(builder, value)
        for spec, value in _outputs(exported)
        if spec.kind is OutputKind.USER_OUTPUT
    ]
    return structured(exported.program.call_spec.out_spec, iter(leaves), exported.path)


def _outputs(exported: Exported) -> list[tuple[OutputSpec, Any]]:
    (output,) = (node for node in exported.program.graph.nodes if node.op == "output")
    values = output.args[0]
    assert isinstance(values, tuple | list)
    return list(zip(exported.program.graph_signature.output_specs, values, strict=True))


def _returned(builder: Builder, value: Any) -> Argument:
    """One result; a copy that `forward` makes of something it does not own stays a copy."""
    is_node = isinstance(value, fx.Node)
    if is_node and isinstance(builder.values.get(value), str):
        name = builder.tensor(value)
        is_state = isinstance(builder.node(name).kind, Input | Parameter | Constant | Write)
        if is_state and str(value.target) == CLONE:
            origin = AtenCall(CLONE, (Ref(name),))
            kind = builder.node(name).type
            name = builder.add(
                Opaque(), kind, (name,), name="clone", origin=origin, operators=("clone",)
            )
        return Ref(name)
    return builder.argument(value)
