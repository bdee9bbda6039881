"""The straight line from a problem file to a verdict: what every command runs."""

import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from kernelwright.build.records import Target
from kernelwright.capture import capture
from kernelwright.codegen import Candidate, emit
from kernelwright.errors import UnsupportedError
from kernelwright.ir.graph import Graph
from kernelwright.ir.plan import Config, GemmConfig, Launch, Plan
from kernelwright.machine import H200, Machine, detect
from kernelwright.problem import Problem, load_problem, shrink
from kernelwright.rewrite import Rewritten, rewrite
from kernelwright.schedule import Cost, Library, cost_of_plan, schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """A problem on its way down the line, every stage kept for people to read."""

    problem: Problem
    captured: Graph
    rewritten: Rewritten
    plan: Plan
    machine: Machine
    """The card that the plan was made for."""

    @property
    def cost(self) -> Cost:
        """Bytes and FLOPs that the plan must spend at the captured sizes."""
        return cost_of_plan(self.plan)

    @property
    def floor_seconds(self) -> float:
        """Time that the card cannot beat with this plan."""
        return self.cost.floor_seconds(self.machine)

    @property
    def left_to_pytorch(self) -> tuple[str, ...]:
        """ "aten.convolution.default: why", one line for each call."""
        return tuple(f"{step.name}: {step.why}" for step in self.plan.left_to_pytorch)


def compile_problem(
    problem: Problem, machine: Machine, library: Library = Library.WHERE_FASTER
) -> Compiled:
    """Capture, rewrite and schedule; needs no GPU and no compiler.

    Raises CaptureError (or another KernelwrightError of the room) when the module does not export.
    """
    captured = capture(problem)
    rewritten = rewrite(captured)
    plan = schedule(rewritten.graph, machine, library)
    return Compiled(
        problem=problem, captured=captured, rewritten=rewritten, plan=plan, machine=machine
    )


def with_configs(plan: Plan, configs: dict[str, Config]) -> Plan:
    """The plan with other configurations for the kernels named in `configs`."""

    def changed(step: Launch) -> Launch:
        config = configs.get(step.kernel.name, step.kernel.config)
        return replace(step, kernel=replace(step.kernel, config=config))

    steps = tuple(changed(step) if isinstance(step, Launch) else step for step in plan.steps)
    return replace(plan, steps=steps)


def modelled_machine() -> Machine:
    """The GPU of this machine, or the card that everything is modelled for without one."""
    return detect() or H200


def demand_nothing_left(compiled: Compiled) -> None:
    """Raise UnsupportedError for the first call that is left to PyTorch: `--strict`."""
    for step in compiled.plan.left_to_pytorch:
        raise UnsupportedError(
            f"{step.name} is left to PyTorch: {step.why}", location=getattr(step, "source", None)
        )


def write_candidate(compiled: Compiled, path: Path, measured: Iterable[str] = ()) -> Candidate:
    """Emit the file and write it to `path`, in one step so that no half file is ever seen."""
    candidate = emit(compiled.problem, compiled.plan, compiled.rewritten.applied, tuple(measured))
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, suffix=".tmp") as file:
        file.write(candidate.source)
    Path(file.name).replace(path)
    return candidate


def shrunk_for_emulator(compiled: Compiled) -> Compiled:
    """The same problem at sizes that the emulator can run, with the configurations of the full one.

    The kernels' text is that of the full problem but for what depends on sizes: the comments, and
    the least number of tiles, which is lowered so that the tuned variant runs.
    """
    small = compile_problem(shrink(compiled.problem), compiled.machine, _library_of(compiled))
    configs = {kernel.name: _for_few_tiles(kernel.config) for kernel in compiled.plan.kernels}
    return replace(small, plan=with_configs(small.plan, configs))


def _for_few_tiles(config: Config) -> Config:
    return replace(config, min_tiles=2) if isinstance(config, GemmConfig) else config


def _library_of(compiled: Compiled) -> Library:
    ours = any(step.why for step in compiled.plan.left_to_pytorch)
    return Library.WHERE_FASTER if ours else Library.NEVER


Notify = Callable[[str], None]

__all__ = [
    "Compiled",
    "Target",
    "compile_problem",
    "demand_nothing_left",
    "load_problem",
    "modelled_machine",
    "shrunk_for_emulator",
    "with_configs",
    "write_candidate",
]
