"""One kernel for several launches: those that one CUDA text serves, whatever their sizes."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from kernelwright.ir.plan import Kernel, Launch, Step
from kernelwright.schedule.families import family_of
from kernelwright.schedule.naming import kernel_name


def with_shared_kernels(steps: Iterable[Step]) -> Iterator[Step]:
    """The steps with named kernels: a launch has the first whose text serves it, or a new one."""
    # Kernels with what their text depends on, which takes as long as making them.
    known: list[tuple[object, Kernel]] = []
    for step in steps:
        yield _shared(step, known) if isinstance(step, Launch) else step


def _shared(launch: Launch, known: list[tuple[object, Kernel]]) -> Launch:
    kernel = launch.kernel
    text = _text(kernel)
    twin = next((other for own, other in known if own == text), None)
    if twin is None:
        name = kernel_name(kernel.operators, (other.name for _, other in known))
        twin = replace(kernel, name=name)
        known.append((text, twin))
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
