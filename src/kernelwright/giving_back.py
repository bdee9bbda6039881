"""Kernels that a card finds slower than the calls they replace, which go back to PyTorch.

planned = with_guesses_measured(planned, captured, machine, library, measure)
better = without_slower_parts(choices, plan, captured, machine, library, measure)
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import torch

from kernelwright.codegen import kernel_unit
from kernelwright.ir.graph import Graph
from kernelwright.ir.plan import Plan
from kernelwright.machine import Machine
from kernelwright.schedule import Library, plan_graph
from kernelwright.schedule.legality import is_guess
from kernelwright.schedule.planning import Choices, Planned
from kernelwright.toolchain.cache import database_path
from kernelwright.toolchain.cuda import compile_libraries
from kernelwright.tune.database import Database
from kernelwright.tune.parts import (
    CallTimer,
    LaunchTimer,
    Part,
    decided,
    parts_of,
    sentence,
)
from kernelwright.tune.plans import key_of
from kernelwright.worker.card.lease import Lease

MeasureParts = Callable[[Sequence[Part], Graph], Mapping[str, str | None]]
"""What a card says of parts of the plan of a captured graph, for `Choices.measured`."""
MeasurePlanned = Callable[[Plan, Sequence[Part], Graph], Mapping[str, str | None]]
"""What a card says of parts of a plan whose kernels are not built."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Better:
    """A plan without the parts that are slower than the calls they replace."""

    planned: Planned | None
    """None where nothing went back."""
    kept: str
    """What was kept and why, in one line."""


def without_slower_parts(
    choices: Choices,
    plan: Plan,
    captured: Graph,
    machine: Machine,
    library: Library,
    measure: MeasureParts,
) -> Better:
    """The plan that a card prefers to `plan`, which was made with these choices."""
    parts = parts_of(plan, captured, machine)
    measured = measure(parts, captured)
    planned = None
    if any(why is not None for why in measured.values()):
        # All of what was measured counts: without its neighbours a kernel may be modelled slower.
        planned = plan_graph(captured, machine, library, _with(choices, measured))
    return Better(planned=planned, kept=sentence(parts, measured))


def measure_built(library: Path, device: torch.device) -> MeasureParts:
    """Parts of the plan that a library was built of, on a CUDA device."""

    def measure(parts: Sequence[Part], captured: Graph) -> Mapping[str, str | None]:
        return decided(parts, LaunchTimer(library, device), CallTimer(captured, device))

    return measure


def measure_tuned(plan: Plan, machine: Machine, device: torch.device) -> MeasureParts:
    """Parts of a plan whose kernels the tuning database knows, on a CUDA device.

    A part at other sizes than those that its kernel was tuned at is not measured.
    """

    def measure(parts: Sequence[Part], captured: Graph) -> Mapping[str, str | None]:
        tuned = {kernel.name: kernel for kernel in plan.kernels}
        with Database(database_path()) as database, _alone(device):

            def ours(part: Part) -> float | None:
                kernel = tuned[part.kernel.name]
                row = database.best(key_of(plan, kernel, machine))
                return row.seconds if row is not None and part.kernel == kernel else None

            return decided(parts, ours, CallTimer(captured, device))

    return measure


@contextmanager
def _alone(device: torch.device) -> Iterator[None]:
    """The card for this process alone."""
    lease = Lease(device.index or 0)
    lease.claim(lambda: None)
    try:
        yield
    finally:
        lease.release()


# --- What the model does not know --------------------------------------------------------------


def with_guesses_measured(
    planned: Planned,
    captured: Graph,
    machine: Machine,
    library: Library,
    measure: MeasurePlanned,
) -> Planned:
    """The plan where each call that the model was not sure enough of is ours if a card says so."""
    reasons = dict(planned.choices.left)
    if planned.choices.convolutions is not None:
        reasons |= planned.choices.convolutions.left
    guesses = {name: None for name, why in reasons.items() if why is not None and is_guess(why)}
    if not guesses or library is Library.NEVER:
        return planned
    tried = plan_graph(captured, machine, library, _with(planned.choices, guesses)).plan
    parts = [it for it in parts_of(tried, captured, machine) if it.node in guesses]
    measured = measure(tried, parts, captured)
    if all(why is not None for why in measured.values()):
        return planned
    # What was not measured stays where the model had it.
    known = {name: measured.get(name, reasons[name]) for name in guesses}
    return plan_graph(captured, machine, library, _with(planned.choices, known))


def measure_alone(
    seconds: float,
    device: torch.device,
    meanwhile: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> MeasurePlanned:
    """Parts whose kernels are compiled for it, as many as get ready within so many seconds.

    What is done in the block `meanwhile` begins when these kernels are written.
    """

    def measure(plan: Plan, parts: Sequence[Part], captured: Graph) -> Mapping[str, str | None]:
        names = list(dict.fromkeys(part.kernel.name for part in parts))
        texts = [kernel_unit(plan, name) for name in names]
        timers: dict[str, LaunchTimer] = {}
        with meanwhile():
            for index, made in compile_libraries(texts, seconds):
                if isinstance(made, Path):
                    timers[names[index]] = LaunchTimer(made, device)
            ready = [part for part in parts if part.kernel.name in timers]
            with _alone(device):
                return decided(
                    ready, lambda part: timers[part.kernel.name](part), CallTimer(captured, device)
                )

    return measure


def _with(choices: Choices, measured: Mapping[str, str | None]) -> Choices:
    """What a card has said so far and now, for this order of memory; all else is open."""
    together = MappingProxyType({**choices.measured, **measured})
    return Choices(loops=choices.loops, by_place=choices.by_place, measured=together)
