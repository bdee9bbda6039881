"""Programs made functional: by hand where that is plain, by PyTorch elsewhere.

torch.export leaves calls that change tensors where they are, and a few composites. PyTorch takes
both away by tracing the whole program twice more, which is longer than the export itself. Most
programs need little of it: they change only tensors that nobody else looks at, or buffers, by calls
that have a twin that makes a new one.
"""

import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partialmethod
from inspect import signature
from typing import Any
from unittest.mock import patch

import sympy
import torch
from torch import fx
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind, OutputSpec, TensorArgument

from kernelwright.capture.changed_parts import can_put_back, put_back

aten = torch.ops.aten
Node = Any
"""fx.Node; what stands in its arguments and its meta has no useful type."""


def functional(program: ExportedProgram) -> ExportedProgram:
    """The program without calls that change a tensor; composite operators stay whole."""
    buffers = _buffers(program)
    if not _is_plain(program.graph, frozenset(buffers)):
        with _guards_unasked():
            decomposed: ExportedProgram = program.run_decompositions({})
        return decomposed
    newest: dict[Node, Node] = {}
    for node in list(program.graph.nodes):
        before = node.args
        node.args = fx.map_arg(node.args, lambda it: newest.get(it, it))
        node.kwargs = fx.map_arg(node.kwargs, lambda it: newest.get(it, it))
        if node.op == "call_function" and isinstance(node.target, OpOverload):
            if _is_identity(node):
                newest[node] = node.args[0]
                _copied(node)  # nobody reads it
            if node.target._schema.is_mutable:
                _follow(newest, *put_back(node))
                node.target = _twin(node.target)
            if _is_training(node):
                newest.update(zip(before[3:5], _trained(node), strict=False))
                continue
            rewrite = _REWRITTEN.get(node.target)
            if rewrite is not None:
                rewrite(node)
    _return(program, {node: newest[node] for node in buffers if node in newest})
    program.graph.eliminate_dead_code()
    return program


@contextmanager
def _guards_unasked() -> Iterator[None]:
    """While it lasts, programs traced again do not ask what is known of their sizes already: where
    maps are cut into windows that is most of the time."""
    made = ExportedProgram.module
    if "check_guards" not in signature(made).parameters:
        yield
        return
    with patch.object(ExportedProgram, "module", partialmethod(made, check_guards=False)):
        yield


def _buffers(program: ExportedProgram) -> list[Node]:
    """The inputs that are buffers of the module."""
    names = program.graph_signature.inputs_to_buffers
    return [it for it in program.graph.nodes if it.op == "placeholder" and it.name in names]


def _return(program: ExportedProgram, changed: dict[Node, Node]) -> None:
    """Let the program return the newest values of buffers, before what it returns otherwise."""
    signature = program.graph_signature
    (output,) = (node for node in program.graph.nodes if node.op == "output")
    output.args = ((*changed.values(), *output.args[0]),)
    signature.output_specs[:0] = [
        OutputSpec(
            kind=OutputKind.BUFFER_MUTATION,
            arg=TensorArgument(name=value.name),
            target=signature.inputs_to_buffers[buffer.name],
        )
        for buffer, value in changed.items()
    ]


def _follow(newest: dict[Node, Node], changed: Any, node: Node) -> None:
    """From here on, whoever reads `changed` or what that came from reads `node`."""
    for older, newer in list(newest.items()):
        if newer is changed:
            newest[older] = node
    newest[changed] = node


# --- Batch norm in training ---------------------------------------------------------------------

_NORM_ARGUMENTS = 9
"""Arguments of aten.batch_norm, all of them by position."""


def _is_training(node: Node) -> bool:
    """Whether a call is a batch norm that takes the statistics of its input."""
    is_norm = node.target is aten.batch_norm.default and len(node.args) == _NORM_ARGUMENTS
    return is_norm and node.args[5] is True


def _may_train(node: Node, buffers: frozenset[Node]) -> bool:
    """Whether such a call is one in float32, which changes no running statistics but buffers."""
    input, _, _, *statistics, _, momentum, _, _ = node.args
    known = all(it is None for it in statistics) or all(it in buffers for it in statistics)
    values = [it.meta["val"] for it in (input, *statistics) if it is not None]
    return (
        known
        and isinstance(momentum, float)
        and all(value.dtype is torch.float32 for value in values)
    )


