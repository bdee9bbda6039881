"""What would be done to a module: rewrites, kernels, what stays PyTorch's, bytes, FLOPs, floor."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kernelwright.ir.plan import Kernel, Launch, Plan
from kernelwright.ir.types import ValueType
from kernelwright.lower import Decision
from kernelwright.machine import Machine
from kernelwright.program import arena_bytes, program_of
from kernelwright.rewrite import Applied, Rewritten
from kernelwright.schedule import Apart, cost_of_kernel, cost_of_plan, kept_apart, least_cost
from kernelwright.verify.records import to_plain


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeCall:
    """Launches in a row that Python starts by one call."""

    name: str
    launches: int
    arena_bytes: int
    """Memory of values that only these launches read, at the captured sizes."""

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.launches} launches, {self.arena_bytes / 1e6:,.1f} MB of memory "
            "for what only they read"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedKernel:
    """One kernel at the captured sizes of its first launch."""

    name: str
    """Name of the `__global__` function."""
    family: str
    """"pointwise", "rows", "scan", "loop", "pooling", "gemm", "joint", "conv", "attention",
    "recurrent"."""
    operators: tuple[str, ...]
    """PyTorch's operators inside, in order."""
    inputs: tuple[str, ...]
    """Dtypes and shapes, as "f32[s0, 8192]"; s0 is a size that may change."""
    outputs: tuple[str, ...]
    config: str
    """Tile, stages, threads: what tuning chooses."""
    bytes: int
    """Read and written."""
    flops: int
    """A multiply-add as two."""
    floor_seconds: float
    """The least time for these bytes and FLOPs on the machine."""
    launches: int
    """Launches in one call, of these sizes or of others."""
    launches_floor_seconds: float
    """The least time of all of them together, each at its own sizes."""
    sources: tuple[str, ...]
    """Lines of the module's text, as "model.py:12"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftToPyTorch:
    """A call that stays PyTorch's."""

    operator: str
    source: str | None
    """Where it stands: "model.py:12"; None where nobody knows."""
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What kernelwright would do to a module, and what that costs at the captured sizes."""

    rewrites: tuple[Applied, ...]
    lowered: tuple[str, ...]
    """Passes that changed how the graph is computed, in order, each with what it does."""
    kernels: tuple[PlannedKernel, ...]
    left_to_pytorch: tuple[LeftToPyTorch, ...]
    notes: tuple[str, ...]
    """What the capture held fast: sizes, numbers, branches."""
    apart: tuple[Apart, ...]
    """Neighbours that do not share a kernel, and why."""
    native_calls: tuple[NativeCall, ...]
    """Launches that are started together; the others are each a call of their own."""
    bytes: int
    """Read and written by all kernels and calls together."""
    least_bytes: int
    """Bytes of inputs, parameters and outputs, each once: nothing moves less."""
    flops: int
    """Operations of all kernels and of calls that stay PyTorch's; a multiply-add as two."""
    floor_seconds: float
    """The least time for `bytes` and `flops` on `machine`: a model, not a measurement."""
    machine: str
    """The card that is planned for: the one here, or the H200."""
    captured: str
    """The graph before the rewrites, as text."""
    rewritten: str
    """The graph after them."""

    def lines(self) -> Iterator[str]:
        """One fact a line, in the order of the pipeline; what `kernelwright explain` prints."""
        for item in self.rewrites:
            yield f"rewritten   {item}{'  [algebraic]' if item.algebraic else ''}"
        for text in self.lowered:
            yield f"lowered     {text}"
        for kernel in self.kernels:
            yield from _kernel_lines(kernel)
        for step in self.left_to_pytorch:
            where = f" ({step.source})" if step.source else ""
            yield f"PyTorch     {step.operator}{where}: {step.why}"
        for note in self.notes:
            yield f"note        {note}"
        for pair in self.apart:
            yield f"apart       {pair}"
        for call in self.native_calls:
            yield f"one call    {call}"
        yield (
            f"moved       {self.bytes / 1e6:,.1f} MB by kernels and calls; inputs, parameters and "
            f"results alone are {self.least_bytes / 1e6:,.1f} MB"
        )
        yield (
            f"in all      {self.bytes / 1e6:,.1f} MB, {self.flops / 1e9:,.3f} GFLOP, modelled "
            f"floor {self.floor_seconds * 1e3:.3g} ms on {self.machine}"
        )

    def to_json(self) -> dict[str, Any]:
        """These facts as JSON values."""
        plain: dict[str, Any] = to_plain(self)
        return plain


