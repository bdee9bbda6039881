"""Moments of the columns of a result for the norm that reads it: the kernel that makes the result
has it in registers, and what the norm's first kernel would read it for is known when it is done.

So it is for products, such as convolutions by place, and for depthwise convolutions of channels
that are last, before a batch norm in training whose maps are small: more rows have more parts than
are worth reading again. A norm of what several kernels write side by side has its own first kernel:
in dense blocks moments side by side were no faster (docs/measured/launches.md).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kernelwright.ir.graph import Graph
from kernelwright.ir.naming import fresh_name
from kernelwright.ir.plan import Launch, Plan, Step
from kernelwright.ir.types import TensorType
from kernelwright.schedule.families.rows import ROWS
from kernelwright.schedule.moment_makers import moments_of, most_parts, normalised


def with_column_moments(
    graph: Graph, steps: Sequence[Step], wanted: frozenset[str] | None = None
) -> list[Step]:
    """The steps, in which the norms in `wanted` begin with moments of what they read; None: those
    of so few parts that this is faster."""
    taken = {node.name for node in graph.nodes}
    makers = {step.result: step.kernel for step in steps if isinstance(step, Launch)}
    made: dict[str, tuple[str, TensorType]] = {}
    read: dict[str, tuple[str, TensorType]] = {}
    for step in steps:
        if not isinstance(step, Launch) or (at := normalised(step.kernel)) is None:
            continue
        source = step.inputs[at]
        kind = moments_of(makers[source]) if source in makers else None
        if kind is None:
            continue
        is_faster = kind.shape[0].hint <= most_parts(step.kernel)
        if is_faster if wanted is None else step.result in wanted:
            if source not in made:
                made[source] = (fresh_name(f"{source}_moments", taken), kind)
            read[step.result] = made[source]
    return [_with_moments(step, made, read) for step in steps]


def _with_moments(
    step: Step,
    made: Mapping[str, tuple[str, TensorType]],
    read: Mapping[str, tuple[str, TensorType]],
) -> Step:
    """A step that makes moments, or reads them: their names and types, by its first result."""
    if not isinstance(step, Launch):
        return step
    kernel = step.kernel
    if step.result in made:
        name, kind = made[step.result]
        kernel = replace(kernel, moments=True, outputs=(*kernel.outputs, kind))
        return replace(step, kernel=kernel, results=(*step.results, name))
    if step.result in read:
        name, kind = read[step.result]
        kernel = replace(kernel, moments=True, inputs=(*kernel.inputs, kind))
        return replace(step, kernel=kernel, inputs=(*step.inputs, name))
    return step


def having_moments(plan: Plan) -> frozenset[str]:
    """The norms that begin with moments of what they read, by their first results."""
    launches = (step for step in plan.steps if isinstance(step, Launch))
    return frozenset(
        it.result for it in launches if it.kernel.moments and it.kernel.family == ROWS.name
    )


def with_parts_of_configs(steps: Sequence[Step]) -> tuple[Step, ...]:
    """The steps whose kernels have other configurations than they were planned with, and with that
    perhaps moments in other parts."""
    kinds: dict[str, TensorType] = {}
    changed: list[Step] = []
    for step in steps:
        if isinstance(step, Launch) and step.kernel.moments:
            kernel = step.kernel
            if kernel.makes_moments:
                results = kernel.outputs[:-1]
                kind = moments_of(replace(kernel, moments=False, outputs=results))
                assert kind is not None, "the configuration makes moments"
                kinds[step.results[-1]] = kind
                kernel = replace(kernel, outputs=(*results, kind))
            elif step.inputs[-1] in kinds:
                inputs = (*kernel.inputs[:-1], kinds[step.inputs[-1]])
                kernel = replace(kernel, inputs=inputs)
            step = replace(step, kernel=kernel)
        changed.append(step)
    return tuple(changed)
