"""A module to a Graph: as dynamic as can be first, then step by step less so."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import nn

from kernelwright.capture.agreement import (
    EagerCallError,
    difference,
    eager_result,
    has_all_steps,
    kept_as_it_is,
    meta_result,
)
from kernelwright.capture.arguments import Arguments, bind
from kernelwright.capture.attempts import RETRIED, Attempt, following, told
from kernelwright.capture.caches import know_caches
from kernelwright.capture.convert import convert
from kernelwright.capture.errors import (
    CaptureError,
    NumberAskedError,
    UnlikeCallError,
    UnsupportedValueError,
    WrongArgumentsError,
)
from kernelwright.capture.exporting import trace
from kernelwright.capture.names import RESERVED
from kernelwright.capture.openness import TERMS, Extent, OpenSizes
from kernelwright.capture.sameness import is_same_work
from kernelwright.capture.sources import first_line, innermost_line
from kernelwright.collecting import uncollected
from kernelwright.ir.graph import Graph
from kernelwright.ir.spec import check
from kernelwright.problem.execution import Shapes, instantiate_fake
from kernelwright.problem.record import Problem


def capture(problem: Problem) -> Graph:
    """The graph of a problem's module, in the mode that its constructor leaves it in.

    Nothing is computed: tensors are fake, except where the file needs real ones, which a note of
    the graph says. Raises what `instantiate` raises for mistakes in the file, CaptureError for a
    module that torch.export does not take, UnsupportedValueError for values that graphs have no
    word for; each with the line of the file.
    """
    instance = instantiate_fake(problem, Shapes())
    return capture_module(
        instance.module,
        instance.inputs,
        name=problem.name,
        path=problem.path,
        notes=instance.notes,
    )


def capture_module(
    module: nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    name: str | None = None,
    path: Path | None = None,
    notes: tuple[str, ...] = (),
    terms: int = TERMS,
) -> Graph:
    """The graph of `module(*args, **kwargs)`, in the mode that the module is in.

    Sizes of tensors and numbers stay open where the module allows: sizes in `Graph.symbols`,
    floats and ints as scalar inputs. What the trace holds fast is in `Graph.guards`, and why, in
    `Graph.notes`; where conditions on open sizes have more than `terms` in all, only the first size
    of each argument is open. `path` is the user's file; without it, lines are those outside of
    PyTorch.

    Raises as `capture` does.
    """
    arguments = _bind(module, args, kwargs or {}, path)
    know_caches()
    called = _Call(module, arguments)
    attempt: Attempt | None = Attempt(sizes=OpenSizes(Extent.ALL))
    while attempt is not None:
        request = _Request(
            module=module,
            arguments=arguments.with_constants(attempt.constants),
            name=name or type(module).__name__,
            path=path,
            sizes=attempt.sizes,
            terms=terms,
            notes=(*notes, *attempt.notes),
        )
        try:
            # A first call may install hooks, or make tables.
            with uncollected(), kept_as_it_is(module):
                return called.confirmed(_settled(request))
        except RETRIED as error:
            failure, attempt = error, following(attempt, error, arguments)
    if isinstance(failure, UnsupportedValueError):
        raise failure
    if isinstance(failure, UnlikeCallError):
        raise CaptureError(
            f"the graph is not what the module computes: {failure}", next_step=_OTHERWISE
        )
    cause = failure.__cause__ or failure
    mistake = isinstance(cause, _OF_PYTHON) or type(cause) is RuntimeError
    raise CaptureError(
        f"torch.export does not take the module: {told(failure)}",
        location=innermost_line(cause, path),
        next_step=_MISTAKE if mistake else None,
    ) from cause


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """One way to trace a module."""

    module: nn.Module
    arguments: Arguments
    name: str
    path: Path | None
    sizes: OpenSizes
    terms: int
    notes: tuple[str, ...]

    def graph(self) -> Graph:
        """The graph that this gives."""
        exported = trace(
            self.module,
            self.arguments,
            name=self.name,
            path=self.path,
            sizes=self.sizes,
            terms=self.terms,
            notes=self.notes,
        )
        return check(convert(exported))


def _settled(request: _Request) -> Graph:
    """The graph of a request; one with open numbers only where their values give the same one.

    Raises NumberAskedError otherwise: the code asks for the type or the value of a number.
    """
    graph, names = request.graph(), request.arguments.numbers
    if names:
        numbers = {x.name: x.value for x in request.arguments.leaves if x.name in names}
        fixed = replace(request, arguments=request.arguments.with_constants(frozenset(names)))
        if not is_same_work(graph, fixed.graph(), numbers):
            raise NumberAskedError("what the module does depends on what the number is")
    return graph


class _Call:
    """A plain call of the module without data, made when it is first asked for.

    On the device meta, and where that is not like the graph, or where the graph does not show all
    operators, on fake tensors: these are slow, but seem to be where the module's are.
    """

    def __init__(self, module: nn.Module, arguments: Arguments) -> None:
        self._module = module
        self._arguments = arguments

    @cached_property
    def _meta_result(self) -> Any:
        return meta_result(self._module, self._arguments)

    @cached_property
    def _result(self) -> Any:
        return eager_result(self._module, self._arguments)

    def confirmed(self, graph: Graph) -> Graph:
        """The graph, if it returns what the call does; a note where the call cannot be made.

        Raises UnlikeCallError.
        """
        home = type(self._module).__module__
        with suppress(EagerCallError):
            if has_all_steps(graph) and difference(self._meta_result, graph, home) is None:
                return graph
        try:
            found = difference(self._result, graph, home)
        except EagerCallError as error:
            reason = first_line(error.__cause__ or error)
            note = f"shapes and classes of the result were not compared with a call's ({reason})"
            return replace(graph, notes=(*graph.notes, note))
        if found is not None:
            raise UnlikeCallError(found)
        return graph


_OF_PYTHON = (
    *(ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, NameError),
    TypeError,
)
_OTHERWISE = (
    "Keep code out of `forward` that does something else while it is traced, for example where "
    "torch.compiler.is_compiling() is true."
)
_MISTAKE = (
    "Call the module on its inputs: if that raises the same, correct the line; if not, "
    "`torch.export.export(model, inputs, strict=False)` shows what torch.export cannot do."
)


def _bind(
    module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], path: Path | None
) -> Arguments:
    try:
        return bind(module, args, kwargs, RESERVED)
    except TypeError as error:
        raise WrongArgumentsError(
            f"the arguments do not fit `forward`: {error}",
            location=str(path) if path else None,
            next_step=None if path else "Pass the arguments that you would call the module with.",
        ) from error
