"""What `import kernelwright` offers: files and modules in memory, down the same line."""

import datetime
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, overload

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from kernelwright import pipeline
from kernelwright.bench.calls import time_calls
from kernelwright.bench.measurement import NO_GPU, Environment, Measurement, not_measured
from kernelwright.bench.timing import QUICK_TIMING
from kernelwright.checking import Check, check_plan
from kernelwright.compiling import Sizes, compile_problem, compiled_if_it_captures
from kernelwright.errors import UsageError
from kernelwright.machine import modelled_machine
from kernelwright.making import Clock, Maker, MeasureModule
from kernelwright.module import (
    KernelsUnusedWarning,
    OptimizedModule,
    capture_in_memory,
    plain,
)
from kernelwright.pipeline import (
    Judged,
    Keep,
    Optimized,
    OptimizeOptions,
    Progress,
    Rest,
    Target,
    default_target,
    judge,
)
from kernelwright.problem import Budget, shrink
from kernelwright.problem.execution import instantiate
from kernelwright.report.plan import Explanation, explain_plan
from kernelwright.restoring import kept_buffers, kept_random_state
from kernelwright.schedule import plan_graph
from kernelwright.verify.cases import Case
from kernelwright.verify.verification import Event
from kernelwright.worker import Baseline, JudgeOptions
from kernelwright.worker.options import Evidence
from kernelwright.worker.roles.table import environment_here

# --- Optimizing --------------------------------------------------------------------------------


@overload
def optimize(
    model: Path | str,
    output: Path | str | None = None,
    *,
    options: OptimizeOptions | None = None,
    progress: Progress = ...,
) -> Optimized: ...


@overload
def optimize(
    model: nn.Module,
    output: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    options: OptimizeOptions | None = None,
    progress: Progress = ...,
) -> OptimizedModule: ...


def optimize(
    model: Path | str | nn.Module,
    output: Path | str | Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    options: OptimizeOptions | None = None,
    progress: Progress = lambda event: None,
) -> Optimized | OptimizedModule:
    """Turn a problem file into another, or a module in memory into a faster one.

    `optimize("model.py", "model_new.py")` writes the file (by default `MODEL_new.py` beside it),
    verifies it and times it: an Optimized. A file that turns out wrong is no exception but a
    verdict.

    `optimize(model, args, kwargs)` gives an OptimizedModule for calls like `model(*args,
    **kwargs)`: any tensors of these dtypes and numbers of dimensions, any sizes that the model
    takes but for those that the capture held fast (`.kernelwright.notes`). Where the arguments are
    on a GPU it is compared with the model's own results on them, and timed against its own forward,
    on the device and by the wall clock (`.kernelwright.times`). Where it is not faster, kernels
    slower than the calls that they replace go back to PyTorch (`.kernelwright.kept`). A module that
    is left to PyTorch altogether, or whose kernels turn out wrong or not faster, runs as it did,
    and a KernelsUnusedWarning says so; `OptimizeOptions(keep=Keep.ALL)` keeps slower ones, untimed.

    `progress` is called with an Event whenever a step begins: its stage, message, and the number of
    steps done and in all. Ctrl-C ends the tuning, and the best so far are used; while calls are
    timed it keeps the kernels, untimed.

    Raises a ProblemError where the file cannot be loaded, CaptureError where
    torch.export does not take the module, UnsupportedError with `Rest.REFUSED`, UsageError: all of
    them KernelwrightError.
    """
    if isinstance(model, nn.Module):
        return optimize_in_memory(model, output, kwargs, options or OptimizeOptions(), progress)
    path = _path(model)
    if not isinstance(output, Path | str | None):
        raise UsageError("a problem file is turned into a file", next_step="Name that file.")
    return pipeline.optimize(path, output, options=options, progress=progress)


