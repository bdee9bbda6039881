"""The straight line from a problem file to a verdict, which `optimize` and `judge` run."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from kernelwright import env
from kernelwright.bench.measurement import Measurement
from kernelwright.bench.roofline import Floor
from kernelwright.capture import capture
from kernelwright.codegen import Candidate
from kernelwright.compiling import (
    Compiled,
    Sizes,
    compile_captured,
    compiled_if_it_captures,
    demand_nothing_left,
    shrunk_for_emulator,
    write_candidate,
)
from kernelwright.errors import OutputError
from kernelwright.ir.graph import Graph
from kernelwright.ir.plan import Plan
from kernelwright.machine import Machine, modelled_machine
from kernelwright.problem import Budget, Problem, load_problem
from kernelwright.report.judgement import headline
from kernelwright.schedule import Library
from kernelwright.schedule.planning import Planned
from kernelwright.toolchain.cache import database_path
from kernelwright.toolchain.records import Target
from kernelwright.tune.database import Database
from kernelwright.tune.effort import QUICK, Effort
from kernelwright.verify.cases import STRICT, Demand, Demands
from kernelwright.verify.verdict import Verdict
from kernelwright.verify.verification import Event
from kernelwright.worker import Haste, JudgeOptions, judge_while, judgement
from kernelwright.worker import judge as judge_in_workers
from kernelwright.worker.errors import CandidateFileError
from kernelwright.worker.judging.judging import default_target

if TYPE_CHECKING:  # What times kernels is imported where there is a card.
    from kernelwright.giving_back import MeasureParts

Progress = Callable[[Event], None]


# --- Tuning ------------------------------------------------------------------------------------


def tuned(
    compiled: Compiled, effort: Effort, budget_seconds: float, progress: Progress
) -> Compiled:
    """The problem with the fastest configurations known, after timing those that are not.

    Needs a GPU and nvcc. `budget_seconds` is for all kernels together. Ctrl-C ends the timing, and
    the best so far is used.
    """
    plan = tuned_plan(compiled.plan, compiled.machine, effort, budget_seconds, progress)
    return replace(compiled, plan=plan)


def tuned_plan(
    plan: Plan, machine: Machine, effort: Effort, budget_seconds: float, progress: Progress
) -> Plan:
    """The plan with the fastest configurations known, after so many seconds of timing others."""
    from kernelwright.tune.plans import best_known, tune_plan

    def on_trial(done: int, total: int, kernel: str) -> None:
        progress(Event(stage="tune", message=kernel, done=done, total=total))

    with Database(database_path()) as database:
        if budget_seconds:
            tune_plan(plan, machine, effort, budget_seconds, database, on_trial)
        return best_known(plan, machine, database)


def without_slower(
    compiled: Compiled, progress: Progress, measure: "MeasureParts | None" = None
) -> tuple[Compiled, str]:
    """The tuned problem without kernels that are slower than the calls they replace, as `measure`
    says (by default the card), and what was kept in one line. A file keeps at least one kernel."""
    from kernelwright.giving_back import measure_tuned, without_slower_parts

    progress(Event(stage="compare", message="kernels with calls", done=0, total=1))
    if measure is None:
        measure = measure_tuned(compiled.plan, compiled.machine, _device())
    better = without_slower_parts(
        *(compiled.planned.choices, compiled.plan, compiled.captured, compiled.machine),
        compiled.library,
        measure,
    )
    if better.planned is None:
        return compiled, ""
    if not better.planned.plan.kernels:
        return (
            compiled,
            "all kernels are kept, slower than the calls they replace: none is left else",
        )
    return _replanned(compiled, better.planned), better.kept


def _replanned(compiled: Compiled, planned: Planned) -> Compiled:
    return replace(
        compiled,
        rewritten=planned.rewritten,
        plan=planned.plan,
        choices=planned.choices,
        lowered=planned.lowered,
    )


def _device() -> torch.device:
    return torch.device("cuda", torch.cuda.current_device())


# --- Optimizing and judging --------------------------------------------------------------------


class Rest(Enum):
    """What becomes of operators that no kernel of ours computes."""

    LEFT = "left to PyTorch"
    REFUSED = "refused"
    """UnsupportedError names the first one; products are ours even where the library is faster."""


class Keep(Enum):
    """Which kernels a module in memory keeps, of those that give right results."""

    FASTER = "faster than the model's own forward"
    ALL = "all"
    """Nothing is timed, and slower ones run as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizeOptions:
    """What a caller can ask of `optimize`."""

    target: Target = field(default_factory=default_target)
    """What the file is built for and verified on; by default the GPU, or without one the emulator.
    A module in memory is always made for a GPU."""
    library: Library = Library.WHERE_FASTER
    """When a product is left to cuBLAS."""
    rest: Rest = Rest.LEFT
    sizes: Sizes = Sizes.ANY
    """Sizes at which a file works. A module in memory works at any sizes."""
    effort: Effort = QUICK
    """How much is tuned: `kernelwright.tune.effort.effort("none" | "quick" | "full")`."""
    budget_seconds: float | None = None
    """Seconds of tuning for all kernels; None: what the effort says."""
    keep: Keep = Keep.FASTER
    """Whether a module in memory is timed against the model's own forward, and returned without
    kernels where they are not faster. `Keep.ALL` asks for kernels all the same."""
    trace_without_card: bool = False
    """Whether PyTorch's tracer sees no card; else it asks the driver for one at every operator, and
    saves its random state. For a process that has one thread and needs no card later."""
    judge: JudgeOptions = field(
        default_factory=lambda: JudgeOptions(demands=STRICT, haste=Haste.AT_ONCE)
    )
    """How the file is verified and timed."""

    @property
    def tuning_seconds(self) -> float:
        """What `budget_seconds` or else the effort says of a file."""
        return self.effort.budget_seconds if self.budget_seconds is None else self.budget_seconds

    @property
    def module_seconds(self) -> float:
        """What `budget_seconds` or else the effort says of a module in memory."""
        return self.effort.module_seconds if self.budget_seconds is None else self.budget_seconds

    def library_to_use(self) -> Library:
        """`library`, unless nothing may be left to it."""
        return Library.NEVER if self.rest is Rest.REFUSED else self.library


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimized:
    """A written file and the proof that goes with it."""

    compiled: Compiled
    path: Path
    candidate: Candidate
    verdict: Verdict
    measurement: Measurement
    kept: str = ""
    """Which kernels were kept, where some are slower than the calls they replace, in one line."""

    def to_json(self) -> dict[str, Any]:
        """What `kernelwright optimize --json` prints."""
        return {
            "file": str(self.path),
            "kept": self.kept,
            "plan": self.compiled.explanation.to_json(),
            "verdict": self.verdict.to_json(),
            "measurement": self.measurement.to_json(),
        }


