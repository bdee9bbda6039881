"""The straight line from a problem file to a verdict: what every command runs."""

import tempfile
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from kernelwright.bench.measurement import Measurement
from kernelwright.bench.roofline import Floor
from kernelwright.build.records import Target
from kernelwright.capture import CaptureError, capture
from kernelwright.codegen import Candidate, cuda_source, emit
from kernelwright.errors import UnsupportedError
from kernelwright.ir.graph import Graph
from kernelwright.ir.plan import Config, GemmConfig, Kernel, Launch, Plan
from kernelwright.machine import H200, Machine, detect
from kernelwright.problem import Budget, Problem, load_problem, shrink
from kernelwright.report.judgement import headline
from kernelwright.rewrite import Rewritten, rewrite
from kernelwright.schedule import Cost, Library, cost_of_plan, ranked_configs, schedule
from kernelwright.tune.effort import QUICK, Effort
from kernelwright.tune.tuner import Variant, tune
from kernelwright.verify.cases import STRICT, Demand, Demands
from kernelwright.verify.verdict import Verdict
from kernelwright.verify.verification import Event
from kernelwright.worker import JudgeOptions
from kernelwright.worker import judge as judge_in_workers

Progress = Callable[[Event], None]


# --- Compiling ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """A problem on its way down the line, every stage kept for people to read."""

    problem: Problem
    captured: Graph
    rewritten: Rewritten
    plan: Plan
    machine: Machine
    """The card that the plan was made for."""
    library: Library

    @property
    def cost(self) -> Cost:
        """Bytes and FLOPs that the plan must spend at the captured sizes."""
        return cost_of_plan(self.plan)

    @property
    def floor(self) -> Floor:
        """The same as the bench room takes it."""
        cost = self.cost
        return Floor(bytes=cost.bytes, flops=cost.flops, arithmetic=cost.arithmetic)


def compile_problem(
    problem: Problem, machine: Machine, library: Library = Library.WHERE_FASTER
) -> Compiled:
    """Capture, rewrite and schedule; needs no GPU and no compiler.

    Raises CaptureError (or another KernelwrightError of the room) when the module does not export.
    """
    captured = capture(problem)
    rewritten = rewrite(captured)
    return Compiled(
        problem=problem,
        captured=captured,
        rewritten=rewritten,
        plan=schedule(rewritten.graph, machine, library),
        machine=machine,
        library=library,
    )


def modelled_machine() -> Machine:
    """The GPU of this machine, or the card that everything is modelled for without one."""
    return detect() or H200


def demand_nothing_left(compiled: Compiled) -> None:
    """Raise UnsupportedError for the first call that is left to PyTorch: `--strict`."""
    for step in compiled.plan.left_to_pytorch:
        raise UnsupportedError(f"{step.name} is left to PyTorch: {step.why}", location=step.source)


def write_candidate(compiled: Compiled, path: Path, measured: Iterable[str] = ()) -> Candidate:
    """Emit the file and write it to `path`, in one step so that no half file is ever seen."""
    candidate = emit(compiled.problem, compiled.plan, compiled.rewritten.applied, tuple(measured))
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, suffix=".tmp") as file:
        file.write(candidate.source)
    Path(file.name).replace(path)
    return candidate


def with_configs(plan: Plan, configs: dict[str, Config]) -> Plan:
    """The plan with other configurations for the kernels named in `configs`."""

    def changed(step: Launch) -> Launch:
        config = configs.get(step.kernel.name, step.kernel.config)
        return replace(step, kernel=replace(step.kernel, config=config))

    steps = tuple(changed(step) if isinstance(step, Launch) else step for step in plan.steps)
    return replace(plan, steps=steps)


# --- Tuning ------------------------------------------------------------------------------------


def tuned(
    compiled: Compiled, effort: Effort, budget_seconds: float, progress: Progress
) -> Compiled:
    """The same with the fastest configuration found for each kernel; Ctrl-C keeps the best so far.

    Needs a GPU and nvcc. `budget_seconds` is for all kernels together.
    """
    kernels = compiled.plan.kernels
    configs: dict[str, Config] = {}
    for number, kernel in enumerate(kernels):
        message = f"tuning {kernel.name}"
        progress(Event(stage="tune", message=message, done=number, total=len(kernels)))
        best = _best_config(compiled, kernel, effort, budget_seconds / len(kernels))
        configs[kernel.name] = best or kernel.config
    return replace(compiled, plan=with_configs(compiled.plan, configs))


def _best_config(
    compiled: Compiled, kernel: Kernel, effort: Effort, budget_seconds: float
) -> Config | None:
    """The fastest that was timed; None when nothing was."""
    import torch

    from kernelwright.tune.measuring import KernelTimer

    ranked = ranked_configs(kernel.anchor, kernel.inputs, kernel.output, compiled.machine)
    configs = ranked[: effort.variants]
    variants = [
        Variant(
            config=asdict(config),
            source=_source_of(compiled.plan, kernel, config),
            function=f"launch_{kernel.name}",
        )
        for config in configs
    ]
    timer = KernelTimer(kernel, torch.device("cuda", torch.cuda.current_device()))
    result = tune(variants, timer, budget_seconds=budget_seconds, finalists=effort.finalists)
    del timer
    torch.cuda.empty_cache()
    if result.best is None:
        return None
    return configs[variants.index(result.best.variant)]