def optimize_in_memory(
    model: nn.Module,
    args: Path | str | Sequence[Any] | None,
    kwargs: Mapping[str, Any] | None,
    options: OptimizeOptions,
    progress: Progress,
    clock: Clock | None = None,
    measure: MeasureModule | None = None,
) -> OptimizedModule:
    """`optimize` of a module; `clock` measures it and `measure` its parts, on a GPU by default."""
    progress(Event(stage="capture", message=type(model).__name__, done=0, total=1))
    arguments = _arguments(args, "optimize(model, args)")
    maker = Maker(
        model=model,
        args=arguments,
        kwargs=dict(kwargs or {}),
        options=options,
        machine=modelled_machine(),
        progress=progress,
        clock=clock or partial(_measure_in_memory, options=_AGAINST_ITSELF, progress=progress),
        measure=measure,
    )
    fast = maker.made()
    if fast.kernelwright.set_aside:
        name, why = type(model).__name__, fast.kernelwright.set_aside
        text = f"{name} runs in PyTorch, without kernels: {why}"
        warnings.warn(text, KernelsUnusedWarning, stacklevel=3)  # where `optimize` is called
    return fast


_AGAINST_ITSELF = JudgeOptions(baselines=(Baseline.EAGER,), timing=QUICK_TIMING)


def _path(model: object) -> Path:
    if isinstance(model, Path | str):
        return Path(model)
    raise UsageError(
        f"{type(model).__name__} is neither a module nor the path of a problem file",
        next_step="Pass an nn.Module with the arguments of a call; put a function into a module.",
    )


def _arguments(args: object, call: str) -> Sequence[Any]:
    """The arguments of a call, which are neither a path nor one bare tensor."""
    if isinstance(args, Sequence) and not isinstance(args, str):
        return args
    raise UsageError(
        f"a module in memory needs the arguments of a call, not {type(args).__name__}",
        next_step=f"Call {call} with a tuple of them: (x,) for one tensor.",
    )


# --- Timing and explaining ---------------------------------------------------------------------


@overload
def measure(
    subject: Path | str,
    candidate: Path | str,
    *,
    options: JudgeOptions | None = None,
    progress: Progress = ...,
) -> Measurement: ...


@overload
def measure(
    subject: OptimizedModule,
    candidate: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    options: JudgeOptions | None = None,
    progress: Progress = ...,
) -> Measurement: ...


def measure(
    subject: Path | str | OptimizedModule,
    candidate: Path | str | Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    options: JudgeOptions | None = None,
    progress: Progress = lambda event: None,
) -> Measurement:
    """Time a file against the problem's own module, or a module in memory against its own forward.

    `measure("model.py", "model_new.py")` is `judge` after one set of inputs instead of many; every
    timed result is compared all the same. `measure(fast, args, kwargs)` times calls of what
    `optimize` gave in this process, on copies of these arguments; its buffers are put back.

    Milliseconds, medians with 95 % intervals, L2 flushed, contestants in turns. Without a GPU, or
    where the candidate is wrong or refuses these arguments, the note says so and there are no
    times. Raises what `judge` raises.
    """
    wanted = options or JudgeOptions()
    if isinstance(subject, OptimizedModule):
        arguments = _arguments(candidate, "measure(fast, args)")
        return _measure_in_memory(subject, arguments, dict(kwargs or {}), wanted, progress)
    if not isinstance(candidate, Path | str):
        raise UsageError(
            "files are timed against each other, and modules in memory that optimize gave",
            next_step='Call measure("model.py", "model_new.py") or measure(optimize(model, a), a).',
        )
    if default_target() is Target.CPU:
        problem, _ = pipeline.load_problem(Path(subject)), pipeline.candidate_file(candidate)
        compiled = compiled_if_it_captures(problem)
        return not_measured(NO_GPU, compiled.floor if compiled else None, modelled_machine())
    one = replace(wanted, cases=wanted.cases or (Case(),), evidence=Evidence.SKIPPED)
    return judge(subject, candidate, options=one, progress=progress).measurement