def _trained(node: Node) -> list[Node]:
    """The norm as the first result of another operator; what the running statistics are then."""
    *tensors, mean, variance, training, momentum, eps, _ = node.args
    val = node.meta["val"]
    saved = val.new_empty((val.shape[1],))
    running = [] if mean is None else [mean, variance]
    target = aten._native_batch_norm_legit_functional.default
    if not running:
        target = aten._native_batch_norm_legit.no_stats
    with node.graph.inserting_before(node):
        whole = node.graph.call_function(target, (*tensors, *running, training, momentum, eps))
        news = [
            node.graph.call_function(operator.getitem, (whole, 3 + at))
            for at, _ in enumerate(running)
        ]
    for new, old in zip(news, running, strict=True):
        new.meta = {**node.meta, "val": old.meta["val"]}
    values = (val, saved, torch.empty_like(saved), *(it.meta["val"] for it in running))
    whole.meta = {**node.meta, "val": values}
    node.target, node.args, node.kwargs = operator.getitem, (whole, 0), {}
    return news


# --- Which programs are plain ------------------------------------------------------------------


def _is_plain(graph: fx.Graph, buffers: frozenset[Node]) -> bool:
    """Whether every call is one that is known here, and every change is seen by nobody else."""
    calls = [node for node in graph.nodes if node.op not in ("placeholder", "output")]
    training = [node for node in calls if _is_training(node)]
    if not all(_is_known(node) or node in training for node in calls):
        return False
    if not all(_may_train(node, buffers) for node in training):
        return False
    changes = [node for node in calls if _is_change(node) and not _is_identity(node)]
    if not changes and not training:
        return True
    holders: dict[int, list[Node]] = {}
    for node in graph.nodes:
        for storage in _storages(node.meta.get("val")):
            holders.setdefault(storage, []).append(node)
    trained = {it for node in training for it in node.args[3:5] if it is not None}
    return all(_is_private(node, holders, buffers) for node in changes) and not any(
        holders[storage][1:] or _is_shown(node)
        for node in trained
        for storage in _storages(node.meta["val"])
    )


def _is_shown(node: Node) -> bool:
    """Whether the program returns it as it was."""
    return any(user.op == "output" for user in node.users)


def _is_known(node: Node) -> bool:
    if node.op != "call_function":
        return False
    target = node.target
    if not isinstance(target, OpOverload):
        if _is_functorch(target):
            return False
        return target is operator.getitem or not _storages(node.meta.get("val"))
    if target in _REWRITTEN or _twin(target) in _REWRITTEN:
        return _ALLOWED.get(target, _always)(node)
    if target._schema.is_mutable:
        return _has_plain_twin(node)
    return target not in _CHANGED_BY_PYTORCH and not _is_decomposed(target)


def _is_functorch(target: Any) -> bool:
    """Whether it begins or ends a transformation, as of torch.vmap, that PyTorch has to resolve."""
    return str(getattr(target, "__module__", "")).startswith("torch._functorch")


def _has_plain_twin(node: Node) -> bool:
    """Whether the twin of a call that changes a tensor gives what that holds afterwards.

    Not where it would be promoted to another type, draws random numbers, or changes no element.
    """
    twin = _twin(node.target)
    if twin is aten.detach.default:  # what torch.tensor ends with
        return True
    if twin is None or _is_decomposed(twin):
        return False
    if {torch.Tag.inplace_view, torch.Tag.nondeterministic_seeded} & set(node.target.tags):
        return False
    values = [it.meta.get("val") for it in node.all_input_nodes]
    dtypes = {value.dtype for value in values if isinstance(value, torch.Tensor)}
    return dtypes <= {node.meta["val"].dtype, torch.bool}


def _is_change(node: Node) -> bool:
    return isinstance(node.target, OpOverload) and node.target._schema.is_mutable


def _is_identity(node: Node) -> bool:
    """Whether a call changes no element though it may: dropout outside of training."""
    return node.target is aten.dropout_.default and _drops_nothing(node)


