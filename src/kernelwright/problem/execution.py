"""Execute a problem file in this process; what its code raises comes back with file and line."""

import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_map_only

from kernelwright.problem.errors import (
    ModelNotModuleError,
    NoModelError,
    ProblemRaisedError,
    WrongReturnError,
)
from kernelwright.problem.record import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A constructed module and arguments to call it with."""

    model_class: type[nn.Module]
    init_args: tuple[Any, ...]
    init_kwargs: Mapping[str, Any]
    inputs: tuple[Any, ...]
    """Arguments of `forward`, as `get_inputs` returned them."""
    module: nn.Module
    """`model_class(*init_args, **init_kwargs)`, in the mode that its constructor left it in."""
    notes: tuple[str, ...] = ()
    """Which parts could not be made with fake tensors; empty when none was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """An executed problem file, before any of its functions was called."""

    problem: Problem
    namespace: ModuleType
    """The Python module that the file became; it stays in `sys.modules`."""

    @property
    def model_class(self) -> type[nn.Module]:
        """The class `Model`; NoModelError or ModelNotModuleError where it is none."""
        location = self.problem.location("Model")
        model = getattr(self.namespace, "Model", None)
        if model is None:
            raise NoModelError(f"{self.problem.path.name} defines no `Model`", location=location)
        if not (isinstance(model, type) and issubclass(model, nn.Module)):
            raise ModelNotModuleError(
                f"`Model` is no class derived from nn.Module, but {model!r}", location=location
            )
        return model

    def make_inputs(self) -> tuple[Any, ...]:
        """A fresh result of `get_inputs`: arguments of `forward`."""
        return tuple(self._call("get_inputs"))

    def make_init_inputs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Positional and keyword arguments of the constructor, from `get_init_inputs`.

        A list of exactly one list and one dict is read as `[args, kwargs]`.
        """
        match self._call("get_init_inputs"):
            case [list() | tuple() as args, dict() as kwargs] if all(
                isinstance(key, str) for key in kwargs
            ):
                return tuple(args), kwargs
            case args:
                return tuple(args), {}

    def build(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> nn.Module:
        """A new module."""
        with user_code(self.problem, "the constructor of `Model`"):
            return self.model_class(*args, **kwargs)

    def _call(self, name: str) -> list[Any] | tuple[Any, ...]:
        with user_code(self.problem, f"`{name}`"):
            result = getattr(self.namespace, name)()
        if not isinstance(result, list | tuple):
            raise WrongReturnError(
                f"`{name}` returns {_describe(result)}, not a list or tuple",
                location=self.problem.location(name),
            )
        return result


def execute(problem: Problem, module_name: str | None = None) -> Definition:
    """Run the file's top level as a Python module, by default named after the problem.

    Raises ProblemRaisedError with the line of the user's file that failed.
    """
    name = module_name or f"kernelwright_problem_{problem.name}"
    namespace = ModuleType(name)
    namespace.__file__ = str(problem.path)
    sys.modules[name] = namespace
    try:
        with user_code(problem, "the file"):
            exec(compile(problem.source, str(problem.path), "exec"), namespace.__dict__)
    except BaseException:
        del sys.modules[name]
        raise
    return Definition(problem=problem, namespace=namespace)


def instantiate(problem: Problem, module_name: str | None = None) -> Instance:
    """Execute the file, construct its module, and make inputs for one call.

    The random generators are used as they stand: seed them before. Raises ProblemRaisedError,
    WrongReturnError, NoModelError or ModelNotModuleError with the line of the user's file.
    """
    definition = execute(problem, module_name)
    inputs = definition.make_inputs()
    args, kwargs = definition.make_init_inputs()
    return Instance(
        model_class=definition.model_class,
        init_args=args,
        init_kwargs=kwargs,
        inputs=inputs,
        module=definition.build(args, kwargs),
    )


class Shapes(FakeTensorMode):  # type: ignore[no-untyped-call]
    """A mode in which tensors have shapes and no data."""

    def __init__(self) -> None:
        # Here and not above: it takes half a second, in every child, and few ask for shapes.
        from torch.fx.experimental.symbolic_shapes import ShapeEnv

        # without scalar outputs `.item()` raises, where it would give a made-up symbolic number
        shape_env = ShapeEnv(allow_scalar_outputs=False)
        super().__init__(shape_env=shape_env, allow_non_fake_inputs=True)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Shapes":
        """Modules that copy their layers copy the tensors, not the mode that these belong to."""
        return self


def instantiate_fake(problem: Problem, mode: Shapes, module_name: str | None = None) -> Instance:
    """An instance with tensors of `mode`, which hold no data, so that any size costs nothing.

    Where the inputs or the constructor need real numbers (`.item()`), that part is made with real
    ones that are then converted; `notes` says so. Real errors of the file raise as in
    `instantiate`.
    """
    notes: list[str] = []
    definition = execute(problem, module_name)
    try:
        with mode:
            inputs = definition.make_inputs()
    except ProblemRaisedError:
        inputs = _convert(definition.make_inputs(), mode)
        notes.append("get_inputs ran with real tensors")
    args, kwargs = definition.make_init_inputs()
    try:
        with mode:
            module = definition.build(args, kwargs)
    except ProblemRaisedError:
        module = definition.build(args, kwargs)
        _convert_module(module, mode)
        notes.append("the constructor ran with real tensors")
    return Instance(
        model_class=definition.model_class,
        init_args=args,
        init_kwargs=kwargs,
        inputs=_beside(module, inputs, mode),
        module=module,
        notes=tuple(notes),
    )


@contextmanager
def user_code(problem: Problem, what: str) -> Iterator[None]:
    """Turn an exception of the file's own code into a ProblemRaisedError with its line there."""
    try:
        yield
    except (Exception, SystemExit) as error:
        name = type(error).__name__
        text = str(error).strip()
        raise ProblemRaisedError(
            f"{what} raised {name}" + (f": {text}" if text else ""),
            location=locate(problem, error),
        ) from error


