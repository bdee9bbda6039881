"""Products of one left factor in one launch, as those of queries, keys and values are.

A factor of float32 is split once for all of them, and one launch has more tiles to fill the card
with than each of several. Right factors stay where they are, and each has a result of its own.
"""

from collections.abc import Sequence

from kernelwright.ir.graph import Graph
from kernelwright.ir.kinds import Contract
from kernelwright.ir.plan import Kernel, Launch, Plan, Step
from kernelwright.ir.types import DType, TensorType
from kernelwright.machine import Machine
from kernelwright.schedule.families import family_of
from kernelwright.schedule.families.gemm import GEMM, together
from kernelwright.schedule.roles import Roles, roles

_FACTORS = (DType.F32, DType.F16, DType.BF16)
MOST_TOGETHER = 3
"""Products of a launch: `MOST_TOGETHER` of gemm_rest.cuh."""


def with_products_together(
    graph: Graph, steps: Sequence[Step], machine: Machine, wanted: frozenset[str] | None = None
) -> list[Step]:
    """The steps with one launch for products that share their left factor.

    For those whose first result is in `wanted`; None: for those that are faster so.
    """
    merged: dict[str, Launch | None] = {}
    for launches in _alike(graph, steps):
        found = _merged(launches, machine) if len(launches) > 1 else None
        if found is None:
            continue
        if found.result in wanted if wanted is not None else _is_faster(found, launches, machine):
            merged |= {found.result: found, **dict.fromkeys(found.results[1:])}
    found_steps = (merged.get(it.result, it) if isinstance(it, Launch) else it for it in steps)
    return [step for step in found_steps if step is not None]


def computed_together(plan: Plan) -> frozenset[str]:
    """The launches of several products, by their first results."""
    launches = (step for step in plan.steps if isinstance(step, Launch))
    return frozenset(launch.result for launch in launches if launch.kernel.together > 1)


def _merged(launches: Sequence[Launch], machine: Machine) -> Launch | None:
    kernel = together([launch.kernel for launch in launches], machine)
    if kernel is None:
        return None
    return Launch(
        results=tuple(launch.result for launch in launches),
        kernel=kernel,
        inputs=(
            launches[0].inputs[0],
            *(name for launch in launches for name in launch.inputs[1:]),
        ),
    )


def _is_faster(merged: Launch, launches: Sequence[Launch], machine: Machine) -> bool:
    alone = sum(_seconds(launch.kernel, machine) for launch in launches)
    return _seconds(merged.kernel, machine) < alone


def _seconds(kernel: Kernel, machine: Machine) -> float:
    seconds = family_of(kernel).seconds(kernel, machine)
    assert seconds is not None, "the time of products is modelled"
    return seconds


def _alike(graph: Graph, steps: Sequence[Step]) -> list[list[Launch]]:
    """Launches that can be one where the first of them is: what they read is there before it."""
    ordered = graph.readers_of_mutable()
    made: dict[str, int] = {}
    groups: list[list[Launch]] = []
    latest: dict[object, list[Launch]] = {}
    for at, step in enumerate(steps):
        if isinstance(step, Launch) and _may_join(step.kernel) and step.result not in ordered:
            key = _key(step)
            group = latest.get(key, [])
            starts = len(group) in (0, MOST_TOGETHER)
            if starts or any(made.get(it, -1) >= made[group[0].result] for it in step.inputs):
                group = latest[key] = []
                groups.append(group)
            group.append(step)
        names = step.results if isinstance(step, Launch) else (step.result,)
        made |= dict.fromkeys(names, at)
    return groups


def _key(launch: Launch) -> object:
    kernel = launch.kernel
    kinds = (*kernel.inputs, *kernel.outputs)
    return (launch.inputs[0], kernel.anchor, str(kernel.epilogue), kinds, kernel.operators)


def _may_join(kernel: Kernel) -> bool:
    """Whether a kernel is a product of float32 or of 16-bit numbers whose right factor is one for
    all batches."""
    if kernel.family != GEMM.name or not kernel.is_whole:
        return False
    contract = kernel.anchored(Contract)
    found = roles(contract)
    return (
        isinstance(found, Roles)
        and not found.swapped
        and contract.patches is None
        and len(found.right) == 2
        and all(isinstance(it, TensorType) and it.dtype in _FACTORS for it in kernel.inputs)
    )
