"""Modules in memory: kernels for an nn.Module that has no file, and the module that runs them.

    fast = optimize_module(model, (x,))
    with torch.no_grad():
        y = fast(x)           # our kernels
    fast.why_not(x.double())  # "x: expected dtype torch.float32, got torch.float64"

The result is of a class derived from the model's own and shares its parameters, buffers and
children. Whatever the kernels were not made for runs in the forward that it inherits.
"""

import copy
import hashlib
import importlib.util
import inspect
import sys
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import torch
import torch.utils.cpp_extension as extensions
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from kernelwright import env
from kernelwright.capture import capture_module
from kernelwright.codegen import emit_module, translation_units
from kernelwright.collecting import uncollected
from kernelwright.errors import UsageError
from kernelwright.graphs import Graphed
from kernelwright.ir.graph import Graph
from kernelwright.ir.plan import Plan
from kernelwright.machine import Machine
from kernelwright.program import program_of
from kernelwright.restoring import kept_buffers, kept_random_state
from kernelwright.schedule import Library, least_cost, plan_graph
from kernelwright.toolchain.cache import cached_build, content_key
from kernelwright.toolchain.cuda import OnUnit, compile_together, compiled_meanwhile
from kernelwright.toolchain.extension import prepare_extension_folder
from kernelwright.toolchain.texts import MODULE, SOURCE, keep_text, known_text, own_code
from kernelwright.verify.compare import compare
from kernelwright.verify.nesting import named_effects
from kernelwright.verify.noise import Ties
from kernelwright.verify.oracle import OracleRun, Rounded, run_oracle, run_rounded
from kernelwright.verify.tolerance import NO_LESS_ACCURATE, ErrorMetrics, Oracle, rule

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
        self._run = _text_module(self.kernelwright.source).ModelNew.forward
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


def units_of(plan: Plan) -> Iterator[str]:
    """The texts that the kernels of a module with this plan are built from, side by side."""
    return translation_units(program_of(plan))


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
    source = _source_of(model, plan, device, on_unit)
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


def _source_of(model: nn.Module, plan: Plan, device: torch.device, on_unit: OnUnit) -> str:
    """The text of a plan's kernels. Those for a GPU are ready to be built, and on their way."""
    name, arguments = type(model).__name__, _arguments_text(model)
    is_built = bool(plan.kernels) and device.type == "cuda"
    is_kept = is_built and _is_pytorchs(extensions.load_inline)
    key = content_key(own_code(), name, arguments, repr(plan)) if is_kept else ""
    known = known_text(key) if is_kept else None
    if known is not None:
        _text_module(known, on_unit=on_unit)
        return known
    with _compiled_ahead(plan, device) as units:
        # First what compilers wait for: they work while the whole text is written.
        with uncollected():
            parts = units() if is_built else ()
            source = emit_module(name, arguments, plan).source
        if is_built:
            _text_module(source, parts, on_unit)
            _begin_pytorchs_libraries()  # Takes a while, in which units go on beginning.
    if is_kept:
        keep_text(key, source)
    return source


@contextmanager
def _compiled_ahead(plan: Plan, device: torch.device) -> Iterator[Callable[[], tuple[str, ...]]]:
    """The texts of a plan, for who asks. Inside, those that will run on a GPU are compiled already:
    to write down a whole network takes seconds."""
    if not plan.kernels or device.type != "cuda" or not _is_pytorchs(extensions.load_inline):
        yield lambda: tuple(units_of(plan))
        return
    with compiled_meanwhile(partial(units_of, plan), arch_of_device()) as texts:
        yield texts.result


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
    return Path(_text_module(module.kernelwright.source)._library()._name)


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
    constants = _text_module(made.source).ModelNew()
    for name, value in constants.named_buffers():
        module.register_buffer(name, value.to(device), persistent=False)
    return module


def _with_own_tables(state: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of a module, with tables that may change without changing its own."""
    tables = ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set")
    return {**state, **{table: copy.copy(state[table]) for table in tables}}


def _text_module(
    source: str, units: Sequence[str] = (), on_unit: OnUnit = lambda done, total: None
) -> ModuleType:
    """The text as a Python module, once for each process. It builds nothing before its first call.

    It is a file in the cache, so that tracebacks show its lines. Beside it lie `units`, the same
    kernels in parts, which are compiled side by side where they are known.
    """
    digest = hashlib.sha256(source.encode()).hexdigest()[:16]
    name = f"kernelwright_module_{digest}"
    if name in sys.modules:
        return sys.modules[name]

    def write(folder: Path) -> None:
        (folder / SOURCE).write_text(source, encoding="utf-8")
        for number, unit in enumerate(units):
            (folder / f"{number}{_UNIT}").write_text(unit, encoding="utf-8")

    path = cached_build(MODULE, content_key(source), write) / SOURCE
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    _build_with_our_tools(module, path, on_unit)
    return module


_UNIT = ".cu"
"""How the name of a part of the kernels' text ends."""


def _input_error(forward: Callable[..., Any]) -> type[Exception]:
    """The class of what the emitted text raises for arguments that the kernels are not made for.

    A text without kernels has none, and is not run.
    """
    found: type[Exception] = forward.__globals__["InputError"]
    return found


def _build_with_our_tools(module: ModuleType, path: Path, on_unit: OnUnit) -> None:
    """Its kernels are built where we build, by the compiler that we find."""
    build = getattr(module, "_library", None)
    if build is None:
        return
    files = sorted(path.parent.glob(f"*{_UNIT}"), key=lambda unit: int(unit.stem))

    def link(*, name: str, **_: Any) -> None:
        units = [unit.read_text(encoding="utf-8") for unit in files]
        # The text loads what it finds here, and by itself: its symbols stay its own.
        built = compile_together(units, name, arch_of_device(), on_unit)
        torch.ops.loaded_libraries.add(str(built))

    def library() -> Any:
        if build.cache_info().currsize:
            return build()
        _begin_pytorchs_libraries()
        if files and _is_pytorchs(module.load_inline):
            with mock.patch.object(module, "load_inline", link):
                return build()
        environment = prepare_extension_folder(path)
        home = extensions.CUDA_HOME or environment.get("CUDA_HOME")
        with env.present(environment):
            extensions.CUDA_HOME = home
            return build()

    module._library = library  # type: ignore[attr-defined]


def _is_pytorchs(load_inline: Callable[..., Any]) -> bool:
    """Whether it compiles for a GPU. The emulator's takes whole texts."""
    return load_inline.__module__ == extensions.__name__


def arch_of_device() -> str:
    """The architecture that kernels are compiled for on the current CUDA device: "sm_90a"."""
    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}" + ("a" if major >= 9 else "")


