"""What the writers of all kernel families share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from jinja2 import Environment, PackageLoader, StrictUndefined

from kernelwright.codegen.expressions import Member
from kernelwright.ir.plan import Kernel, sizes_used
from kernelwright.ir.types import ScalarType
from kernelwright.schedule.cost import cost_of_kernel

TEMPLATES = Environment(
    loader=PackageLoader("kernelwright.codegen", "templates"),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    autoescape=False,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelText:
    """CUDA text of one kernel."""

    section: str
    """Its functor, its kernels and its entry points."""
    sources: tuple[str, ...]
    """Files of kernels/ that it needs."""
    has_workspace: bool
    """Whether a launch may need device memory for itself: `workspace_<kernel>` says how much."""
    asserted: Mapping[str, bool] = field(default_factory=lambda: MappingProxyType({}))
    """Constants of device code whose value the section asserts, by name: what the other value would
    need is left out of the text."""
    absent: frozenset[str] = frozenset()
    """Facts of `kernels.facts` that are false of this kernel."""
    absent_if_new: frozenset[str] = frozenset()
    """Facts that are false of it, too, where its results are new tensors in every launch."""


def heading(kernel: Kernel) -> dict[str, object]:
    """Fields of the comment above a kernel, and its name."""
    cost = cost_of_kernel(kernel)
    inputs = ", ".join(str(kind) for kind in kernel.inputs)
    return {
        "name": kernel.name,
        "operators": ", ".join(kernel.operators),
        "megabytes": f"{cost.bytes / 1e6:,.1f}",
        "gigaflops": f"{cost.flops / 1e9:,.3f}",
        "config": kernel.config,
        "shapes": f"{inputs} -> {', '.join(str(kind) for kind in kernel.outputs)}",
    }


def read_inputs(
    kernel: Kernel, tensor_names: Sequence[str], members: Sequence[Member]
) -> list[str]:
    """Statements that read the launch words after the outputs: inputs, then sizes used as numbers.

    `tensor_names`: what the tensors among the inputs are called, in order; `members`: the run-time
    scalars of the kernel's functor.
    """
    names = iter(tensor_names)
    lines = []
    for index, kind in enumerate(kernel.inputs):
        if isinstance(kind, ScalarType):
            wanted = [member for member in members if member.source == index]
            lines += _read_scalar(f"word{index}", wanted)
        else:
            lines.append(f"const Tensor {next(names)} = arguments.tensor();")
    for number, size in enumerate(sizes_used(kernel)):
        lines += _read_scalar(f"word_size{number}", [m for m in members if m.source == size])
    return lines


def _read_scalar(word: str, members: list[Member]) -> list[str]:
    """One word of the launch, which may be used in several types, or in none."""
    if not members:
        return ["arguments.integer();"]
    value = f"arguments.{members[0].reader}()"
    if len(members) == 1:
        return [_read(members[0], value)]
    return [f"const auto {word} = {value};", *(_read(member, word) for member in members)]


def _read(member: Member, value: str) -> str:
    return f"const {member.type} {member.name} = static_cast<{member.type}>({value});"