def _source_of(plan: Plan, kernel: Kernel, config: Config) -> str:
    """CUDA text of one kernel alone in one configuration."""
    launches = [step for step in plan.steps if isinstance(step, Launch)]
    mine = next(step for step in launches if step.kernel.name == kernel.name)
    alone = replace(plan, steps=(replace(mine, kernel=replace(mine.kernel, config=config)),))
    return cuda_source(alone)


# --- Optimizing and judging --------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizeOptions:
    """What a caller can ask of `optimize`."""

    target: Target
    library: Library = Library.WHERE_FASTER
    effort: Effort = QUICK
    budget_seconds: float | None = None
    """Seconds of tuning for all kernels; None: what the effort says."""
    judge: JudgeOptions = field(default_factory=lambda: JudgeOptions(demands=STRICT))


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimized:
    """A written file and the proof that goes with it."""

    compiled: Compiled
    path: Path
    candidate: Candidate
    verdict: Verdict
    measurement: Measurement


def default_target() -> Target:
    """The GPU if PyTorch sees one, otherwise the emulator."""
    import torch

    return Target.CUDA if torch.cuda.is_available() else Target.CPU


def optimize(
    compiled: Compiled, path: Path, options: OptimizeOptions, progress: Progress
) -> Optimized:
    """Tune where there is a GPU, write the file to `path`, verify it and time it."""
    if options.target is Target.CUDA and options.effort.variants and compiled.plan.kernels:
        budget = options.budget_seconds
        seconds = options.effort.budget_seconds if budget is None else budget
        compiled = tuned(compiled, options.effort, seconds, progress)
    candidate = write_candidate(compiled, path)
    asked = replace(options.judge, demands=_demands(options.judge.demands, compiled))
    match options.target:
        case Target.CUDA:
            verdict, measurement = judge_in_workers(
                compiled.problem,
                path,
                target=options.target,
                floor=compiled.floor,
                options=asked,
                progress=progress,
            )
        case Target.CPU:
            verdict, measurement = _judge_shrunk(compiled, asked, progress)
    candidate = write_candidate(compiled, path, headline(verdict, measurement))
    return Optimized(
        compiled=compiled,
        path=path,
        candidate=candidate,
        verdict=verdict,
        measurement=measurement,
    )


def _judge_shrunk(
    compiled: Compiled, options: JudgeOptions, progress: Progress
) -> tuple[Verdict, Measurement]:
    """Verify the same kernels on the emulator, in a file for sizes that it can run."""
    budget = Budget(bytes=options.variant_bytes, flops=options.variant_flops)
    small = shrunk_for_emulator(compiled, budget)
    with tempfile.TemporaryDirectory(prefix="kernelwright-") as folder:
        path = Path(folder) / f"{compiled.problem.name}_new.py"
        write_candidate(small, path)
        return judge_in_workers(
            small.problem,
            path,
            target=Target.CPU,
            floor=compiled.floor,
            options=options,
            progress=progress,
        )


def shrunk_for_emulator(compiled: Compiled, budget: Budget) -> Compiled:
    """The same problem at sizes within `budget`, with the configurations of the full one.

    The kernels' text is that of the full problem but for what depends on sizes: the comments, and
    the least number of tiles, which is lowered so that the tuned variant runs.
    """
    small = compile_problem(shrink(compiled.problem, budget), compiled.machine, compiled.library)
    configs = {kernel.name: _for_few_tiles(kernel.config) for kernel in compiled.plan.kernels}
    return replace(small, plan=with_configs(small.plan, configs))


def _for_few_tiles(config: Config) -> Config:
    return replace(config, min_tiles=2) if isinstance(config, GemmConfig) else config


def judge(
    reference: Path | str,
    candidate: Path | str,
    *,
    target: Target | None = None,
    options: JudgeOptions | None = None,
    progress: Progress = lambda event: None,
) -> tuple[Verdict, Measurement]:
    """Verify and time anybody's file against a problem file.

    The floor comes from our own plan for the problem; None when the module does not capture.
    """
    problem = load_problem(Path(reference))
    compiled = _compiled_if_it_captures(problem)
    wanted = options or JudgeOptions()
    return judge_in_workers(
        problem,
        Path(candidate),
        target=target or default_target(),
        floor=compiled.floor if compiled else None,
        options=replace(wanted, demands=_demands(wanted.demands, compiled)),
        progress=progress,
    )


def _compiled_if_it_captures(problem: Problem) -> Compiled | None:
    try:
        return compile_problem(problem, modelled_machine())
    except CaptureError:
        return None


def _demands(demands: Demands, compiled: Compiled | None) -> Demands:
    """Where less work gives the same finite values, it may treat NaN and Inf differently.

    The reference of diag(A) @ B multiplies every zero of the matrix by B: an Inf in B becomes a
    NaN in its whole column. That is no part of what the problem means, so it is only reported.
    """
    if compiled is None or not compiled.rewritten.algebraic:
        return demands
    return replace(demands, nonfinite=Demand.REPORTED)


__all__ = [
    "Compiled",
    "OptimizeOptions",
    "Optimized",
    "Target",
    "compile_problem",
    "default_target",
    "demand_nothing_left",
    "judge",
    "load_problem",
    "modelled_machine",
    "optimize",
    "shrunk_for_emulator",
    "tuned",
    "with_configs",
    "write_candidate",
]
