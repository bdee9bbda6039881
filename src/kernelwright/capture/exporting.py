"""Trace a module with torch.export into functional ATen, as dynamic as the module allows."""

import inspect
import io
import logging
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import sympy
import torch
from torch import nn
from torch._guards import detect_fake_mode
from torch._subclasses.fake_tensor import DynamicOutputShapeException, FakeTensorMode
from torch.export import Dim, ExportedProgram, export
from torch.fx.experimental import proxy_tensor
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.nn.modules.module import register_module_buffer_registration_hook
from torch.utils import _traceback

from kernelwright.capture.arguments import Arguments, Leaf
from kernelwright.capture.caches import without_lifted_tensors
from kernelwright.capture.contiguity import contiguity_by_sight
from kernelwright.capture.errors import CaptureError, SymbolicWorkError, TraceError
from kernelwright.capture.functional import functional
from kernelwright.capture.nested import no_nested_tensors
from kernelwright.capture.openness import TERMS, Extent, OpenSizes, Watch, watched_conditions
from kernelwright.capture.shapes import known_shapes
from kernelwright.capture.sources import first_line

_LOGGERS = (
    *("torch.fx.experimental.symbolic_shapes", "torch._export.non_strict_utils"),
    *("torch._subclasses.fake_tensor", "torch.export", "torch._export"),
)
_ENTER_OPERATORS = "_materialize_cpp_cia_ops"
"""In torch._export.utils of releases that have it: gives torch.ops all operators that C++ has."""
_FRAMES = "_extract_symbolized_tb"
"""In torch.utils._traceback: makes the frames of an operator's call, with their source lines."""
_DESCRIBE = "_extract_tensor_metadata"
"""In torch.fx.experimental.proxy_tensor: says of each result once more what it is, and in which
memory formats it is contiguous."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """A traced module."""

    name: str
    program: ExportedProgram
    arguments: Arguments
    """Its leaves are in the order of the program's user inputs."""
    attributes: frozenset[str]
    """Paths of tensors that are plain attributes of the module, neither parameters nor buffers."""
    assigned: frozenset[str]
    """Those of them that `forward` assigns."""
    path: Path | None
    """The user's file, which nodes and messages point into."""
    notes: tuple[str, ...]


def trace(
    module: nn.Module,
    arguments: Arguments,
    *,
    name: str,
    path: Path | None,
    sizes: OpenSizes,
    terms: int = TERMS,
    notes: tuple[str, ...] = (),
) -> Exported:
    """Export `module` and make the program functional, composite operators kept whole.

    Raises SymbolicWorkError where conditions on open sizes have more than `terms`, and TraceError
    with what torch.export raised as its cause.
    """
    mode = fake_mode(module, arguments)
    args, kwargs = arguments.rebuilt([_stand_in(leaf, mode) for leaf in arguments.leaves])
    shapes = _shapes(module, arguments, sizes)
    with ExitStack() as stack:
        for manner in (
            kept_quiet(),
            _swift(mode),
            known_shapes(),
            contiguity_by_sight(),
            no_nested_tensors(),
            without_lifted_tensors(),
            _keywords_with_names(module, kwargs),
        ):
            stack.enter_context(manner)
        attributes = stack.enter_context(_attributes_as_buffers(module))
        assigned = stack.enter_context(_assigned(module))
        watch = stack.enter_context(watched_conditions(terms))
        try:
            program = export(module, args, kwargs, dynamic_shapes=shapes, strict=False)
            program = functional(program)
        except CaptureError:
            raise
        except Exception as error:  # of every kind: also the user's own, from `forward`
            raise _failure(error, watch) from error
    return Exported(
        name=name,
        program=program,
        arguments=arguments,
        attributes=attributes,
        assigned=attributes & assigned,
        path=path,
        notes=notes,
    )


def _failure(error: Exception, watch: Watch) -> Exception:
    """What it means for the next attempt that tracing raised `error`."""
    if watch.is_spent:
        return SymbolicWorkError()
    if isinstance(error, GuardOnDataDependentSymNode):
        return TraceError("`forward` decides by a number that it reads from a tensor")
    if isinstance(error, DynamicOutputShapeException):
        return TraceError(f"the size of what {error.func} gives depends on the numbers in a tensor")
    return TraceError(watch.plain(first_line(error)))


def fake_mode(module: nn.Module, arguments: Arguments) -> FakeTensorMode | None:
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


def _shapes(module: nn.Module, arguments: Arguments, sizes: OpenSizes) -> dict[str, Any] | None:
    """What torch.export is told of every argument, by the names that it asks for them by."""
    if sizes.extent is Extent.NONE:
        return None
    args, kwargs = arguments.rebuilt([_shape(leaf, sizes) for leaf in arguments.leaves])
    named: dict[str, Any] = {}
    bound = inspect.signature(module.forward).bind(*args, **kwargs)
    for name, value in bound.arguments.items():
        is_rest = bound.signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD
        named |= value if is_rest else {name: value}
    return named