def optimize(
    model: Path | str,
    output: Path | str | None = None,
    *,
    options: OptimizeOptions | None = None,
    progress: Progress = lambda event: None,
) -> Optimized:
    """Turn the problem file `model` into the file `output`, verify it and time it.

    Ctrl-C while kernels are tuned ends the tuning, and the best so far are used; later it leaves
    the file as it is, not verified, which KeyboardInterrupt says. Raises OutputError and what
    loading and capturing raise, all of them KernelwrightError; a file that turns out wrong is no
    exception but a verdict.
    """
    wanted, path = options or OptimizeOptions(), Path(model)
    written = Path(output or path.with_name(f"{path.stem}_new.py"))
    if written.is_dir():  # Said before anything takes time.
        raise OutputError(f"{written} is a folder", location=str(written))
    return optimize_problem(load_problem(path), written, wanted, progress)


def optimize_problem(
    problem: Problem, path: Path, options: OptimizeOptions, progress: Progress
) -> Optimized:
    """Plan, tune where there is a GPU, write the file to `path`, verify it and time it.

    The processes that judge it start first: by the time that there is a file they have a card.
    """
    progress(Event(stage="capture", message=problem.path.name, done=0, total=1))
    kept = ""
    match options.target:
        case Target.CUDA:
            with judgement(problem, target=options.target, options=options.judge) as begun:
                captured = _captured(problem, options)
                compiled = _compiled(problem, captured, begun.machine(), options)
                write_candidate(compiled, path)
                begun.admit(path)
                if options.effort.variants and compiled.plan.kernels:
                    begun.hasten(compiled.floor.bytes)
                    compiled, kept = _mended(compiled, options, progress)
                    write_candidate(compiled, path)
                demands = _demands(options.judge.demands, compiled)
                with _kept(path):
                    verdict, measurement = begun.judge(
                        path, floor=compiled.floor, demands=demands, progress=progress
                    )
        case Target.CPU:
            compiled = _compiled(problem, capture(problem), modelled_machine(), options)
            write_candidate(compiled, path)
            asked = replace(options.judge, demands=_demands(options.judge.demands, compiled))
            with _kept(path):
                verdict, measurement = _judge_shrunk(compiled, asked, progress)
    return Optimized(
        compiled=compiled,
        path=path,
        candidate=write_candidate(compiled, path, headline(verdict, measurement)),
        verdict=verdict,
        measurement=measurement,
        kept=kept,
    )


def _mended(
    compiled: Compiled, options: OptimizeOptions, progress: Progress
) -> tuple[Compiled, str]:
    """The problem with tuned kernels, all of them no slower than the calls they replace, and what
    was kept in one line; with `Rest.REFUSED` they are ours whatever they take."""
    from kernelwright.giving_back import measure_alone, with_guesses_measured

    seconds = options.tuning_seconds
    if options.rest is Rest.REFUSED:
        return tuned(compiled, options.effort, seconds, progress), ""
    measure = measure_alone(options.effort.guess_seconds, _device())
    planned = with_guesses_measured(
        *(compiled.planned, compiled.captured, compiled.machine, compiled.library), measure
    )
    compiled = tuned(_replanned(compiled, planned), options.effort, seconds, progress)
    better, kept = without_slower(compiled, progress)
    if better is not compiled:
        better = tuned(better, options.effort, _AGAIN_SECONDS, progress)
    return better, kept