def _measure_in_memory(
    fast: OptimizedModule,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    options: JudgeOptions,
    progress: Progress,
) -> Measurement:
    machine = modelled_machine()
    if default_target() is Target.CPU:
        return not_measured(NO_GPU, None, machine)
    with torch.no_grad():
        refusal: str | None = fast.why_not(*args, **kwargs)
    if refusal is not None:
        return not_measured(f"not measured: {refusal}", None, machine)
    device = torch.device("cuda", torch.cuda.current_device())
    modes = {Baseline.COMPILED: "default", Baseline.COMPILED_MAX: "max-autotune-no-cudagraphs"}
    own = fast.original()
    calls: dict[str, Callable[..., object]] = {"candidate": fast}
    for baseline in options.baselines:
        mode = modes.get(baseline)
        calls[baseline.value] = torch.compile(own, mode=mode) if mode else own
    given = (tuple(args), kwargs)
    sets = [tree_map_only(Tensor, torch.clone, given) for _ in range(options.timing.input_sets)]
    with kept_random_state(), kept_buffers(fast):
        return time_calls(
            {name: _in_rotation(call, sets) for name, call in calls.items()},
            candidate="candidate",
            device=device,
            plan=options.timing,
            machine=machine,
            environment=_environment(device),
            on_round=lambda taken: progress(
                Event(stage="time", message="calls", done=taken, total=options.timing.samples)
            ),
        )


def _environment(device: torch.device) -> Environment:
    here, now = environment_here(device), datetime.datetime.now(datetime.UTC)
    return Environment(
        card=here.card,
        torch=here.torch,
        cuda=here.cuda,
        driver=here.driver,
        date=now.isoformat(timespec="seconds"),
    )


def _in_rotation(
    call: Callable[..., object], sets: Sequence[tuple[tuple[Any, ...], dict[str, Any]]]
) -> Callable[[int], object]:
    def turn(number: int) -> object:
        args, kwargs = sets[number % len(sets)]
        return call(*args, **kwargs)

    return turn


def explain(
    model: Path | str | nn.Module,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    options: OptimizeOptions | None = None,
) -> Explanation:
    """What `optimize` would do to a problem file, or to a module in memory called with `args`.

    Builds and runs nothing. Bytes, FLOPs and seconds at the sizes of the inputs. Raises what
    `optimize` raises before it builds anything.
    """
    library = (options or OptimizeOptions()).library_to_use()
    machine = modelled_machine()
    if not isinstance(model, nn.Module):
        problem = pipeline.load_problem(_path(model))
        return compile_problem(problem, machine, library).explanation
    arguments = _arguments(args, "explain(model, args)")
    captured = capture_in_memory(model, arguments, dict(kwargs or {}))
    planned = plan_graph(captured, machine, library)
    return explain_plan(planned.rewritten, planned.lowered, planned.plan, machine, str(captured))


def check(
    model: Path | str | nn.Module,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    options: OptimizeOptions | None = None,
) -> tuple[Check, Check]:
    """The captured graph and the plan, computed node by node, against a call of the module.

    Structure, classes, shapes, dtypes and values; no kernel is built. A problem file is made small
    first. Raises what `explain` raises.
    """
    library = (options or OptimizeOptions()).library_to_use()
    machine = modelled_machine()
    if isinstance(model, nn.Module):
        arguments, keywords = _arguments(args, "check(model, args)"), dict(kwargs or {})
        captured = capture_in_memory(model, arguments, keywords)
        plan = plan_graph(captured, machine, library).plan
        return check_plan(plain(model), arguments, keywords, captured, plan)
    small = shrink(pipeline.load_problem(_path(model)), Budget())
    compiled = compile_problem(small, machine, library)
    with kept_random_state():
        torch.manual_seed(0)
        instance = instantiate(small)
    return check_plan(instance.module, instance.inputs, {}, compiled.captured, compiled.plan)


__all__ = [
    "Check",
    "Explanation",
    "JudgeOptions",
    "Judged",
    "Keep",
    "Measurement",
    "OptimizeOptions",
    "Optimized",
    "OptimizedModule",
    "Rest",
    "Sizes",
    "Target",
    "check",
    "explain",
    "judge",
    "measure",
    "optimize",
]
