"""Calls that stay with PyTorch: any operator that no other table knows, made as the module made it.

Functional tracing spells two of them in a way that eager PyTorch does not run. Here they are turned
back: batch norm, which updates its running statistics in place, and dropout, which is one kernel on
CUDA and draws other random numbers when it is taken apart.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from kernelwright.capture.builder import Builder, Call, Number
from kernelwright.capture.errors import ScalarNeededError
from kernelwright.ir.calls import AtenCall
from kernelwright.ir.kinds import Opaque, Parameter, Project


def opaque(builder: Builder, call: Call) -> str:
    """The node of a call left to PyTorch."""
    for node in call.node.all_input_nodes:
        is_number = isinstance(builder.values.get(node), Number)
        if is_number and isinstance(node.meta["val"], torch.Tensor):
            raise ScalarNeededError(f"{call.name} takes a call-time number as a tensor")
    origin = builder.origin(call.node)
    tagged = torch.Tag.nondeterministic_seeded in getattr(call.node.target, "tags", ())
    drops = any(call.arguments.get(name) for name in ("dropout", "dropout_p"))
    return builder.add_call(call, Opaque(random=tagged or drops), origin.refs, origin)


def project(builder: Builder, call: Call, index: int, item: fx.Node) -> str:
    """The node of one result of a call that returns several."""
    return builder.add(
        Project(index),
        builder.type_of(item.meta["val"]),
        (builder.tensor(call.node),),
        name=f"{call.operator}_{index}",
        source=call.source,
    )


def eager_items(builder: Builder, call: Call) -> dict[int, str] | None:
    """The nodes of the items of a functional call, made by the operator that eager PyTorch runs.

    None where there is no such operator, or where it does not return an item that is used.
    """
    rule = _EAGER.get(call.operator)
    if rule is None:
        return None
    return rule(builder, call, {user.args[1] for user in call.node.users})


def _batch_norm(builder: Builder, call: Call, used: set[Any]) -> dict[int, str] | None:
    """Items 3 and 4 are the new running statistics: the buffers themselves once it has run."""
    arguments = {"running_mean": None, "running_var": None, "training": False} | call.arguments
    statistics = [arguments["running_mean"], arguments["running_var"]]
    names = [None if value is None else builder.tensor(value) for value in statistics]
    buffers = {index: name for index, name in zip((3, 4), names, strict=True) if name is not None}
    if not used <= {0, *buffers}:
        return None
    kinds = [builder.node(name).kind for name in buffers.values()]
    mutates = tuple(kind.path for kind in kinds if isinstance(kind, Parameter))
    if used & buffers.keys() and len(mutates) < 2:
        return None
    args = [builder.argument(arguments[name]) for name in _BATCH_NORM]
    origin = AtenCall("aten.batch_norm.default", (*args, True))
    kind = Opaque(mutates=mutates if arguments["training"] else ())
    return {0: _first(builder, call, "batch_norm", kind, origin)} | buffers


# The arguments of aten.batch_norm, but for the last, cudnn_enabled.
_BATCH_NORM = (
    *("input", "weight", "bias", "running_mean", "running_var", "training", "momentum", "eps"),
)


def _dropout(builder: Builder, call: Call, used: set[Any]) -> dict[int, str] | None:
    """Item 1 is the mask, which aten.dropout keeps to itself."""
    if used != {0}:
        return None
    args = [builder.argument(call.arguments[name]) for name in ("input", "p")]
    origin = AtenCall("aten.dropout.default", (*args, True))
    return {0: _first(builder, call, "dropout", Opaque(random=True), origin)}


def _first(builder: Builder, call: Call, name: str, kind: Opaque, origin: AtenCall) -> str:
    """Append the node of an operator that returns the first item alone."""
    return builder.add(
        kind,
        builder.type_of(call.result[0]),
        origin.refs,
        name=name,
        origin=origin,
        operators=(name,),
        source=call.source,
    )


_EAGER: dict[str, Callable[[Builder, Call, set[Any]], dict[int, str] | None]] = {
    "_native_batch_norm_legit_functional": _batch_norm,
    "_native_batch_norm_legit_no_training": _batch_norm,
    "_native_batch_norm_legit": _batch_norm,
    "native_batch_norm": _batch_norm,
    "native_dropout": _dropout,
}
