"""Tensors inside nested lists, tuples and dicts: the arguments and results of `forward`."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import Tensor

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
    """Like `named_tensors`, with numbers as 0-dimensional tensors; anything else is refused."""
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
        case _:
            raise UnknownResultError(f"{name} is a {type(value).__name__}, not a tensor")


def named_effects(
    result: object, arguments: Sequence[object], state: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """All that a call can have touched: "output", "input[0]", "state.weight" and so on."""
    inputs = named_tensors(list(arguments), "input")
    states = ((f"state.{name}", tensor) for name, tensor in state.items())
    return {**dict(named_results(result, "output")), **dict(inputs), **dict(states)}


def structure(value: object) -> str:
    """The containers around the tensors as text, for comparing two results: "(T, [T])"."""
    match value:
        case Tensor():
            return "T"
        case list():
            return f"[{', '.join(map(structure, value))}]"
        case tuple():
            return f"({', '.join(map(structure, value))})"
        case dict():
            items = ", ".join(f"{key!r}: {structure(item)}" for key, item in value.items())
            return f"{{{items}}}"
        case _:
            return type(value).__name__
