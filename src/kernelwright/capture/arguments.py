"""Arguments of one call of `forward`: as the caller gave them, and taken apart into leaves."""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import keystr, tree_flatten_with_path, tree_structure, tree_unflatten

from kernelwright.capture.errors import UnsupportedValueError
from kernelwright.ir.graph import Guard


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """One tensor, number or other object among the arguments of a call of `forward`."""

    path: str
    """Python text over `forward`'s arguments: "x", "xs[0]"."""
    name: str
    """An identifier made of the path, unique among the leaves."""
    value: Any
    """What was passed."""
    is_open: bool
    """True for a number that is traced as known at call time only."""

    @property
    def is_scalar(self) -> bool:
        """True for a float that is traced as known at call time only."""
        return self.is_open and isinstance(self.value, float)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """Arguments of one call of `forward`: positions stay positions, names stay names."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    """In the order of `forward`'s parameters."""
    leaves: tuple[Leaf, ...]
    """What is in them, in the order in which torch.export counts its inputs."""
    absent: tuple[Leaf, ...]
    """Defaults of the parameters that the caller left out: none of them is open."""
    counts: tuple[Guard, ...]
    """How many values lists, dicts, `*args` and `**kwargs` have."""

    @property
    def numbers(self) -> tuple[str, ...]:
        """Names of the leaves that are numbers known at call time only."""
        return tuple(leaf.name for leaf in self.leaves if leaf.is_open)

    def with_constants(self, names: frozenset[str]) -> "Arguments":
        """Arguments whose numbers of these names are traced as constants, at their values now."""
        leaves = [replace(x, is_open=x.is_open and x.name not in names) for x in self.leaves]
        return replace(self, leaves=tuple(leaves))

    def rebuilt(self, values: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """`args` and `kwargs` with these values for the leaves."""
        structure = tree_structure((self.args, dict(self.kwargs)))
        args, kwargs = tree_unflatten(list(values), structure)
        return args, kwargs


def bind(
    module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], taken: frozenset[str]
) -> Arguments:
    """The arguments as the caller gives them; names in `taken` are not given to leaves.

    Nothing is added: a decorator of `forward` may pass what the caller left out. Raises TypeError,
    as the call would, where they do not fit its signature, and UnsupportedValueError for an
    argument that is neither tensor nor number nor text nor None.
    """
    signature = inspect.signature(module.forward)
    given = signature.bind(*args, **kwargs)
    order = list(signature.parameters)
    known = [name for name in order if name in kwargs]
    kwargs = {name: kwargs[name] for name in dict.fromkeys([*known, *kwargs])}
    full = signature.bind(*args, **kwargs)
    full.apply_defaults()
    names = set(taken)
    leaves = _leaves(_named(signature, args, kwargs), full.arguments, names)
    left_out = [
        (name, value)
        for name, value in full.arguments.items()
        if name not in given.arguments and not _is_rest(signature.parameters[name])
    ]
    absent = _leaves(left_out, full.arguments, names)
    return Arguments(
        args=tuple(args),
        kwargs=kwargs,
        leaves=tuple(leaves),
        absent=tuple(replace(leaf, is_open=False) for leaf in absent),
        counts=tuple(_counts(signature, full.arguments)),
    )


def _is_rest(parameter: inspect.Parameter) -> bool:
    return parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _named(
    signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Iterator[tuple[str, Any]]:
    """Arguments with the text that names each over `forward`'s parameters."""
    places = [p.name for p in signature.parameters.values() if p.kind in _BY_POSITION]
    rests = {p.kind: p.name for p in signature.parameters.values() if _is_rest(p)}
    for at, value in enumerate(args):
        if at < len(places):
            yield places[at], value
        else:
            yield f"{rests[inspect.Parameter.VAR_POSITIONAL]}[{at - len(places)}]", value
    for name, value in kwargs.items():
        parameter = signature.parameters.get(name)
        if parameter is not None and parameter.kind in _BY_NAME:
            yield name, value
        else:
            yield f"{rests[inspect.Parameter.VAR_KEYWORD]}[{name!r}]", value


_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def _leaves(
    named: Sequence[tuple[str, Any]] | Iterator[tuple[str, Any]],
    scope: Mapping[str, Any],
    taken: set[str],
) -> list[Leaf]:
    """The leaves of arguments; `scope` has the values that their texts name."""
    found = []
    for path, value in (
        (f"{name}{keystr(place)}", leaf)
        for name, argument in named
        for place, leaf in tree_flatten_with_path(argument)[0]
    ):
        kind = type(value)
        if not isinstance(value, torch.Tensor | bool | int | float | str | None):
            raise UnsupportedValueError(f"the argument {path} of `forward` is a {kind.__name__}")
        if not _is_read_by(path, value, scope):
            owner = type(scope[path.partition("[")[0].partition(".")[0]]).__name__
            raise UnsupportedValueError(f"the argument {path} of `forward` lies in a {owner}")
        name = _identifier(path, taken)
        taken.add(name)
        found.append(Leaf(path=path, name=name, value=value, is_open=kind in (int, float)))
    return found


def _is_read_by(path: str, value: Any, scope: Mapping[str, Any]) -> bool:
    """Whether the text gives the value; that of a container which only pytree knows does not."""
    try:
        return eval(path, {}, dict(scope)) is value
    except (AttributeError, LookupError, TypeError):
        return False


def _counts(signature: inspect.Signature, arguments: Mapping[str, Any]) -> Iterator[Guard]:
    """Guards on how many values a call passes: as many as were captured, in every container."""
    for name, value in arguments.items():
        match signature.parameters[name].kind:
            case inspect.Parameter.VAR_POSITIONAL:
                yield from _as_many(name, value, f"*{name}")
            case inspect.Parameter.VAR_KEYWORD:
                yield from _as_many(name, value, f"**{name}")
            case _:
                yield from _as_many(name, value, name)


def _as_many(path: str, value: Any, shown: str) -> Iterator[Guard]:
    """Guards on the length of a container, or its keys, and on those of the containers in it."""
    match value:
        case list() | tuple():
            message = f"compiled for {len(value)} values in {shown} only"
            yield Guard(condition=f"len({path}) == {len(value)}", message=message)
            items: list[tuple[Any, Any]] = list(enumerate(value))
        case dict() if all(isinstance(key, str) for key in value):
            keys = sorted(value)
            message = f"compiled for the keys {keys} in {shown} only"
            yield Guard(condition=f"sorted({path}) == {keys}", message=message)
            items = list(value.items())
        case _:
            return
    for key, item in items:
        yield from _as_many(f"{path}[{key!r}]", item, f"{path}[{key!r}]")


def _identifier(path: str, taken: set[str]) -> str:
    """The path as a Python name: "xs[0]" becomes "xs_0"."""
    opened = path.replace("[", "_").replace(".", "_")
    base = "".join(letter for letter in opened if letter.isidentifier() or letter.isdigit())
    name, count = base, 0
    while name in taken:
        count += 1
        name = f"{base}_{count}"
    return name
