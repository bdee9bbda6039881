"""Rows that a product reads as pairs of fp16 numbers: the kernel that computes them writes these,
and no kernel before the product splits its left factor.

So it is for shares of a softmax: from 0 to 1, their scale is known beforehand.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from kernelwright.ir.anchors import Extent, RowProgram
from kernelwright.ir.graph import Graph
from kernelwright.ir.kinds import Contract
from kernelwright.ir.plan import Kernel, Launch, Plan, Step, reads
from kernelwright.ir.product_configs import Major
from kernelwright.ir.row_configs import RowConfig
from kernelwright.ir.types import DType, TensorType
from kernelwright.machine import Machine
from kernelwright.schedule.families import family_of
from kernelwright.schedule.families.gemm import GEMM
from kernelwright.schedule.families.rows import ROWS, writes_pairs
from kernelwright.schedule.roles import Roles, roles

_LINE = 32
"""Numbers of a line of 128 bytes, which rows in pairs consist of (`PAIRED_LINE`)."""


def with_pairs(
    graph: Graph, steps: Sequence[Step], machine: Machine, wanted: frozenset[str] | None = None
) -> list[Step]:
    """The steps with pairs from the rows in `wanted`; None: from those with which products are
    faster."""
    readers = Counter(name for step in steps for name in reads(step))
    readers.update(graph.results)
    rows = {
        step.result: step
        for step in steps
        if isinstance(step, Launch) and readers[step.result] == 1 and _are_shares(step.kernel)
    }
    changed: dict[str, Launch] = {}
    for step in steps:
        if not isinstance(step, Launch) or step.kernel.family != GEMM.name:
            continue
        first = rows.get(step.inputs[0])
        second = _reading(step.kernel, machine) if first is not None else None
        if first is None or second is None:
            continue
        name = first.result
        if name in wanted if wanted is not None else _is_faster(second, step.kernel, machine):
            changed[name] = replace(first, kernel=replace(first.kernel, pairs=True))
            changed[step.result] = replace(step, kernel=second)
    return [changed.get(step.result, step) for step in steps]


def in_pairs(plan: Plan) -> frozenset[str]:
    """The rows that are written as pairs."""
    launches = (step for step in plan.steps if isinstance(step, Launch))
    return frozenset(
        it.result for it in launches if it.kernel.pairs and it.kernel.family == ROWS.name
    )


def _are_shares(kernel: Kernel) -> bool:
    """Whether a kernel writes nothing but shares, of rows along the last dimension."""
    if kernel.family != ROWS.name or len(kernel.outputs) != 1:
        return False
    program = kernel.anchored(RowProgram)
    (result,) = program.results
    return (
        kernel.output.dtype is DType.F32
        and result.extent is Extent.ELEMENT
        and program.is_share(result.value)
        and program.dims == (len(program.shape) - 1,)
        and writes_pairs(kernel.configured(RowConfig))
    )


def _reading(kernel: Kernel, machine: Machine) -> Kernel | None:
    """The product with a left factor in pairs; None where there is no such kernel."""
    found = roles(kernel.anchored(Contract))
    if not isinstance(found, Roles) or found.swapped or found.left_major is not Major.K:
        return None
    if not kernel.is_whole or kernel.together > 1 or kernel.anchored(Contract).patches is not None:
        return None
    paired = replace(kernel, pairs=True)
    configs = GEMM.configs(paired, machine)
    return replace(paired, config=configs[0]) if configs else None


def _is_faster(paired: Kernel, kernel: Kernel, machine: Machine) -> bool:
    left = paired.inputs[0]
    assert isinstance(left, TensorType)
    seconds = (family_of(it).seconds(it, machine) for it in (paired, kernel))
    ours, usual = seconds
    assert ours is not None and usual is not None, "the time of products is modelled"
    return left.shape[-1].hint % _LINE == 0 and ours < usual
