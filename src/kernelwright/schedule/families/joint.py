"""Products of few rows that have them in common: kernels made of those of other families."""

from collections.abc import Iterator
from math import ceil, prod

from kernelwright.ir.configs import Config
from kernelwright.ir.expr import Operand, operations, walk
from kernelwright.ir.joint import JointConfig, JointProduct, JointProducts
from kernelwright.ir.plan import Kernel
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
from kernelwright.schedule.families.rows import ROWS
from kernelwright.schedule.gemm_work import PRODUCT_UNITS

_CONFIGS = (
    # runs of K under way, warps, blocks of a multiprocessor
    (4, 8, 3),
    (4, 16, 1),
    (4, 4, 4),
)
FEW_ROWS = 2
"""Rows that all warps of a block make together, one after the other."""
_MOST_HELD = 4
"""Vectors of each input of a row that a lane holds."""


def rows_kernel(kernel: Kernel) -> Kernel | None:
    """The kernel that would make the rows alone; None where they are as they are."""
    joint = kernel.anchored(JointProducts)
    if joint.rows is None:
        return None
    factor = kernel.inputs[joint.products[0].factors[0]]
    assert isinstance(factor, TensorType)
    made = TensorType(dtype=factor.dtype, shape=joint.rows.shape)
    return Kernel(
        name=f"{kernel.name}_rows",
        family=ROWS.name,
        anchor=joint.rows,
        inputs=kernel.inputs[: joint.row_inputs],
        epilogue=None,
        outputs=(made,),
        operators=kernel.operators,
        config=kernel.config,
    )


def extras_of(product: JointProduct) -> tuple[int, ...]:
    """Indices of the kernel's inputs that join a result, ascending."""
    parts = (part for it in product.epilogues for part in walk(it))
    read = {part.index for part in parts if isinstance(part, Operand)}
    return tuple(sorted(read))


def joint_configs(kernel: Kernel, machine: Machine) -> tuple[tuple[float, JointConfig], ...]:
    """Those that multiprocessors have room for, with their modelled seconds, best first."""
    depth, factors, room = _depth(kernel), _sums(kernel), machine.shared_memory_per_block
    found = []
    for loads, warps, resident in _CONFIGS:
        row_warps = warps if rows_of(kernel) <= FEW_ROWS else 1
        config = JointConfig(
            loads=loads,
            warps=warps,
            resident=resident,
            multiprocessors=machine.sm_count,
            room=room,
            held=_held(depth, row_warps),
            row_warps=row_warps,
        )
        if config.block_bytes(depth, config.ROWS, factors) <= room:
            found.append((_seconds_of(kernel, config, machine), config))
    return tuple(sorted(found, key=lambda it: it[0]))