@contextmanager
def _keywords_with_names(module: nn.Module, kwargs: Mapping[str, Any]) -> Iterator[None]:
    """A block in which `forward` has parameters for what it would get in its `**kwargs`.

    torch.export contradicts itself on where the shapes of such arguments are to be found.
    """
    forward, signature = module.forward, inspect.signature(module.forward)
    kinds = {parameter.kind for parameter in signature.parameters.values()}
    extra = kwargs.keys() - signature.parameters.keys()
    if inspect.Parameter.VAR_KEYWORD not in kinds or not extra:
        yield
        return

    def named(*args: Any, **kwargs: Any) -> Any:
        return forward(*args, **kwargs)

    *parameters, _ = signature.parameters.values()
    own = [inspect.Parameter(x, inspect.Parameter.KEYWORD_ONLY) for x in kwargs if x in extra]
    named.__signature__ = signature.replace(parameters=[*parameters, *own])  # type: ignore[attr-defined]
    before = module.__dict__.get("forward")
    module.__dict__["forward"] = named
    try:
        yield
    finally:
        del module.__dict__["forward"]
        if before is not None:
            module.__dict__["forward"] = before


def _shape(leaf: Leaf, sizes: OpenSizes) -> Any:
    """What torch.export is told of one leaf; sizes 0 and 1 it treats as constants anyway."""
    if isinstance(leaf.value, torch.Tensor):
        shape = enumerate(leaf.value.shape)
        return {n: Dim.AUTO for n, size in shape if size > 1 and sizes.has((leaf.path, n))}
    if leaf.is_scalar:
        return {}  # it is traced as a tensor without dimensions
    return Dim.AUTO if leaf.is_open else None


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
def _assigned(module: nn.Module) -> Iterator[set[str]]:
    """A block that collects the paths of the buffers that are assigned in it."""
    prefixes = {part: prefix for prefix, part in module.named_modules()}
    found: set[str] = set()

    def see(part: nn.Module, name: str, _: torch.Tensor | None) -> None:
        if part in prefixes:  # Programs of torch.export are modules, too.
            found.add(f"{prefixes[part]}.{name}".removeprefix("."))

    hook = register_module_buffer_registration_hook(see)
    try:
        yield found
    finally:
        hook.remove()


@contextmanager
def _swift(mode: FakeTensorMode | None) -> Iterator[None]:
    """Trace without what costs more than it saves.

    To look symbolic shapes up that were found before, in `mode` or in one that tracing makes, is a
    tenth of the time. An eighth is to enter all operators that C++ has registered into torch.ops,
    which is done for each namespace of torch.ops again. A fifth, where maps are cut into windows,
    is to simplify a few quotients of sizes with sympy, each in several layers. A twentieth is to
    read the source lines of all frames around every operator. Half, where sizes are sums of many
    others, is to ask in which memory formats each result is contiguous, which nobody reads.
    """
    from torch._dynamo import config as dynamo_config  # most of a second
    from torch._export import utils as export_utils

    if mode is not None:
        mode.cache_enabled = False
    with dynamo_config.patch(fake_tensor_cache_enabled=False), ExitStack() as stack:
        enter_operators = getattr(export_utils, _ENTER_OPERATORS, None)
        if enter_operators is not None:
            enter_operators()
            stack.enter_context(patch.object(export_utils, _ENTER_OPERATORS, _nothing))
        stack.enter_context(patch.object(sympy, "simplify", _once(sympy.simplify)))
        stack.enter_context(patch.object(sympy.Expr, "is_number", _known_numbers()))
        if hasattr(_traceback, _FRAMES):
            stack.enter_context(patch.object(_traceback, _FRAMES, _frames_without_lines))
        if hasattr(proxy_tensor, _DESCRIBE):
            stack.enter_context(patch.object(proxy_tensor, _DESCRIBE, _nothing))
        yield


def _frames_without_lines(frames: Any, skip: int) -> traceback.StackSummary:
    """PyTorch's frames, innermost first, as a stack; files and numbers of lines are all we read."""
    return traceback.StackSummary(
        traceback.FrameSummary(
            frame["filename"], frame["line"], frame["name"], lookup_line=False, line=""
        )
        for frame in reversed(frames[skip:])
    )


def _once(simplify: Callable[..., Any]) -> Callable[..., Any]:
    """`sympy.simplify` that does the work once for an expression, and none where it is a product or
    a sum that nothing divides: sympy has cancelled what it could."""
    known: dict[sympy.Expr, Any] = {}

    def simplified(expr: Any, *options: Any, **more: Any) -> Any:
        if options or more or not isinstance(expr, sympy.Expr):
            return simplify(expr, *options, **more)
        if not any(power.exp.is_negative for power in expr.atoms(sympy.Pow)):
            return expr
        if expr not in known:
            known[expr] = simplify(expr)
        return known[expr]

    return simplified


def _known_numbers() -> property:
    """`sympy.Expr.is_number`, which looks for symbols in all of an expression, asked of each once:
    PyTorch asks in each step of arithmetic on sizes."""
    known: dict[sympy.Expr, bool] = {}
    look = sympy.Expr.is_number.fget

    def is_number(expr: sympy.Expr) -> bool:
        if expr not in known:
            known[expr] = look(expr)
        return known[expr]

    return property(is_number)


def _nothing(*_: Any) -> None:
    """What nobody needs, or what was done before."""


@contextmanager
def kept_quiet() -> Iterator[None]:
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