_AGAIN_SECONDS = 5.0
"""Seconds of tuning for kernels that are new where others went back to PyTorch."""


@contextmanager
def _kept(path: Path) -> Iterator[None]:
    """Where Ctrl-C ends the block, its exception says that the file is there and not verified."""
    try:
        yield
    except KeyboardInterrupt as end:
        raise KeyboardInterrupt(f"{path} is written, but not verified") from end


def _captured(problem: Problem, options: OptimizeOptions) -> Graph:
    """The problem's graph; problems that name the card are traced where they see it."""
    hidden = options.trace_without_card and _NAMES_CARD not in problem.source
    with env.present({env.CUDA_VISIBLE_DEVICES.name: ""}) if hidden else nullcontext():
        return capture(problem)


_NAMES_CARD = "cuda"


def _compiled(
    problem: Problem, captured: Graph, machine: Machine, options: OptimizeOptions
) -> Compiled:
    library = options.library_to_use()
    compiled = compile_captured(problem, captured, machine, library, sizes=options.sizes)
    if options.rest is Rest.REFUSED:
        demand_nothing_left(compiled.plan)
    return compiled


def _judge_shrunk(
    compiled: Compiled, options: JudgeOptions, progress: Progress
) -> tuple[Verdict, Measurement]:
    """Verify the same kernels on the emulator, in a file for sizes that it can run."""
    budget = Budget(bytes=options.variant_bytes, flops=options.variant_flops)
    small = shrunk_for_emulator(compiled, budget)
    with tempfile.TemporaryDirectory(prefix="kernelwright-") as folder:
        path = Path(folder) / f"{compiled.problem.name}_new.py"
        write_candidate(small, path)
        verdict, measurement = judge_in_workers(
            small.problem,
            path,
            target=Target.CPU,
            floor=compiled.floor,
            options=options,
            progress=progress,
        )
    before = compiled.problem.constants
    sizes = {n: v for n, v in small.problem.constants.items() if v != before.get(n)}
    return replace(verdict, sizes=sizes), measurement


class Judged(NamedTuple):
    """What judging found: `verdict, measurement = judge(...)`, or by name."""

    verdict: Verdict
    """Whether the candidate is right, with the evidence of every check."""
    measurement: Measurement
    """How fast it is; with a note instead of times where it is wrong or there is no GPU."""

    def to_json(self) -> dict[str, Any]:
        """What `kernelwright judge --json` prints."""
        return {"verdict": self.verdict.to_json(), "measurement": self.measurement.to_json()}


def judge(
    reference: Path | str,
    candidate: Path | str,
    *,
    target: Target | None = None,
    options: JudgeOptions | None = None,
    progress: Progress = lambda event: None,
) -> Judged:
    """Verify and time anybody's file against a problem file.

    Both run in processes of their own, the candidate confined. The floor comes from our own plan
    for the problem; None when the module does not capture. A wrong candidate is a verdict, no
    exception. Raises CandidateFileError where there is no such file, ReferenceFailedError where
    the problem itself does not run, and what loading it raises.
    """
    problem, file = load_problem(Path(reference)), candidate_file(candidate)
    wanted = options or JudgeOptions()

    verdict, measurement = judge_while(
        lambda: floor_and_demands(problem, wanted.demands),
        problem,
        file,
        target=target,
        options=wanted,
        progress=progress,
    )
    return Judged(verdict, measurement)


def floor_and_demands(problem: Problem, demands: Demands) -> tuple[Floor | None, Demands]:
    """What our own plan for a problem says of it: its floor, and what not to ask of `demands`."""
    compiled = compiled_if_it_captures(problem)
    return compiled.floor if compiled else None, _demands(demands, compiled)


def candidate_file(candidate: Path | str) -> Path:
    """Before anything else takes time."""
    path = Path(candidate)
    if not path.is_file():
        raise CandidateFileError(f"there is no file {path}", location=str(path))
    return path


def _demands(demands: Demands, compiled: Compiled | None) -> Demands:
    """Where less work gives the same finite values, it may treat NaN and Inf differently.

    The reference of diag(A) @ B multiplies every zero of the matrix by B: an Inf in B becomes a
    NaN in its whole column. That is no part of what the problem means, so it is only reported.
    """
    if compiled is None or not compiled.rewritten.algebraic:
        return demands
    return replace(demands, nan=Demand.REPORTED, infinite=Demand.REPORTED)


__all__ = [
    "Judged",
    "OptimizeOptions",
    "Optimized",
    "Rest",
    "Target",
    "candidate_file",
    "default_target",
    "judge",
    "load_problem",
    "optimize",
    "optimize_problem",
    "tuned",
    "tuned_plan",
]
