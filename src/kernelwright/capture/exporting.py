"""Trace a module with torch.export into functional ATen, as dynamic as the module allows."""

import gc
import inspect
import io
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, redirect_stderr
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import nn
from torch._guards import detect_fake_mode
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import Dim, ExportedProgram, export
from torch.utils._pytree import (
    keystr,
    tree_flatten_with_path,
    tree_map,
    tree_structure,
    tree_unflatten,
)

from kernelwright.capture.errors import TraceError, UnsupportedValueError
from kernelwright.capture.shapes import known_shapes

_LOGGERS = (
    *("torch.fx.experimental.symbolic_shapes", "torch._export.non_strict_utils"),
    *("torch._subclasses.fake_tensor", "torch.export", "torch._export"),
)
_ENTER_OPERATORS = "_materialize_cpp_cia_ops"
"""In torch._export.utils of releases that have it: gives torch.ops all operators that C++ has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """One tensor, number or other object among the arguments of a call of `forward`."""

    path: str
    """Python text over `forward`'s arguments: "x", "xs[0]"."""
    name: str
    """The same as an identifier, unique among the leaves."""
    value: Any
    """What was passed."""
    is_scalar: bool
    """True for a float that is traced as known at call time only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """Arguments of one call of `forward`, defaults filled in."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    leaves: tuple[Leaf, ...]
    """What is in them, in the order in which torch.export counts its inputs."""

    def with_constants(self, names: frozenset[str]) -> "Arguments":
        """The same with the call-time numbers of these names traced as what they are now."""
        leaves = [replace(x, is_scalar=x.is_scalar and x.name not in names) for x in self.leaves]
        return replace(self, leaves=tuple(leaves))


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """A traced module."""

    name: str
    program: ExportedProgram
    leaves: tuple[Leaf, ...]
    """In the order of the program's user inputs."""
    attributes: frozenset[str]
    """Paths of tensors that are plain attributes of the module, neither parameters nor buffers."""
    path: Path | None
    """The user's file, which nodes and messages point into."""
    notes: tuple[str, ...]


def bind(
    module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], taken: frozenset[str]
) -> Arguments:
    """The arguments as `forward` gets them; names in `taken` are not given to leaves.

    Raises TypeError, as the call would, where they do not fit its signature, and
    UnsupportedValueError for an argument that is neither tensor nor number nor text nor None.
    """
    signature = inspect.signature(module.forward)
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    named: list[tuple[str, Any]] = []
    for name, value in bound.arguments.items():
        match signature.parameters[name].kind:
            case inspect.Parameter.VAR_POSITIONAL:
                named += [(f"{name}[{place}]", item) for place, item in enumerate(value)]
            case inspect.Parameter.VAR_KEYWORD:
                named += [(f"{name}[{key!r}]", item) for key, item in value.items()]
            case _:
                named.append((name, value))
    leaves: list[Leaf] = []
    for path, value in (
        (f"{name}{keystr(place)}", leaf)
        for name, argument in named
        for place, leaf in tree_flatten_with_path(argument)[0]
    ):
        if not isinstance(value, torch.Tensor | bool | int | float | str | None):
            kind = type(value).__name__
            raise UnsupportedValueError(f"the argument {path} of `forward` is a {kind}")
        name = _identifier(path, taken | {leaf.name for leaf in leaves})
        leaves.append(Leaf(path=path, name=name, value=value, is_scalar=isinstance(value, float)))
    return Arguments(args=bound.args, kwargs=bound.kwargs, leaves=tuple(leaves))


def trace(
    module: nn.Module,
    arguments: Arguments,
    *,
    name: str,
    path: Path | None,
    dims: Any = Dim.AUTO,
    notes: tuple[str, ...] = (),
) -> Exported:
    """Export `module` and make the program functional, composite operators kept whole.

    `dims` is what is asked of every size: Dim.AUTO for symbolic where that works, None for the
    sizes as they are. Raises TraceError with what torch.export raised as its cause.
    """
    mode = _fake_mode(module, arguments)
    values = [_stand_in(leaf, mode) for leaf in arguments.leaves]
    args, kwargs = _rebuild(arguments, values)
    named = {} if dims is None else _by_parameter(module, args, kwargs)
    shapes = tree_map(lambda leaf: _shape(leaf, dims), named)
    with _quiet(), _swift(mode), _attributes_as_buffers(module) as attributes, known_shapes():
        try:
            program = export(module, args, kwargs, dynamic_shapes=shapes or None, strict=False)
            program = program.run_decompositions({})
        except Exception as error:  # of every kind: also the user's own, from `forward`
            raise TraceError from error
    return Exported(
        name=name,
        program=program,
        leaves=arguments.leaves,
        attributes=attributes,
        path=path,
        notes=notes,
    )