def locate(problem: Problem, error: BaseException) -> str:
    """`file:line` of the innermost frame of `error` that is in the problem's file."""
    path = str(problem.path)
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == path]
    return f"{path}:{lines[-1] if lines else problem.lines.get('Model', 1)}"


def _describe(value: object) -> str:
    if isinstance(value, torch.Tensor):
        return "a Tensor"  # and not a FakeTensor, of which its user knows nothing
    name = type(value).__name__
    return "None" if value is None else f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def _beside(module: nn.Module, inputs: Any, mode: Shapes) -> Any:
    """The inputs on the module's device: who runs the file moves both to one, as this does."""
    places = {tensor.device for tensor in (*module.parameters(), *module.buffers())}
    if len(places) != 1:
        return inputs
    (place,) = places
    with mode:
        return tree_map_only(torch.Tensor, lambda tensor: tensor.to(place), inputs)


def _convert(value: Any, mode: Shapes) -> Any:
    """`value` with the tensors in its lists, tuples and dicts made fake."""
    match value:
        case torch.Tensor():
            return mode.from_tensor(value, static_shapes=True)
        case list() | tuple():
            return type(value)(_convert(item, mode) for item in value)
        case dict():
            return {key: _convert(item, mode) for key, item in value.items()}
    return value


def _convert_module(module: nn.Module, mode: Shapes) -> None:
    """Make the module's parameters and buffers fake; shared ones stay shared."""
    fakes: dict[int, torch.Tensor] = {}
    for part in module.modules():
        for table in (part._parameters, part._buffers):
            for name, tensor in table.items():
                if tensor is not None:
                    fake = fakes.setdefault(
                        id(tensor), mode.from_tensor(tensor, static_shapes=True)
                    )
                    table[name] = fake  # type: ignore[assignment]