def _kernel_lines(kernel: PlannedKernel) -> Iterator[str]:
    yield f"kernel      {kernel.name} = {' + '.join(kernel.operators)}"
    yield f"            {', '.join(kernel.inputs)} -> {', '.join(kernel.outputs)}"
    yield (
        f"            {kernel.bytes / 1e6:,.1f} MB, {kernel.flops / 1e9:,.3f} GFLOP, "
        f"floor {kernel.floor_seconds * 1e3:.3g} ms; {kernel.config}"
    )


def explain_plan(
    rewritten: Rewritten,
    lowered: tuple[Decision, ...],
    plan: Plan,
    machine: Machine,
    captured: str,
) -> Explanation:
    """The facts of a plan; `captured` is the text of the graph before the rewrites."""
    total = cost_of_plan(plan)
    launched: dict[str, list[Kernel]] = {kernel.name: [] for kernel in plan.kernels}
    for step in plan.steps:
        if isinstance(step, Launch):
            launched[step.kernel.name].append(step.kernel)
    return Explanation(
        rewrites=rewritten.applied,
        lowered=tuple(f"{it.name}: {it.what}" for it in lowered),
        kernels=tuple(_planned(kernel, launched[kernel.name], machine) for kernel in plan.kernels),
        left_to_pytorch=tuple(
            LeftToPyTorch(operator=step.name, source=step.source, why=step.why)
            for step in plan.left_to_pytorch
        ),
        notes=tuple(plan.graph.notes),
        apart=tuple(kept_apart(plan)),
        native_calls=tuple(
            NativeCall(name=it.name, launches=len(it.launches), arena_bytes=arena_bytes(it))
            for it in program_of(plan).segments
        ),
        bytes=total.bytes,
        least_bytes=least_cost(plan).bytes,
        flops=total.flops,
        floor_seconds=total.floor_seconds(machine),
        machine=machine.name,
        captured=captured,
        rewritten=str(rewritten.graph),
    )


def _planned(kernel: Kernel, launched: Sequence[Kernel], machine: Machine) -> PlannedKernel:
    """`launched`: the kernel at the sizes of each of its launches."""
    cost = cost_of_kernel(kernel)
    return PlannedKernel(
        name=f"{kernel.name}_kernel",
        family=kernel.family,
        operators=tuple(kernel.operators),
        inputs=_kinds(kernel.inputs),
        outputs=_kinds(kernel.outputs),
        config=str(kernel.config),
        bytes=cost.bytes,
        flops=cost.flops,
        floor_seconds=cost.floor_seconds(machine),
        launches=len(launched),
        launches_floor_seconds=sum(cost_of_kernel(it).floor_seconds(machine) for it in launched),
        sources=tuple(kernel.sources),
    )


def _kinds(kinds: Iterable[ValueType]) -> tuple[str, ...]:
    return tuple(map(str, kinds))


def plan_json(rewritten: Rewritten, plan: Plan, machine: Machine) -> dict[str, Any]:
    """The facts of a plan as JSON values, without the graphs: what rows of results hold."""
    facts = explain_plan(rewritten, (), plan, machine, captured="").to_json()
    return {name: facts[name] for name in facts if name not in ("captured", "rewritten", "lowered")}
