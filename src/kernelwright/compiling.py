"""A problem on its way down the line: captured, rewritten, scheduled, written as a file."""

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from kernelwright.bench.roofline import Floor
from kernelwright.capture import CaptureError, capture
from kernelwright.codegen import Candidate, emit
from kernelwright.errors import UnsupportedError, writing
from kernelwright.ir.captured import at_captured_sizes
from kernelwright.ir.configs import Config
from kernelwright.ir.graph import Graph
from kernelwright.ir.plan import Launch, Plan
from kernelwright.lower import Decision
from kernelwright.machine import Machine, modelled_machine
from kernelwright.problem import Budget, Problem, round_up, shrink
from kernelwright.report.plan import Explanation, explain_plan
from kernelwright.rewrite import Rewritten
from kernelwright.schedule import OPEN, Choices, Library, least_cost, plan_graph
from kernelwright.schedule.families import family_of
from kernelwright.schedule.planning import Planned


class Sizes(Enum):
    """At which sizes of its arguments a file works."""

    ANY = "any"
    """All that the reference takes."""
    CAPTURED = "captured"
    """Those that the problem's `get_inputs` makes; at others it raises ValueError. The file is
    shorter: it has no variants for other sizes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """A problem on its way down the line, every stage kept for people to read."""

    problem: Problem
    captured: Graph
    rewritten: Rewritten
    plan: Plan
    choices: Choices
    lowered: tuple[Decision, ...]
    """Passes that changed the graph between rewriting and scheduling."""
    machine: Machine
    """The card that the plan was made for."""
    library: Library
    sizes: Sizes = Sizes.ANY

    @property
    def planned(self) -> Planned:
        """The plan with its choices."""
        return Planned(
            rewritten=self.rewritten, plan=self.plan, choices=self.choices, lowered=self.lowered
        )

    @property
    def floor(self) -> Floor:
        """What no program for the rewritten graph gets around, at the captured sizes."""
        cost = least_cost(self.plan)
        return Floor(
            bytes=cost.bytes,
            flops=cost.flops,
            arithmetic=cost.arithmetic(self.machine),
            algebraic=bool(self.rewritten.algebraic),
        )

    @property
    def explanation(self) -> Explanation:
        """The facts for people: rewrites, kernels, what stays PyTorch's and why, bytes, floor."""
        return explain_plan(
            self.rewritten, self.lowered, self.plan, self.machine, str(self.captured)
        )


def compile_problem(
    problem: Problem,
    machine: Machine,
    library: Library = Library.WHERE_FASTER,
    choices: Choices = OPEN,
    sizes: Sizes = Sizes.ANY,
) -> Compiled:
    """Capture, rewrite and schedule; needs no GPU and no compiler.

    `choices`: those of the same problem at other sizes.
    Raises CaptureError (or another KernelwrightError of the room) when the module does not export.
    """
    return compile_captured(problem, capture(problem), machine, library, choices, sizes)


def compile_captured(
    problem: Problem,
    captured: Graph,
    machine: Machine,
    library: Library = Library.WHERE_FASTER,
    choices: Choices = OPEN,
    sizes: Sizes = Sizes.ANY,
) -> Compiled:
    """Rewrite and schedule a problem that has been captured."""
    if sizes is Sizes.CAPTURED:
        captured = at_captured_sizes(captured)
    planned = plan_graph(captured, machine, library, choices)
    return Compiled(
        problem=problem,
        captured=captured,
        rewritten=planned.rewritten,
        plan=planned.plan,
        choices=planned.choices,
        lowered=planned.lowered,
        machine=machine,
        library=library,
        sizes=sizes,
    )


def demand_nothing_left(plan: Plan) -> None:
    """Raise UnsupportedError for the first call that is left to PyTorch."""
    for step in plan.left_to_pytorch:
        raise UnsupportedError(f"{step.name} is left to PyTorch: {step.why}", location=step.source)


def write_candidate(compiled: Compiled, path: Path, measured: Iterable[str] = ()) -> Candidate:
    """Emit the file and write it to `path`, in one step so that no half file is ever seen."""
    candidate = emit(compiled.problem, compiled.plan, compiled.rewritten.applied, tuple(measured))
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished.write_text(candidate.source, encoding="utf-8")
        unfinished.replace(path)
    return candidate


def compiled_if_it_captures(problem: Problem) -> Compiled | None:
    try:
        return compile_problem(problem, modelled_machine())
    except CaptureError:
        return None


# --- For the emulator --------------------------------------------------------------------------


def shrunk_for_emulator(compiled: Compiled, budget: Budget) -> Compiled:
    """The problem at sizes within `budget`, with the configurations of the full one.

    The kernels' text is that of the full problem but for what depends on sizes: the comments, and
    the least size of a product, which is lowered so that the tuned variant runs.
    """
    from kernelwright.tune.plans import with_configs

    # At small sizes the library is faster at products that are ours at the full ones.
    products = any(family_of(it).cost(it).products is not None for it in compiled.plan.kernels)
    library = Library.NEVER if products else compiled.library
    problem = shrink(compiled.problem, budget)
    if any(family_of(it).wants_whole_rows(it.config) for it in compiled.plan.kernels):
        problem = round_up(problem, _ROW_UNIT, budget)
    small = compile_problem(problem, compiled.machine, library, compiled.choices, compiled.sizes)
    return replace(small, plan=with_configs(small.plan, _configs_of(compiled.plan, small.plan)))


def _configs_of(full: Plan, small: Plan) -> dict[str, Config]:
    """For kernels of `small` the configuration of the one that computes the same in `full`."""
    known = {step.result: step.kernel for step in full.steps if isinstance(step, Launch)}
    configs: dict[str, Config] = {}
    for step in small.steps:
        if isinstance(step, Launch) and step.result in known:
            other = known[step.result]
            own, full_own = (
                (it.family, it.together, it.pairs, it.moments) for it in (step.kernel, other)
            )
            if own == full_own:
                config = family_of(other).at_any_size(other.config)
                configs.setdefault(step.kernel.name, config)
    return configs


_ROW_UNIT = 8
"""Elements: rows of so many start at multiples of 16 bytes in every type that products read."""