def _is_private(node: Node, holders: dict[int, list[Node]], buffers: frozenset[Node]) -> bool:
    """Whether what `node` changes was made by one call, or is a buffer that is not returned; no
    view precedes the last change, or the views are parts that can be put back."""
    own = _storages(node.meta.get("val"))
    changed = node.args[0]
    if len(own) != 1 or not isinstance(changed, fx.Node) or _storages(changed.meta["val"]) != own:
        return False
    maker, *others = holders[own[0]]
    is_made = _makes_memory(maker, own[0])
    if is_made and not _is_change(others[0]) and can_put_back(holders[own[0]], _is_change):
        return True
    while not _is_change(others[-1]):  # a view of what there is in the end
        others.pop()
    if maker in buffers:
        return all(map(_is_change, others)) and not any(map(_is_shown, (maker, *others)))
    return is_made and all(map(_is_change, others))


def _makes_memory(maker: Node, storage: int) -> bool:
    """Whether a node is a call whose one result lies in memory that none of its inputs does."""
    makes = maker.op == "call_function" and not any(
        storage in _storages(it.meta.get("val")) for it in maker.all_input_nodes
    )
    return makes and isinstance(maker.meta["val"], torch.Tensor)


def _storages(value: Any) -> list[int]:
    """What identifies the memory of a traced value; of every part of a list."""
    match value:
        case torch.Tensor() if value.layout is torch.strided:
            return [value.untyped_storage()._cdata]
        case list() | tuple():
            return [storage for item in value for storage in _storages(item)]
    return []


def _twin(target: Any) -> Any:
    """The operator that makes a new tensor: relu of relu_; the same of one that does already."""
    namespace, _, name = target._schema.name.partition("::")
    if not target._schema.is_mutable:
        return target
    if namespace != "aten" or not name.endswith("_") or name.endswith("__"):
        return None
    packet = getattr(aten, name.removesuffix("_"), None)
    return getattr(packet, target._overloadname, None)


def _is_decomposed(target: OpOverload) -> bool:
    """Whether PyTorch takes a call apart when it makes a program functional."""
    if target.namespace != "aten":
        return True
    is_composite = torch._C._dispatch_has_kernel_for_dispatch_key(
        target.name(),  # type: ignore[no-untyped-call]
        "CompositeImplicitAutograd",
    )
    aliases = any(argument.alias_info is not None for argument in target._schema.arguments)
    return is_composite and aliases


_CHANGED_BY_PYTORCH = frozenset({aten.hardshrink.default})
"""Operators that it takes apart or replaces though they are no composites that alias."""

# --- Rewrites ----------------------------------------------------------------------------------


def _always(_: Node) -> bool:
    return True


def _keeps_count(node: Node) -> bool:
    """Whether as many elements come out as go in at all sizes.

    Where that is a condition on sizes, PyTorch notes it only as it takes the call apart.
    """
    before, after = (it.meta["val"].numel() for it in (node.args[0], node))
    if isinstance(before, int) and isinstance(after, int):
        return before == after
    return bool(sympy.expand(_expression(before) - _expression(after)) == 0)


def _expression(size: Any) -> sympy.Expr:
    return size.node.expr if isinstance(size, torch.SymInt) else sympy.Integer(size)


def _without_training(place: int) -> Callable[[Node], bool]:
    return lambda node: len(node.args) > place and node.args[place] is False


def _drops_nothing(node: Node) -> bool:
    _, *options = node.args
    return len(options) == 2 and (options[1] is False or options[0] == 0)


def _reshaped(node: Node) -> None:
    """A view, or where the elements are not laid out for it a copy."""
    source = node.args[0]
    is_view = _storages(source.meta["val"]) == _storages(node.meta["val"])
    node.target = aten.view.default if is_view else aten._unsafe_view.default
    node.args = (source, list(node.meta["val"].shape))
    node.kwargs = {}


def _copied(node: Node) -> None:
    node.target, node.args, node.kwargs = aten.clone.default, node.args[:1], {}