def _identifier(path: str, taken: frozenset[str] | set[str]) -> str:
    """The path as a Python name: "xs[0]" becomes "xs_0"."""
    opened = path.replace("[", "_").replace(".", "_")
    base = "".join(letter for letter in opened if letter.isidentifier() or letter.isdigit())
    name, count = base, 0
    while name in taken:
        count += 1
        name = f"{base}_{count}"
    return name


def _fake_mode(module: nn.Module, arguments: Arguments) -> FakeTensorMode | None:
    """The mode whose fake tensors the module or the arguments hold, None for real ones."""
    values = [leaf.value for leaf in arguments.leaves]
    return detect_fake_mode([*values, *module.parameters(), *module.buffers()])


def _stand_in(leaf: Leaf, mode: FakeTensorMode | None) -> Any:
    """What a leaf is traced as.

    A float becomes a tensor without dimensions, in the default dtype: such a tensor takes part in
    type promotion exactly as a Python float does, and torch.export does not make it a constant.
    """
    if isinstance(leaf.value, torch.Tensor):
        # An alias: torch.export marks sizes as dynamic, and one more attempt would find the marks.
        return leaf.value.detach()
    if not leaf.is_scalar:
        return leaf.value
    with mode or nullcontext():
        return torch.tensor(leaf.value, dtype=torch.get_default_dtype())


def _rebuild(arguments: Arguments, values: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """`args` and `kwargs` with these values for the leaves."""
    structure = tree_structure((arguments.args, dict(arguments.kwargs)))
    args, kwargs = tree_unflatten(list(values), structure)
    return args, kwargs


def _by_parameter(
    module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments under the names that torch.export asks for their shapes by."""
    bound = inspect.signature(module.forward).bind(*args, **kwargs)
    named: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        if bound.signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
            named |= value
        else:
            named[name] = value
    return named


def _shape(value: Any, dims: Any) -> Any:
    """What torch.export is told of one leaf; sizes 0 and 1 it treats as constants anyway."""
    match value:
        case torch.Tensor():
            return {dim: dims for dim, size in enumerate(value.shape) if size > 1}
        case int() if not isinstance(value, bool):
            return dims
    return None


@contextmanager
def _attributes_as_buffers(module: nn.Module) -> Iterator[frozenset[str]]:
    """Register tensors that are plain attributes as buffers for a while; their paths.

    torch.export loses an assignment to a plain attribute, but keeps one to a buffer.
    """
    moved: list[tuple[nn.Module, str]] = []
    paths: set[str] = set()
    for prefix, part in module.named_modules():
        for name, value in list(vars(part).items()):
            if isinstance(value, torch.Tensor) and not hasattr(type(part), name):
                delattr(part, name)
                part.register_buffer(name, value, persistent=False)
                moved.append((part, name))
                paths.add(f"{prefix}.{name}" if prefix else name)
    try:
        yield frozenset(paths)
    finally:
        for part, name in moved:
            value = part._buffers[name]
            delattr(part, name)
            setattr(part, name, value)


@contextmanager
def _swift(mode: FakeTensorMode | None) -> Iterator[None]:
    """Trace without what costs more than it saves.

    To look for cyclic garbage is a fifth of the time, to look symbolic shapes up that were found
    before, in `mode` or in one that tracing makes, a tenth. An eighth is to enter all operators
    that C++ has registered into torch.ops, which is done for each namespace of torch.ops again.
    """
    from torch._dynamo import config as dynamo_config  # most of a second
    from torch._export import utils as export_utils

    if mode is not None:
        mode.cache_enabled = False
    enabled = gc.isenabled()
    gc.disable()
    try:
        with dynamo_config.patch(fake_tensor_cache_enabled=False), ExitStack() as stack:
            enter_operators = getattr(export_utils, _ENTER_OPERATORS, None)
            if enter_operators is not None:
                enter_operators()
                stack.enter_context(patch.object(export_utils, _ENTER_OPERATORS, _nothing))
            yield
    finally:
        if enabled:
            gc.enable()


def _nothing() -> None:
    """What was done before."""


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep tracing from warning about what the graph will say itself, or what is tried again."""
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        # torch.export prints the graph so far to stderr before it raises
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