def _begin_pytorchs_libraries() -> None:
    """Before kernels are loaded: where cuBLAS and cuDNN began after that,
    their first call raised std::bad_alloc (torch 2.11, CUDA 13.0, H100). Why is not known."""
    if torch.version.cuda is None or not torch.cuda.is_available():
        return  # The emulator has a device for PyTorch builds without CUDA, too.
    if torch.cuda.is_current_stream_capturing():
        return
    with torch.no_grad():
        one = torch.ones(1, 1, 1, device="cuda")
        nn.functional.linear(one, one[0])
        nn.functional.conv1d(one, one)


def _arguments_text(model: nn.Module) -> str:
    """What stands between the parentheses of `def forward(...)`, the module under "self"."""
    signature = inspect.signature(type(model).forward)
    plain = [
        argument.replace(annotation=inspect.Parameter.empty)
        for argument in signature.parameters.values()
    ]
    plain[0] = plain[0].replace(name="self")
    text = str(signature.replace(parameters=plain, return_annotation=inspect.Signature.empty))
    return text[1:-1]


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


class _Call(nn.Module):
    """A call with keywords as one with positions only."""

    def __init__(self, model: nn.Module, names: tuple[str, ...]) -> None:
        super().__init__()
        self.model = model
        self.names = names

    def forward(self, *values: Any) -> Any:
        split = len(values) - len(self.names)
        return self.model(*values[:split], **dict(zip(self.names, values[split:], strict=True)))


_SEED = 0


class _OtherStructureError(Exception):
    """Names of the tensors that only one of two results has."""


def _checked(
    module: OptimizedModule,
    model: nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    flops: int,
) -> OptimizedModule:
    """The module with a sentence for each comparison; kernels that are wrong are set aside."""
    names, values = tuple(kwargs), [*args, *kwargs.values()]
    try:
        with kept_random_state():
            compared = _comparisons(_Call(module, names), _Call(model, names), values, flops)
            rulings = [rule(metrics, NO_LESS_ACCURATE) for metrics in compared]
    except _OtherStructureError as error:
        sentence = f"wrong results: one of the two has no {error}"
        module.kernelwright = replace(module.kernelwright, set_aside=sentence)
        return module
    wrong = next((f"wrong results: {it.reason}" for it in rulings if not it.accepted), "")
    module.kernelwright = replace(
        module.kernelwright, checks=tuple(it.reason for it in rulings), set_aside=wrong
    )
    return module


def _comparisons(
    ours: nn.Module, theirs: nn.Module, values: list[Any], flops: int
) -> Iterator[ErrorMetrics]:
    """Every tensor that a call gives or changes, against the model's own and float64."""
    found, expected = _effects(ours, values), _effects(theirs, values)
    oracle = run_oracle(theirs, values, seed=_SEED)
    outputs = sum(value.numel() for name, value in expected.items() if name.startswith("output"))
    terms = max(1.0, flops / 2 / max(1, outputs))

    @cache
    def rounded() -> Mapping[str, Tensor]:
        run = run_rounded(theirs, values, seed=_SEED, draw=0, ties=Ties.KEPT, what=Rounded.ALL)
        return run.tensors

    def measure(name: str, value: Tensor, oracle: OracleRun) -> ErrorMetrics:
        reference = expected[name]
        metrics = compare(name, value, reference, oracle.tensors.get(name), oracle.note)
        return replace(metrics, terms=terms)

    if found.keys() != expected.keys():
        raise _OtherStructureError(", ".join(sorted(found.keys() ^ expected.keys())))
    for name, value in found.items():
        metrics = measure(name, value, oracle)
        refused = not rule(metrics, NO_LESS_ACCURATE).accepted
        if refused and metrics.oracle is Oracle.FLOAT64 and name in rounded():
            loss = measure(name, rounded()[name], oracle)
            metrics = replace(
                metrics, loss_rmse=loss.candidate_rmse, loss_worst=loss.candidate_worst
            )
        yield metrics


@torch.no_grad()
def _effects(module: nn.Module, values: list[Any]) -> dict[str, Tensor]:
    """What a call of a copy gives, on copies of the arguments."""
    module, values = copy.deepcopy((module, values))
    torch.manual_seed(_SEED)
    result = module(*values)
    return named_effects(result, values, module.state_dict())
