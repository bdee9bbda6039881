"""Tensors inside nested lists, tuples and dicts: the arguments and results of `forward`."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.utils._pytree import SUPPORTED_NODES, keystr, tree_flatten_with_path

PLAIN = "Tensor"
"""What `kind_of` calls a tensor that does what torch says."""

_SCALAR_DTYPES = {bool: torch.bool, int: torch.int64, float: torch.float64}


class UnknownResultError(TypeError):
    """`forward` returned something that is neither a tensor, a number nor a container of them."""


def map_tensors(value: object, function: Callable[[Tensor], Tensor]) -> object:
    """`value` with every tensor replaced by `function` of it; the containers are new."""
    match value:
        case Tensor():
            return function(value)
        case list():
            return [map_tensors(item, function) for item in value]
        case tuple():
            items = [map_tensors(item, function) for item in value]
            make: Callable[..., object] = type(value)
            return make(*items) if hasattr(value, "_fields") else make(items)
        case dict():
            return {key: map_tensors(item, function) for key, item in value.items()}
        case _:
            return value


def named_tensors(value: object, name: str) -> Iterator[tuple[str, Tensor]]:
    """The tensors of `value` with their paths, `name[0]["key"]`, in order."""
    match value:
        case Tensor():
            yield name, value
        case list() | tuple():
            for index, item in enumerate(value):
                yield from named_tensors(item, f"{name}[{index}]")
        case dict():
            for key, item in value.items():
                yield from named_tensors(item, f"{name}[{key!r}]")


def named_results(value: object, name: str) -> Iterator[tuple[str, Tensor]]:
    """Like `named_tensors`, with numbers as 0-dimensional tensors, and objects that PyTorch takes
    apart; anything else is refused."""
    match value:
        case None:
            return
        case bool() | int() | float():
            yield name, torch.tensor(value, dtype=_SCALAR_DTYPES[type(value)])
        case Tensor():
            yield name, value
        case list() | tuple():
            for index, item in enumerate(value):
                yield from named_results(item, f"{name}[{index}]")
        case dict():
            for key, item in value.items():
                yield from named_results(item, f"{name}[{key!r}]")
        case _ if type(value) in SUPPORTED_NODES:
            for place, item in tree_flatten_with_path(value)[0]:
                yield from named_results(item, name + keystr(place))
        case _:
            raise UnknownResultError(f"{name} is a {type(value).__name__}, not a tensor")


def named_effects(
    result: object, arguments: Sequence[object], state: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """All that a call can have touched: "output", "input[0]", "state.weight" and so on."""
    inputs = named_tensors(list(arguments), "input")
    states = ((f"state.{name}", tensor) for name, tensor in state.items())
    return {**dict(named_results(result, "output")), **dict(inputs), **dict(states)}


def kind_of(tensor: Tensor) -> str:
    """`PLAIN`, or the class that may do something else: every method of it may be a lie.

    So may one that an instance has for itself.
    """
    if type(tensor) not in (Tensor, nn.Parameter):
        return type(tensor).__name__
    own = [name for name in vars(tensor) if hasattr(Tensor, name)]
    return f"{PLAIN} with a `{own[0]}` of its own" if own else PLAIN


def structure(value: object) -> str:
    """The containers around the tensors as text, for comparing two results: "(T, [T])".

    One that does not give its items as Python's own do has its name in front.
    """
    match value:
        case Tensor():
            return "T"
        case list():
            return f"{_strange(value, list)}[{', '.join(map(structure, value))}]"
        case tuple():
            return f"{_strange(value, tuple)}({', '.join(map(structure, value))})"
        case dict():
            items = ", ".join(f"{key!r}: {structure(item)}" for key, item in value.items())
            return f"{_strange(value, dict)}{{{items}}}"
        case _:
            return type(value).__name__


_GIVING = ("__iter__", "__len__", "__getitem__", "items")
"""Methods through which a container gives its items."""


def _strange(value: object, base: type) -> str:
    """The name of a class that has such methods of its own, or nothing."""
    made = type(value)
    if made.__module__ == "collections":
        return ""
    own = any(getattr(made, name, None) is not getattr(base, name, None) for name in _GIVING)
    return made.__name__ if own else ""