def _turns(kernel: Kernel) -> list[int]:
    """Turns of 8 columns of each result."""
    joint, rows = kernel.anchored(JointProducts), max(1, rows_of(kernel))
    columns = [it.numel_hint // rows for it in kernel.outputs]
    shares = [1 if it.halves is None else 2 for it in joint.products]
    return [ceil(n / (share * 8)) for n, share in zip(columns, shares, strict=True)]


def _held(depth: int, warps: int) -> int:
    """Vectors of a row for each lane of so many warps, if they are few enough for registers."""
    vectors = ceil(depth / (warps * 32 * 8))
    return vectors if vectors <= _MOST_HELD else 0


def _seconds_of(kernel: Kernel, config: JointConfig, machine: Machine) -> float:
    """Reading the factors once, and the rows once for each block, which makes them before its
    turns; each turn waits for one step after the other."""
    rates, joint = machine.few, kernel.anchored(JointProducts)
    depth, rows, sums = _depth(kernel), rows_of(kernel), _sums(kernel)
    tiles = ceil(rows / config.ROWS)
    turns = tiles * sum(_turns(kernel))
    fitting = config.room // config.block_bytes(depth, rows, sums)
    resident = min(config.resident, fitting)
    blocks = min(turns, resident * config.multiprocessors)
    share = rates.read_share * (rates.lone_share if resident == 1 and turns > blocks else 1.0)
    inputs = [it for it in kernel.inputs if isinstance(it, TensorType)]
    once = sum(it.bytes_hint for it in (*inputs, *kernel.outputs))
    again = 2 * blocks * min(rows, config.ROWS) * depth * max(1, joint.row_inputs)
    factors = sum(inputs[at].bytes_hint for it in joint.products for at in it.factors)
    again += (tiles - 1) * factors
    moving = max(once / (share * machine.read_bandwidth), (once + again) / rates.cache_bandwidth)
    steps = ceil(depth / (config.loads * config.RUN * config.warps))
    made = ceil(min(rows, config.ROWS) / config.warps) if joint.rows is not None else 0
    return machine.launches.product_seconds + (steps + made) * rates.step_seconds + moving


def _sums(kernel: Kernel) -> int:
    """Accumulators of each element, of every product as many."""
    return kernel.anchored(JointProducts).products[0].sums


def rows_of(kernel: Kernel) -> int:
    """Rows of the products."""
    joint = kernel.anchored(JointProducts)
    if joint.rows is not None:
        return prod(dim.hint for dim in joint.rows.shape[:-1])
    rows = kernel.inputs[0]
    assert isinstance(rows, TensorType)
    return prod(dim.hint for dim in rows.shape[:-1])


def _depth(kernel: Kernel) -> int:
    """K of the products."""
    product = kernel.anchored(JointProducts).products[0]
    factor = kernel.inputs[product.factors[0]]
    assert isinstance(factor, TensorType)
    return factor.shape[product.contract.rhs.index(product.contract.lhs[-1])].hint


def _anywhere(kernel: Kernel) -> bool:
    return True


def _configs(kernel: Kernel, machine: Machine) -> tuple[Config, ...]:
    return tuple(config for _, config in joint_configs(kernel, machine))


def _seconds(kernel: Kernel, machine: Machine) -> float:
    return joint_configs(kernel, machine)[0][0]


def _cost(kernel: Kernel) -> Work:
    joint, flops, products = kernel.anchored(JointProducts), 0, 0
    made = rows_kernel(kernel)
    units: tuple[str, ...] = ()
    for product, output in zip(joint.products, kernel.outputs, strict=True):
        flops += operations(product.epilogues[0]) * output.numel_hint
        for at in product.factors:
            factor = kernel.inputs[at]
            assert isinstance(factor, TensorType)
            products += 2 * rows_of(kernel) * factor.numel_hint
            units = PRODUCT_UNITS.get(factor.dtype, ())
    flops += 0 if made is None else ROWS.cost(made).flops
    return Work(flops=flops + products, products=products, units=units)


def _same_text(kernel: Kernel) -> object:
    joint, made = kernel.anchored(JointProducts), rows_kernel(kernel)
    own = [
        (it.contract, it.factors, tuple(map(str, it.epilogues)), _layout(it))
        for it in joint.products
    ]
    rows = None if made is None else ROWS.same_text(made)
    return (own, joint.row_inputs, rows, kernel.config)


def _layout(product: JointProduct) -> object:
    """What a text says of a result in halves: all but sizes that calls tell."""
    halves = product.halves
    if halves is None:
        return None
    return (halves.distance, halves.half, halves.inner, halves.outer, halves.rows)


def _describe(kernel: Kernel) -> Description:
    count = len(kernel.anchored(JointProducts).products)
    results = f" of {count} results" if count > 1 else ""
    return Description(what=results, computes=tuple(_computations(kernel)))


def _computations(kernel: Kernel) -> Iterator[str]:
    joint, made = kernel.anchored(JointProducts), rows_kernel(kernel)
    if made is not None:
        yield from ROWS.describe(made).computes
    for product, output in zip(joint.products, kernel.outputs, strict=True):
        parts = " and ".join(map(str, product.epilogues))
        yield f"{output} = {parts}, acc of {product}"


JOINT = Family(
    name="joint",
    nodes=(),
    grow=no_units,
    launch=never_launched,
    why_not=computed,
    configs=_configs,
    cost=_cost,
    same_text=_same_text,
    describe=_describe,
    seconds=_seconds,
    writes_anywhere=_anywhere,
)
