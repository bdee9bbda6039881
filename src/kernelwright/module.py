"""Modules in memory: kernels for an nn.Module that has no file, and the module that runs them.

    fast = optimize_module(model, (x,))
    with torch.no_grad():
        y = fast(x)           # our kernels
    fast.why_not(x.double())  # "x: expected dtype torch.float32, got torch.float64"

The result is of a class derived from the model's own and shares its parameters, buffers and
children. Whatever the kernels were not made for runs in the forward that it inherits.
"""

import copy
import warnings
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from kernelwright.capture import capture_module
from kernelwright.errors import UsageError
from kernelwright.graphs import Graphed
from kernelwright.ir.graph import Graph
from kernelwright.ir.plan import Plan
from kernelwright.machine import Machine
from kernelwright.module_checks import compared
from kernelwright.module_text import source_of, text_module
from kernelwright.restoring import kept_buffers, kept_random_state
from kernelwright.schedule import Library, least_cost, plan_graph
from kernelwright.toolchain.cuda import OnUnit
from kernelwright.verify.nesting import named_effects

Form = tuple[object, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """What a module was given: the text of its kernels, what they are made for, how they did."""

    source: str
    """The Python text with the CUDA text inside; read it, or keep it."""
    kernels: tuple[str, ...]
    """Names of the kernels."""
    left_to_pytorch: tuple[str, ...]
    """Calls that stay PyTorch's, each with the reason."""
    notes: tuple[str, ...]
    """What the capture held fast."""
    form: Form
    """Which arguments are tensors and numbers, and the values of the others."""
    training: bool
    """The mode that the module was captured in."""
    checks: tuple[str, ...] = ()
    """One sentence for each result compared, on the very arguments given, with the model's own and
    with float64; empty where the kernels did not run because there was no GPU to run them."""
    times: str = "not measured"
    """How long calls on the very arguments given take with kernels and without; or why that is not
    known: "not measured: no GPU"."""
    kept: str = ""
    """What of the kernels was kept and why, where they were timed against the calls that they
    replace: kernels that are slower went back to PyTorch."""
    set_aside: str = ""
    """Why the kernels are never used, or empty: nothing to do for them, wrong results, or none that
    come sooner than the model's own."""


class KernelsUnusedWarning(UserWarning):
    """A module runs its own forward in PyTorch where one would expect its kernels."""


class OptimizedModule(nn.Module):
    """In front of the model's own class: `forward` by kernels where they fit.

    They run wherever nobody asks for gradients: under torch.no_grad() and torch.inference_mode(),
    and outside them where neither parameters nor arguments require any. Else the model's own
    forward runs, so that training goes on working, and the first such call warns with a
    KernelsUnusedWarning. It also runs, without a warning, for arguments that the kernels are not
    made for: other dtypes, another device, another mode than the captured one; `why_not` tells.

    Pickles and copies as the model does, kernels included, which are built again where needed.
    """

    kernelwright: Kernels
    _run: Callable[..., Any]
    _has_warned: bool

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """As the model's own; see `why_not` for when it is the model's own."""
        refusal = self._refusal(args, kwargs)
        if refusal is None:
            try:
                return self._run(self, *args, **kwargs)
            except _input_error(self._run):  # Nothing has run yet.
                return super().forward(*args, **kwargs)
        if refusal.startswith(_NO_BACKWARD) and not torch.compiler.is_compiling():
            self._warn_once(refusal)
        return super().forward(*args, **kwargs)

    def original(self) -> nn.Module:
        """A module of the model's own class that shares these parameters, without kernels."""
        base: Any = type(self).__bases__[1]
        model: nn.Module = base.__new__(base)
        state = dict(self.__dict__)
        for name in ("_run", "_has_warned", "kernelwright"):
            del state[name]
        model.__setstate__(_with_own_tables(state))  # type: ignore[no-untyped-call]
        return model

    def graphed(self, *args: Any, **kwargs: Any) -> Graphed:
        """Calls of this module as CUDA graphs, the first recorded for these arguments, if any.

        The graphs belong to what this returns: calls of the module itself replay none.
        """
        made = Graphed(self)
        if args or kwargs:
            made(*args, **kwargs)
        return made

    def why_not(self, *args: Any, **kwargs: Any) -> str | None:
        """Why a call with these arguments runs the model's own forward; None: kernels run it.

        The call is made, so that the answer is the answer of a call; on copies of the arguments,
        and what it does to buffers and to the random state is undone.
        """
        reason = self._refusal(args, kwargs)
        if reason is not None:
            return reason
        args, kwargs = tree_map_only(Tensor, torch.clone, (args, kwargs))
        with kept_random_state(), kept_buffers(self):
            try:
                self._run(self, *args, **kwargs)
            except _input_error(self._run) as error:
                return str(error)
        return None

    def _refusal(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
        made_for = self.kernelwright
        if made_for.set_aside:
            return made_for.set_aside
        if self.training is not made_for.training:
            mode = "training" if made_for.training else "eval"
            return f"the kernels are made for a module in {mode} mode"
        wanting = self._wanting_gradients(args, kwargs)
        if wanting:
            return (
                f"{_NO_BACKWARD}, and {wanting} requires a gradient; call under "
                "torch.no_grad() or torch.inference_mode()"
            )
        if _form(args, kwargs) != made_for.form:
            return "the arguments are of other kinds than those that the kernels are made for"
        return None

    def _wanting_gradients(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """Who asks for a gradient in this call: "argument 0", "parameter scale"; or nobody, ""."""
        if not torch.is_grad_enabled():
            return ""
        for name, value in [*enumerate(args), *kwargs.items()]:
            if _requires_gradient(value):
                return f"argument {name}"
        for name, value in self.named_parameters():
            if value.requires_grad:
                return f"parameter {name}"
        return ""

    def _warn_once(self, why: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            name = type(self).__bases__[1].__name__
            text = f"{name} runs in PyTorch, without its kernels: {why}. This is said once."
            warnings.warn(text, KernelsUnusedWarning, stacklevel=_CALLER)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        state = dict(self.__dict__)
        del state["_run"], state["_has_warned"]
        return _empty, (type(self).__bases__[1],), state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._run = text_module(self.kernelwright.source).ModelNew.forward
        self._has_warned = False


_NO_BACKWARD = "the kernels have no backward"
_CALLER = 5
"""Frames from a warning to the call of the module: forward and two of nn.Module's lie between."""


def optimize_module(
    model: nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    machine: Machine,
    library: Library = Library.WHERE_FASTER,
    tune: Callable[[Plan], Plan] = lambda plan: plan,
    on_unit: OnUnit = lambda done, total: None,
) -> OptimizedModule:
    """Kernels for `model(*args, **kwargs)` and other sizes, in a module that shares its parameters.

    `machine` is the card that is planned for, `tune` chooses configurations. Where the arguments
    are on a GPU, one call is compared with the model's own result and with float64 before this
    returns; wrong kernels are set aside. `on_unit` hears how many of how many kernels are compiled.
    Raises UsageError, CaptureError where torch.export does not take the module,
    UnsupportedValueError, WrongArgumentsError and UnsupportedError.
    """
    keywords = dict(kwargs or {})
    planned = plan_graph(capture_in_memory(model, args, keywords), machine, library)
    return module_of_plan(model, args, keywords, tune(planned.plan), on_unit)


def module_of_plan(
    model: nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    plan: Plan,
    on_unit: OnUnit = lambda done, total: None,
) -> OptimizedModule:
    """The module that runs a plan of `model`, compared as `optimize_module` says."""
    model, keywords = plain(model), dict(kwargs)
    device = _device_of(args, keywords, plan.graph)
    source = source_of(model, plan, device, on_unit)
    made = Kernels(
        source=source,
        kernels=tuple(kernel.name for kernel in plan.kernels),
        left_to_pytorch=tuple(f"{step.name}: {step.why}" for step in plan.left_to_pytorch),
        notes=plan.graph.notes,
        form=_form(tuple(args), keywords),
        training=model.training,
        set_aside="" if plan.kernels else "everything is left to PyTorch",
    )
    module = _equip(model, made, device)
    if not _runs(module, args, keywords):
        return module
    return _checked(module, model, args, keywords, least_cost(plan).flops)


def capture_in_memory(model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Graph:
    """The graph of a call, without the model's own hooks: whoever calls the result runs those.

    Raises UsageError for what was compiled or scripted already, and as `capture_module` does.
    """
    model = plain(model)
    bare = type(model).__new__(type(model))  # No copy.copy: parametrized modules refuse it.
    no_hooks: dict[str, Any] = {
        "_forward_hooks": OrderedDict(),
        "_forward_pre_hooks": OrderedDict(),
    }
    bare.__dict__ = {**model.__dict__, **no_hooks}
    return capture_module(bare, args, kwargs, name=type(model).__name__)


def library_of(module: OptimizedModule) -> Path:
    """The file of the module's compiled kernels, which have been built."""
    return Path(text_module(module.kernelwright.source)._library()._name)


def plain(model: nn.Module) -> nn.Module:
    """The model as its user wrote it; of an optimized one, what it was made from."""
    if isinstance(model, OptimizedModule):
        return model.original()
    if isinstance(getattr(model, "_orig_mod", None), nn.Module):
        step = "Optimize the module itself; what you get can be compiled: torch.compile(fast)."
        raise UsageError("the module went through torch.compile", next_step=step)
    if isinstance(model, torch.jit.ScriptModule):
        step = "Optimize the module that it was scripted or traced from."
        raise UsageError("the module is TorchScript, which cannot be captured", next_step=step)
    return model


# --- Making the module -------------------------------------------------------------------------


def _empty(base: type[nn.Module]) -> OptimizedModule:
    """An instance without anything in it, of a class before `base`."""
    metaclass: Any = type(base)
    kind = metaclass(f"Optimized{base.__name__}", (OptimizedModule, base), {})
    instance: OptimizedModule = kind.__new__(kind)
    return instance


def _equip(model: nn.Module, made: Kernels, device: torch.device) -> OptimizedModule:
    """A new module around the model's parameters, buffers and children."""
    module = _empty(type(model))
    module.__setstate__({**_with_own_tables(model.__dict__), "kernelwright": made})
    constants = text_module(made.source).ModelNew()
    for name, value in constants.named_buffers():
        module.register_buffer(name, value.to(device), persistent=False)
    return module


def _with_own_tables(state: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of a module, with tables that may change without changing its own."""
    tables = ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set")
    return {**state, **{table: copy.copy(state[table]) for table in tables}}


def _input_error(forward: Callable[..., Any]) -> type[Exception]:
    """The class of what the emitted text raises for arguments that the kernels are not made for.

    A text without kernels has none, and is not run.
    """
    found: type[Exception] = forward.__globals__["InputError"]
    return found


def _device_of(args: Sequence[Any], kwargs: Mapping[str, Any], graph: Graph) -> torch.device:
    """Where the first tensor among the arguments is; of a module without any, the GPU."""
    for name, value in named_effects(None, [*args, *kwargs.values()], {}).items():
        if name:
            return value.device
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _requires_gradient(value: Any) -> bool:
    match value:
        case Tensor():
            return value.requires_grad
        case list() | tuple():
            return any(map(_requires_gradient, value))
        case dict():
            return any(map(_requires_gradient, value.values()))
    return False


def _form(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Form:
    positions = tuple(map(_kind, args))
    # Each call asks: what costs nothing is not computed.
    named = tuple((name, _kind(kwargs[name])) for name in sorted(kwargs)) if kwargs else ()
    return (positions, named)


def _kind(value: Any) -> object:
    """What of a value the kernels are made for: its kind, or the value where that counts."""
    if isinstance(value, Tensor):
        return "a tensor"
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return "an int"
    if isinstance(value, float):
        return "a float"
    if isinstance(value, list | tuple):
        return tuple(_kind(item) for item in value)
    if isinstance(value, dict):
        return tuple((key, _kind(value[key])) for key in value)
    return value


# --- Checking it -------------------------------------------------------------------------------


@torch.no_grad()
def _runs(module: OptimizedModule, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether the kernels take these arguments where they are."""
    return module.why_not(*args, **kwargs) is None


def _checked(
    module: OptimizedModule,
    model: nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    flops: int,
) -> OptimizedModule:
    """The module with a sentence for each comparison; kernels that are wrong are set aside."""
    checks, wrong = compared(module, model, args, kwargs, flops)
    module.kernelwright = replace(module.kernelwright, checks=checks, set_aside=wrong)
    return module