def _normalized(node: Node) -> None:
    """Batch norm by its running statistics: the first of three results of another operator."""
    *tensors, _, momentum, eps, _ = node.args
    val = node.meta["val"]
    with node.graph.inserting_before(node):
        target = aten._native_batch_norm_legit_no_training.default
        whole = node.graph.call_function(target, (*tensors, momentum, eps))
    whole.meta = {**node.meta, "val": (val, val.new_empty((0,)), val.new_empty((0,)))}
    node.target, node.args, node.kwargs = operator.getitem, (whole, 0), {}


def _expanded(node: Node) -> None:
    node.target, node.args = aten.expand.default, (node.args[0], list(node.meta["val"].shape))


def _split(node: Node) -> None:
    source, _, *rest = node.args
    dim = rest[0] if rest else node.kwargs.get("dim", 0)
    sizes = [part.shape[dim] for part in node.meta["val"]]
    node.target, node.args, node.kwargs = aten.split_with_sizes.default, (source, sizes, dim), {}


def _transposed(node: Node) -> None:
    node.target = aten.transpose.int


def _reversed(node: Node) -> None:
    order = list(reversed(range(node.meta["val"].dim())))
    node.target, node.args = aten.permute.default, (node.args[0], order)


def _last_two_turned(node: Node) -> None:
    node.target, node.args = aten.transpose.int, (node.args[0], -2, -1)


def _moved(node: Node) -> None:
    """Dimensions at other places; the rest stay in order."""
    tensor, *places = node.args
    rank = node.meta["val"].dim()
    origins, targets = (
        [it % rank for it in (place if isinstance(place, list | tuple) else [place])]
        for place in places
    )
    rest = (dim for dim in range(rank) if dim not in origins)
    at = dict(zip(targets, origins, strict=True))
    order = [at[dim] if dim in at else next(rest) for dim in range(rank)]
    node.target, node.args = aten.permute.default, (tensor, order)


def _changes_type_alone(node: Node) -> bool:
    """Whether a call of `to` gives the same device and layout, in the source's memory format."""
    before, after = node.args[0].meta["val"], node.meta["val"]
    names = [it.name for it in node.target._schema.arguments]
    asked = dict(zip(names, node.args, strict=False))
    asked |= node.kwargs
    same_place = (before.device, before.layout) == (after.device, after.layout)
    return same_place and not asked.get("copy") and asked.get("memory_format") is None


def _converted(node: Node) -> None:
    """A copy in another type; where that is the source's the source itself."""
    source, dtype = node.args[0], node.meta["val"].dtype
    if source.meta["val"].dtype == dtype:
        node.target, node.args, node.kwargs = aten.alias.default, (source,), {}
    else:
        node.target, node.args, node.kwargs = aten._to_copy.default, (source,), {"dtype": dtype}


_RESHAPES = (
    *(aten.reshape.default, aten.reshape_as.default),
    *(aten.flatten.using_ints, aten.unflatten.int),
)
_MOVES = (
    *(aten.movedim.int, aten.movedim.intlist),
    *(aten.moveaxis.int, aten.moveaxis.intlist),
)
_CONVERSIONS = (aten.to.dtype, aten.to.device, aten.to.dtype_layout, aten.to.other)

_REWRITTEN: dict[Any, Callable[[Node], None]] = {
    **{it: _reshaped for it in _RESHAPES},
    **{it: _converted for it in _CONVERSIONS},
    aten.contiguous.default: _copied,
    aten.lift_fresh_copy.default: _copied,
    aten.dropout.default: _copied,
    aten.batch_norm.default: _normalized,
    aten.expand_as.default: _expanded,
    aten.chunk.default: _split,
    aten.swapaxes.default: _transposed,
    aten.swapdims.default: _transposed,
    aten.numpy_T.default: _reversed,
    aten.mT.default: _last_two_turned,
    **{it: _moved for it in _MOVES},
}

_ALLOWED: dict[Any, Callable[[Node], bool]] = {
    **{it: _drops_nothing for it in (aten.dropout.default, aten.dropout_.default)},
    aten.batch_norm.default: _without_training(5),
    **{it: _keeps_count for it in _RESHAPES},
    **{it: _changes_type_alone for it in _CONVERSIONS},
}
"""What has to hold for a call to be rewritten here."""
