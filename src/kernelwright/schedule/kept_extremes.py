"""Products of which only the largest or the smallest result of each row is read: their kernels keep
these, and the results themselves are never written."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from kernelwright.ir.graph import Graph
from kernelwright.ir.kinds import Reduction
from kernelwright.ir.plan import Kernel, Launch, Step, reads
from kernelwright.machine import Machine
from kernelwright.schedule.cost import cost_of_kernel
from kernelwright.schedule.families import family_of
from kernelwright.schedule.naming import merge_operators


def with_kept_extremes(graph: Graph, steps: Sequence[Step], machine: Machine) -> list[Step]:
    """The steps with one launch for a product and the extremes of its rows, where the model has it
    faster."""
    readers = Counter(name for step in steps for name in reads(step))
    readers.update(graph.results)
    products = {
        step.result: step
        for step in steps
        if isinstance(step, Launch)
        and family_of(step.kernel).keeps_extremes(step.kernel)
        and readers[step.result] == 1
    }
    joined: dict[str, Launch] = {}
    gone: set[str] = set()
    for step in steps:
        if not isinstance(step, Launch) or not step.inputs:
            continue
        product = products.get(step.inputs[0])
        kept = family_of(step.kernel).extreme_of_rows(step.kernel)
        if product is None or kept is None:
            continue
        one = _joined(product.kernel, step.kernel, kept, machine)
        if one is not None:
            # In the product's place: what it reads may change after it.
            joined[product.result] = replace(step, kernel=one, inputs=product.inputs)
            gone.add(step.result)
    return [joined.get(step.result, step) for step in steps if step.result not in gone]


def _joined(first: Kernel, second: Kernel, kept: Reduction, machine: Machine) -> Kernel | None:
    """One kernel for both, where there is one and it is modelled faster."""
    kernel = replace(
        first,
        outputs=second.outputs,
        operators=merge_operators(first.operators, second.operators),
        sources=tuple(dict.fromkeys((*first.sources, *second.sources))),
        kept=kept,
    )
    family = family_of(kernel)
    configs = family.configs(kernel, machine)
    if not configs:
        return None
    reading = cost_of_kernel(second).bytes / machine.read_bandwidth + machine.launches.next_seconds
    apart = family.seconds(first, machine)
    together = family.seconds(kernel, machine)
    if apart is None or together is None or together >= apart + reading:
        return None
    return replace(kernel, config=configs[0])
