"""The CUDA text of a plan: library code in use, then one section for each kernel."""

from jinja2 import Environment, PackageLoader, StrictUndefined

from kernelwright import kernels
from kernelwright.codegen.functor import Functor, Member, functor, operand_name
from kernelwright.codegen.products import product_fields, tuned
from kernelwright.codegen.spelling import HEADERS, STORED
from kernelwright.ir.plan import Kernel, Plan, PointwiseConfig
from kernelwright.ir.types import DType, ScalarType, TensorType
from kernelwright.schedule.cost import cost_of_kernel

TEMPLATES = Environment(
    loader=PackageLoader("kernelwright.codegen", "templates"),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    autoescape=False,
)


def cuda_source(plan: Plan) -> str:
    """Everything that nvcc compiles: no torch header, entry points `launch_<kernel>`."""
    functors = [functor(kernel, tiles(kernel)) for kernel in plan.kernels]
    files = [name for kernel in plan.kernels for name in _sources(kernel)]
    files += sorted({HEADERS[dtype] for dtype in _dtypes(plan) if dtype in HEADERS})
    sections = [_section(kernel, item) for kernel, item in zip(plan.kernels, functors, strict=True)]
    headers, library = kernels.in_use("\n".join(sections), *files, "math.cuh")
    return TEMPLATES.get_template("kernels.cu.jinja").render(
        headers=headers, library=library, sections=sections
    )


def _sources(kernel: Kernel) -> tuple[str, ...]:
    """The files that hold what the kernel's family needs."""
    if isinstance(kernel.config, PointwiseConfig):
        return ("pointwise.cuh",)
    return (*tuned(kernel).sources, "gemm_launch.cuh")


def has_workspace(kernel: Kernel) -> bool:
    """Whether a launch may need device memory for itself: `workspace_<kernel>` says how much."""
    return not isinstance(kernel.config, PointwiseConfig) and tuned(kernel).has_workspace


def tiles(kernel: Kernel) -> int:
    """How many of the kernel's inputs are read as tiles by the anchor."""
    return 2 if kernel.anchor is not None else 0


def _dtypes(plan: Plan) -> set[DType]:
    types = [kind for kernel in plan.kernels for kind in (*kernel.inputs, kernel.output)]
    return {kind.dtype for kind in types if isinstance(kind, TensorType)}


def _section(kernel: Kernel, item: Functor) -> str:
    cost = cost_of_kernel(kernel)
    return TEMPLATES.get_template(f"{kernel.family}.cu.jinja").render(
        name=kernel.name,
        functor=item,
        operators=", ".join(kernel.operators),
        megabytes=f"{cost.bytes / 1e6:,.1f}",
        gigaflops=f"{cost.flops / 1e9:,.3f}",
        config=kernel.config,
        shapes=", ".join(str(kind) for kind in kernel.inputs) + f" -> {kernel.output}",
        types=_types(kernel),
        arguments=_arguments(kernel, item),
        tensors=_tensor_names(kernel),
        **({} if kernel.anchor is None else product_fields(kernel)),
    )


def _types(kernel: Kernel) -> str:
    """Stored types of the result and of the tensors read element by element."""
    read = [kind.dtype for kind in kernel.inputs[tiles(kernel) :] if isinstance(kind, TensorType)]
    return ", ".join(STORED[dtype] for dtype in (kernel.output.dtype, *read))


def _tensor_names(kernel: Kernel) -> list[str]:
    names = ["lhs", "rhs"] if kernel.anchor is not None else []
    first = tiles(kernel)
    names += [
        operand_name(index, first)
        for index, kind in enumerate(kernel.inputs)
        if index >= first and isinstance(kind, TensorType)
    ]
    return names


def _arguments(kernel: Kernel, item: Functor) -> list[str]:
    """Statements that read the launch words in order: inputs, then sizes used as numbers."""
    tensors = iter(_tensor_names(kernel))
    lines = []
    for index, kind in enumerate(kernel.inputs):
        if isinstance(kind, ScalarType):
            wanted = [member for member in item.members if member.source == index]
            lines += _read_scalar(f"word{index}", wanted)
        else:
            lines.append(f"const Tensor {next(tensors)} = arguments.tensor();")
    sizes = dict.fromkeys(m.source for m in item.members if not isinstance(m.source, int))
    for number, size in enumerate(sizes):
        lines += _read_scalar(f"word_size{number}", [m for m in item.members if m.source == size])
    return lines


def _read_scalar(word: str, members: list[Member]) -> list[str]:
    """One word of the launch, which may be used in several types."""
    value = f"arguments.{members[0].reader}()"
    if len(members) == 1:
        return [_read(members[0], value)]
    return [f"const auto {word} = {value};", *(_read(member, word) for member in members)]


def _read(member: Member, value: str) -> str:
    return f"const {member.type} {member.name} = static_cast<{member.type}>({value});"
