"""The CUDA text of a plan: library code in use, then one section for each kernel."""

from jinja2 import Environment, PackageLoader, StrictUndefined

from kernelwright import kernels
from kernelwright.codegen.functor import Functor, Member, functor, operand_name
from kernelwright.codegen.spelling import HEADERS, STORED
from kernelwright.ir.plan import (
    GemmConfig,
    Kernel,
    Plan,
    PointwiseConfig,
    TensorCoreConfig,
)
from kernelwright.ir.types import DType, ScalarType, TensorType
from kernelwright.schedule.cost import cost_of_kernel
from kernelwright.schedule.roles import Major, Roles, roles

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
    match kernel.config:
        case PointwiseConfig():
            return ("pointwise.cuh",)
        case GemmConfig():
            return ("gemm_simt.cuh", "gemm_launch.cuh")
        case TensorCoreConfig():
            instructions = _INSTRUCTION_SOURCES[_factor(kernel).dtype]
            return (instructions, "gemm_sm90_launch.cuh", "gemm_launch.cuh")


def _factor(kernel: Kernel) -> TensorType:
    """The type of a factor of the kernel's product; both have the same elements."""
    factor = kernel.inputs[0]
    assert isinstance(factor, TensorType)
    return factor


def has_workspace(kernel: Kernel) -> bool:
    """Whether a launch may need device memory for itself: `workspace_<kernel>` says how much."""
    return isinstance(kernel.config, TensorCoreConfig)


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
        **_family_fields(kernel),
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


def _family_fields(kernel: Kernel) -> dict[str, object]:
    """What the family's template needs besides the common fields."""
    config = kernel.config
    if isinstance(config, PointwiseConfig):
        return {}
    assert kernel.anchor is not None
    found = roles(kernel.anchor)
    assert isinstance(found, Roles)
    factor = _factor(kernel)
    majors = {"lhs_major": found.left_major, "rhs_major": found.right_major}
    fields = {"factor": STORED[factor.dtype], "small": SMALL_TILE}
    match config:
        case GemmConfig():
            return {**fields, **majors, "general": SMALL_TILE, "instruction": None}
        case TensorCoreConfig(block_n=columns):
            # What splits the factors writes the planes as they are asked for.
            either = {key: Major.K for key, major in majors.items() if major is Major.NONE}
            instruction = f"Wgmma{columns}{_INSTRUCTIONS[factor.dtype]}"
            tiles = {"general": FINISHING_TILE, "instruction": instruction}
            return {**fields, **majors, **either, **tiles}


_INSTRUCTIONS = {DType.F32: "F16", DType.F16: "F16", DType.BF16: "Bf16"}
"""Type of the numbers that the tensor cores multiply, by that of the factors."""
_INSTRUCTION_SOURCES = {dtype: f"wgmma_{name.lower()}.cuh" for dtype, name in _INSTRUCTIONS.items()}
SMALL_TILE = GemmConfig(block_m=32, block_n=64, block_k=16, thread_m=4, thread_n=4, stages=3)
"""For products that would leave multiprocessors idle, and for general strides."""
FINISHING_TILE = GemmConfig(block_m=64, block_n=64, block_k=16, thread_m=8, thread_n=4, stages=3)
"""The same after a tensor-core kernel: it needs registers for what it finds there, too."""
