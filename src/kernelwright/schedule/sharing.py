"""One kernel for several launches: those that one CUDA text serves, whatever their sizes."""

from dataclasses import replace

from kernelwright.ir.plan import Kernel, Launch
from kernelwright.schedule.families import family_of
from kernelwright.schedule.naming import kernel_name


def shared(launch: Launch, kernels: list[Kernel]) -> Launch:
    """The launch with a named kernel: one of `kernels` if its text serves, or a new one."""
    kernel = launch.kernel
    text = _text(kernel)
    twin = next((other for other in kernels if _text(other) == text), None)
    if twin is None:
        name = kernel_name(kernel.operators, (other.name for other in kernels))
        twin = replace(kernel, name=name)
        kernels.append(twin)
    shared = replace(kernel, name=twin.name, config=twin.config)
    return replace(launch, kernel=shared)


def _text(kernel: Kernel) -> object:
    """Everything that the text of a kernel depends on, but the sizes that it is told."""
    inputs = [
        (type(kind).__name__, getattr(kind, "dtype", None), getattr(kind, "rank", None))
        for kind in kernel.inputs
    ]
    outputs = [(kind.dtype, kind.rank) for kind in kernel.outputs]
    own = family_of(kernel).same_text(kernel)
    return (kernel.family, own, inputs, outputs, kernel.operators)
