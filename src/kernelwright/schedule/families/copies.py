"""Copies of many tensors in one launch: kernels made of those of the pointwise family."""

from collections.abc import Sequence
from math import prod

from kernelwright.ir.configs import Config, PointwiseConfig
from kernelwright.ir.expr import Operand
from kernelwright.ir.plan import Kernel, Launch
from kernelwright.ir.types import TensorType
from kernelwright.machine import Machine
from kernelwright.schedule.families.family import (
    Description,
    Family,
    Work,
    computed,
    never_launched,
    no_units,
)
from kernelwright.schedule.naming import merge_operators

MOST_COPIES = 40
"""Copies of a launch: their descriptions are its parameters, of which there are 4 KB."""
_RANK = 4
"""Dimensions of what is copied: `DenseCopy::RANK`."""
_MOST_PLACES = 128
"""Places of a filter that a block turns in one run; larger maps are a kernel's own work."""
_CONFIGS = (
    PointwiseConfig(threads=128, width=1, unroll=4),
    PointwiseConfig(threads=256, width=1, unroll=4),
)


def is_copy(kernel: Kernel) -> bool:
    """Whether a launch of it may be one of several in one."""
    if kernel.family != "pointwise" or len(kernel.inputs) != 1:
        return False
    (source,) = kernel.inputs
    return (
        isinstance(source, TensorType)
        and source.rank == _RANK
        and source.is_transposed
        and kernel.epilogue == Operand(0, source.dtype)
        and kernel.output.dtype is source.dtype
        and all(dim.is_static for dim in source.shape)
        and prod(dim.hint for dim in kernel.output.shape[1:-1]) <= _MOST_PLACES
    )


def copied_together(launches: Sequence[Launch]) -> Launch:
    """One launch for these, whose elements have one type."""
    kernels = [it.kernel for it in launches]
    kernel = Kernel(
        name="",
        family=COPIES.name,
        anchor=None,
        inputs=tuple(kind for it in kernels for kind in it.inputs),
        epilogue=None,
        outputs=tuple(kind for it in kernels for kind in it.outputs),
        operators=merge_operators(*(it.operators for it in kernels)),
        config=_CONFIGS[0],
        sources=tuple(dict.fromkeys(source for it in kernels for source in it.sources)),
    )
    return Launch(
        results=tuple(it.result for it in launches),
        kernel=kernel,
        inputs=tuple(name for it in launches for name in it.inputs),
    )


def _configs(kernel: Kernel, machine: Machine) -> tuple[Config, ...]:
    return _CONFIGS


def _describe(kernel: Kernel) -> Description:
    count = len(kernel.outputs)
    return Description(what=f" of {count} tensors", computes=(f"{kernel.outputs[0]} = %0",))


COPIES = Family(
    name="copies",
    nodes=(),
    grow=no_units,
    launch=never_launched,
    why_not=computed,
    configs=_configs,
    cost=lambda kernel: Work(flops=0),
    same_text=lambda kernel: (len(kernel.outputs), kernel.config),
    describe=_describe,
    holds="it only copies",
)
