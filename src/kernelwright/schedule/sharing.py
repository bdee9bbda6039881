"""One kernel for several launches: those that one CUDA text serves, whatever their sizes."""

from collections.abc import Sequence
from dataclasses import replace

from kernelwright.ir.plan import Kernel, Launch, Step
from kernelwright.machine import Machine
from kernelwright.schedule.families import family_of
from kernelwright.schedule.naming import kernel_name


def with_shared_kernels(steps: Sequence[Step], machine: Machine) -> tuple[Step, ...]:
    """The steps, whose launches with the same text have one named kernel."""
    launches = [step for step in steps if isinstance(step, Launch)]
    groups: list[tuple[object, list[Kernel]]] = []
    for launch in launches:
        text = _text(launch.kernel)
        group = next((kernels for other, kernels in groups if other == text), None)
        if group is None:
            groups.append((text, [launch.kernel]))
        else:
            group.append(launch.kernel)
    named: list[tuple[object, Kernel]] = []
    for text, kernels in groups:
        name = kernel_name(kernels[0].operators, (other.name for _, other in named))
        config = family_of(kernels[0]).config_of_all(kernels, machine)
        named.append((text, replace(kernels[0], name=name, config=config)))
    return tuple(_shared(step, named) if isinstance(step, Launch) else step for step in steps)


def _shared(launch: Launch, named: list[tuple[object, Kernel]]) -> Launch:
    """The launch with the kernel of its text."""
    text = _text(launch.kernel)
    twin = next(kernel for other, kernel in named if other == text)
    return replace(launch, kernel=replace(launch.kernel, name=twin.name, config=twin.config))


def _text(kernel: Kernel) -> object:
    """Everything that the text of a kernel depends on, but the sizes that it is told."""
    inputs = [
        (type(kind).__name__, getattr(kind, "dtype", None), getattr(kind, "rank", None))
        for kind in kernel.inputs
    ]
    outputs = [(kind.dtype, kind.rank) for kind in kernel.outputs]
    own = family_of(kernel).same_text(kernel)
    return (kernel.family, own, inputs, outputs, kernel.operators)
