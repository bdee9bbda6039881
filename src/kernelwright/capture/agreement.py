"""Whether a graph returns what a call of the module returns: structure, classes, shapes, dtypes."""

import collections
import operator
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from kernelwright.capture.arguments import Arguments
from kernelwright.capture.caches import cache_parts, is_cache
from kernelwright.capture.exporting import fake_mode, kept_quiet
from kernelwright.capture.types import dtype_of
from kernelwright.ir.calls import Argument, Instance, Record, Ref
from kernelwright.ir.graph import Graph
from kernelwright.ir.kinds import Opaque
from kernelwright.ir.recurrence import Recurrent
from kernelwright.ir.types import Dim, TensorType

_WithoutData = Callable[[torch.Tensor], torch.Tensor]
_Mode = AbstractContextManager[Any]


class EagerCallError(Exception):
    """Internal: the module does not run on tensors without data; the exception is the cause."""


def eager_result(module: nn.Module, arguments: Arguments) -> Any:
    """The result of a plain call of the module on fake tensors; nothing of the module changes.

    Raises EagerCallError.
    """
    mode = fake_mode(module, arguments) or FakeTensorMode(allow_non_fake_inputs=True)

    def fake(tensor: torch.Tensor) -> torch.Tensor:
        if isinstance(tensor, FakeTensor):
            return tensor.detach()
        return mode.from_tensor(tensor.detach(), static_shapes=True)

    return _called(module, arguments, fake, mode)


def meta_result(module: nn.Module, arguments: Arguments) -> Any:
    """The result of a plain call on tensors of the device meta, in a fifth of a fake call's time.

    Code that asks for a tensor's device may give another result, or fail, on this one. Nothing of
    the module changes. Raises EagerCallError.
    """
    if fake_mode(module, arguments) is not None:
        raise EagerCallError
    device = torch.device("meta")
    return _called(module, arguments, lambda tensor: tensor.detach().to(device), device)


def _called(
    module: nn.Module, arguments: Arguments, without_data: _WithoutData, mode: _Mode
) -> Any:
    """The result of a plain call in a mode, on tensors that have no data."""
    enabled = torch.backends.mha.get_fastpath_enabled()
    try:
        torch.backends.mha.set_fastpath_enabled(False)  # its operators take data
        args, kwargs = arguments.rebuilt(
            [
                without_data(leaf.value) if isinstance(leaf.value, torch.Tensor) else leaf.value
                for leaf in arguments.leaves
            ]
        )
        with kept_quiet(), kept_as_it_is(module), mode, torch.no_grad():
            _leave_data_out(module, without_data)
            return module(*args, **kwargs)
    except Exception as error:  # of every kind: the user's own too
        raise EagerCallError from error
    finally:
        torch.backends.mha.set_fastpath_enabled(enabled)


def _leave_data_out(module: nn.Module, without_data: _WithoutData) -> None:
    """Put tensors without data in place of the module's own; shared ones stay shared."""
    others: dict[int, Any] = {}
    for part in module.modules():
        for table in (part._parameters, part._buffers, vars(part)):
            for name, value in table.items():
                if isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor):
                    if id(value) not in others:
                        others[id(value)] = without_data(value)
                    table[name] = others[id(value)]


@contextmanager
def kept_as_it_is(module: nn.Module) -> Iterator[None]:
    """A block after which the attributes of a module and its parts are what they were, hooks too.

    Dicts among them keep their contents: parameters, children, hooks that a first call installs.
    """
    kept = [
        (part, dict(vars(part)), [(it, dict(it)) for it in vars(part).values() if _is_dict(it)])
        for part in module.modules()
    ]
    try:
        yield
    finally:
        for part, attributes, contents in kept:
            own = vars(part)
            own.clear()
            own.update(attributes)
            for table, content in contents:
                table.clear()
                table.update(content)


def _is_dict(value: object) -> bool:
    return type(value) in (dict, collections.OrderedDict)


def has_all_steps(graph: Graph) -> bool:
    """Whether no node stands for many operators, as a recurrent layer does for all its steps.

    On the device meta these are called one by one; fake tensors take the layer as one operator.
    """
    return not any(isinstance(node.kind, Opaque | Recurrent) for node in graph.nodes)


def difference(value: Any, graph: Graph, home: str) -> str | None:
    """What the graph returns otherwise than `value`, a sentence; None where they agree.

    `home` is the module of the class that was captured.
    """
    return next(_differences(value, graph.returns, graph, home, "its result"), None)


def _differences(
    value: Any, returned: Argument, graph: Graph, home: str, where: str
) -> Iterator[str]:
    match returned:
        case Ref(name) if isinstance(kind := graph[name].type, TensorType):
            theirs = _described(value)
            ours = f"{kind.dtype.value}{[dim.hint for dim in kind.shape]}"
            if theirs != ours:
                yield f"{where} is {theirs} in a call and {ours} in the graph"
        case Record(kind, items, keys):
            expected: object = {"list": list, "tuple": tuple, "dict": dict}[kind]
            if type(value) is not expected or len(value) != len(items):
                yield f"{where} is {_described(value)} in a call and a {kind} in the graph"
                return
            for key, item in zip(keys or range(len(items)), items, strict=True):
                yield from _differences(value[key], item, graph, home, f"{where}[{key!r}]")
        case Instance():
            yield from _in_instance(value, returned, graph, home, where)
        case Dim(hint=hint) if value != hint:
            yield f"{where} is {value} in a call and {hint} in the graph"
        case bool() | int() | float() if not isinstance(value, int | float) or value != returned:
            yield f"{where} is {_described(value)} in a call and {returned} in the graph"
        case None if value is not None:
            yield f"{where} is {_described(value)} in a call and None in the graph"


def _in_instance(
    value: Any, returned: Instance, graph: Graph, home: str, where: str
) -> Iterator[str]:
    module = sys.modules[returned.module or home]
    if type(value) is not operator.attrgetter(returned.name)(module):
        yield f"{where} is {_described(value)} in a call and a {returned.name} in the graph"
        return
    for name, item in returned.kwargs:
        yield from _differences(getattr(value, name), item, graph, home, f"{where}.{name}")
    if returned.kwargs:
        return
    for at, (part, item) in enumerate(zip(_parts(value), returned.args, strict=True)):
        yield from _differences(part, item, graph, home, f"{where}[{at}]")


def _parts(value: Any) -> list[Any]:
    """What a class is called with, apart from keywords, to give this object."""
    if is_cache(type(value)):
        return cache_parts(value)
    if hasattr(value, "_fields"):
        return list(value)
    if isinstance(value, collections.OrderedDict):
        return [dict(value)]
    return [tuple(value)] if isinstance(value, tuple) else []


def _described(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{dtype_of(value.dtype).value}{list(value.shape)}"
    return "None" if value is None else f"a {type(value).__name__}"
