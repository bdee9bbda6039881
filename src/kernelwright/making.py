"""A module in memory from capture to kernels: planned, tuned, built, timed, and mended by parts."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import nn

from kernelwright import pipeline
from kernelwright.bench.measurement import Measurement, not_measured
from kernelwright.compiling import demand_nothing_left
from kernelwright.giving_back import (
    MeasureParts,
    measure_alone,
    measure_built,
    with_guesses_measured,
    without_slower_parts,
)
from kernelwright.ir.graph import Graph
from kernelwright.ir.plan import Plan
from kernelwright.keeping import is_contradictory, is_slower, keep_if_faster, over_rounds
from kernelwright.known_plans import Chosen, keep_plan, known_plan, plan_key
from kernelwright.machine import Machine
from kernelwright.module import (
    OptimizedModule,
    capture_in_memory,
    library_of,
    module_of_plan,
)
from kernelwright.module_text import arch_of_device, units_of
from kernelwright.pipeline import Keep, OptimizeOptions, Progress, Rest, Target
from kernelwright.schedule import plan_graph
from kernelwright.schedule.planning import Choices, Planned
from kernelwright.toolchain.cuda import compiled_meanwhile
from kernelwright.verify.verification import Event

Clock = Callable[[OptimizedModule, Sequence[Any], dict[str, Any]], Measurement]
"""Measures calls of a module in memory against those of the model's own forward."""
MeasureModule = Callable[[OptimizedModule], MeasureParts]
"""Measures the parts of a module's plan."""
_MORE_ROUNDS = 4
"""Rounds of both after one in which the wall clock contradicts the device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Maker:
    """One call of `optimize`: what it makes kernels for, and how."""

    model: nn.Module
    args: Sequence[Any]
    kwargs: dict[str, Any]
    options: OptimizeOptions
    machine: Machine
    progress: Progress
    clock: Clock
    measure: MeasureModule | None
    """None: on the current CUDA device, if kernels run there."""

    def made(self) -> OptimizedModule:
        """The module with kernels; those that do not make it faster are set aside."""
        captured = capture_in_memory(self.model, self.args, self.kwargs)
        chosen = self._chosen(captured)
        if self.options.rest is Rest.REFUSED:
            demand_nothing_left(chosen.plan)
        plan = self._tuned(chosen.plan)
        fast = self._built(plan)
        if fast.kernelwright.set_aside or self.options.keep is Keep.ALL:
            return fast
        measured = self._timed(fast)
        fast = keep_if_faster(fast, measured)
        can_measure = self.measure is not None or self.options.target is Target.CUDA
        if is_slower(measured) and can_measure and self.options.rest is not Rest.REFUSED:
            return self._mended(fast, chosen.choices, plan, captured)
        return fast

    def _chosen(self, captured: Graph) -> Chosen:
        """The plan before tuning: the one that a call before has come to, if any has."""
        library, effort = self.options.library_to_use(), self.options.effort
        can_measure = self._can_measure()
        guess_seconds = effort.guess_seconds if can_measure else 0.0
        key = plan_key(captured, self.machine, library, guess_seconds)
        known = known_plan(key)
        if known is not None:
            return known
        self._say("plan", "kernels")
        planned, is_through = plan_graph(captured, self.machine, library), True
        if can_measure and planned.plan.kernels:
            try:
                planned = self._with_guesses_measured(planned, captured)
            except KeyboardInterrupt:  # As while kernels are tuned.
                is_through = False
        chosen = Chosen(plan=planned.plan, choices=planned.choices)
        if is_through:
            keep_plan(key, chosen)
        return chosen

    def _mended(
        self, slow: OptimizedModule, choices: Choices, plan: Plan, captured: Graph
    ) -> OptimizedModule:
        """The module without kernels that are slower than the calls they replace, if it is faster
        than the model's own forward; else `slow`, which is set aside."""
        self._say("compare", "kernels with the calls that they replace")
        measure = self.measure or _on_card
        better = without_slower_parts(
            *(choices, plan, captured, self.machine),
            self.options.library_to_use(),
            measure(slow),
        )
        slow.kernelwright = replace(slow.kernelwright, kept=better.kept)
        if better.planned is None or not better.planned.plan.kernels:
            return slow
        fast = self._built(self._tuned(better.planned.plan))
        if fast.kernelwright.set_aside:
            return slow
        fast.kernelwright = replace(fast.kernelwright, kept=better.kept)
        return keep_if_faster(fast, self._timed(fast))

    def _with_guesses_measured(self, planned: Planned, captured: Graph) -> Planned:
        self._say("compare", "calls that the model is not sure of")

        def meanwhile() -> AbstractContextManager[object]:
            # Most of the plan stays as it is, whatever is found.
            return compiled_meanwhile(partial(units_of, planned.plan), arch_of_device())

        measure = measure_alone(self.options.effort.guess_seconds, _device(), meanwhile)
        library = self.options.library_to_use()
        return with_guesses_measured(planned, captured, self.machine, library, measure)

    def _can_measure(self) -> bool:
        return self.options.target is not Target.CPU and bool(self.options.effort.variants)

    def _tuned(self, plan: Plan) -> Plan:
        if not self._can_measure() or not plan.kernels:
            return plan
        options = self.options
        return pipeline.tuned_plan(
            plan, self.machine, options.effort, options.module_seconds, self.progress
        )

    def _built(self, plan: Plan) -> OptimizedModule:
        return module_of_plan(self.model, self.args, self.kwargs, plan, self._on_unit)

    def _timed(self, fast: OptimizedModule) -> Measurement:
        """What the clock says; no times where Ctrl-C ends it: the kernels are right anyway.

        Where the wall clock contradicts the device, it is asked again.
        """
        try:
            first = self.clock(fast, self.args, self.kwargs)
            if not is_contradictory(first):
                return first
            more = (self.clock(fast, self.args, self.kwargs) for _ in range(_MORE_ROUNDS))
            return over_rounds([first, *more])
        except KeyboardInterrupt:
            return not_measured("not measured: interrupted", None, self.machine)

    def _say(self, stage: str, message: str) -> None:
        self.progress(Event(stage=stage, message=message, done=0, total=1))

    def _on_unit(self, done: int, total: int) -> None:
        self.progress(Event(stage="build", message="kernels", done=done, total=total))


def _on_card(module: OptimizedModule) -> MeasureParts:
    return measure_built(library_of(module), _device())


def _device() -> torch.device:
    return torch.device("cuda", torch.cuda.current_device())
