"""Products of few rows in one launch as CUDA text: the rows' program, and a functor a result."""

from dataclasses import dataclass

from kernelwright.codegen.expressions import ExpressionWriter, operand_name
from kernelwright.codegen.families.rows import program_fields
from kernelwright.codegen.families.writer import Writer
from kernelwright.codegen.functor import Functor, camel_case
from kernelwright.codegen.kernel_text import TEMPLATES, KernelText, heading, read_inputs
from kernelwright.codegen.spelling import COMPUTED, STORED, before_storing
from kernelwright.ir.expr import Accumulator, walk
from kernelwright.ir.joint import Halves, JointConfig, JointProduct, JointProducts
from kernelwright.ir.plan import Kernel
from kernelwright.ir.types import DType, TensorType
from kernelwright.schedule.families.joint import extras_of, rows_kernel


@dataclass(frozen=True, slots=True, kw_only=True)
class _Result:
    """One result: its functors, and what its launcher describes."""

    functors: tuple[Functor, ...]
    """For the whole, or for each half."""
    name: str
    out: str
    """C++ type of its elements."""
    extras: tuple[str, ...]
    """C++ types of what joins it."""
    factors: str
    tensors: str
    """The result in its layout, and what joins it."""
    layout: str


def emit(kernel: Kernel) -> KernelText:
    """The text of a kernel that multiplies its rows by several factors."""
    joint = kernel.anchored(JointProducts)
    made = rows_kernel(kernel)
    names = [operand_name(index) for index in range(len(kernel.inputs))]
    results = [_result(kernel, number) for number in range(len(joint.products))]
    section = TEMPLATES.get_template("joint.cu.jinja").render(
        **heading(kernel),
        title=camel_case(kernel.name),
        rows=None if made is None else program_fields(made)[0],
        element=STORED[_element(kernel).dtype],
        row_names=", ".join(names[: joint.row_inputs]),
        results=results,
        sums=joint.products[0].sums,
        arguments=read_inputs(kernel, names, ()),
        settings=kernel.configured(JointConfig),
    )
    return KernelText(section=section, sources=("joint_launch.cuh",), has_workspace=False)


def _element(kernel: Kernel) -> TensorType:
    factor = kernel.inputs[kernel.anchored(JointProducts).products[0].factors[0]]
    assert isinstance(factor, TensorType)
    return factor


def _result(kernel: Kernel, number: int) -> _Result:
    product, output = kernel.anchored(JointProducts).products[number], kernel.outputs[number]
    extras, name = extras_of(product), f"out{number}"
    kinds = [kernel.inputs[at] for at in extras]
    halves = product.halves
    placed = name
    if halves is not None and len(halves.shape) > output.rank:
        placed = f"in_halves({name}, {halves.half})"
    return _Result(
        functors=tuple(
            _functor(kernel, product, number, half) for half in range(len(product.epilogues))
        ),
        name=name,
        out=STORED[output.dtype],
        extras=tuple(STORED[it.dtype] for it in kinds if isinstance(it, TensorType)),
        factors=", ".join(_factor(product, at) for at in product.factors),
        tensors=", ".join((placed, *map(operand_name, extras))),
        layout=f"plain_layout({name})" if halves is None else _layout(halves),
    )


def _layout(halves: Halves) -> str:
    """`JointLayout` of a result in halves: its dimensions counted from the end."""

    def from_end(dim: int | None) -> int:
        return 0 if dim is None else len(halves.shape) - dim

    rows = ", ".join(str(from_end(dim)) for dim in halves.rows)
    dims = (halves.inner, halves.outer, halves.half)
    return f"{{{{{rows}}}, {', '.join(str(from_end(dim)) for dim in dims)}}}"


def _factor(product: JointProduct, at: int) -> str:
    """The input as a factor of (n, k)."""
    name = operand_name(at)
    is_turned = product.contract.rhs[0] == product.contract.lhs[-1]
    return f"permuted({name}, {{1, 0}})" if is_turned else name


def _functor(kernel: Kernel, product: JointProduct, number: int, half: int) -> Functor:
    """The functor of a result or of a half of it, called with the sums and what joins them."""
    epilogue, dtype = product.epilogues[half], kernel.outputs[number].dtype
    writer = ExpressionWriter(kernel.inputs, (epilogue,), operand_name)
    value = before_storing(writer.write(epilogue), dtype)
    used = {str(part) for part in walk(epilogue)}
    computed = COMPUTED[_element(kernel).dtype]
    sums = [str(Accumulator(DType.F32, at)) for at in range(product.sums)]
    named = [f"{computed} {it}" if it in used else computed for it in sums]
    extras = []
    for at in extras_of(product):
        kind = kernel.inputs[at]
        assert isinstance(kind, TensorType)
        extras.append(f"{COMPUTED[kind.dtype]} {operand_name(at)}")
    which = "" if product.halves is None else ("First", "Second")[half]
    return Functor(
        name=f"{camel_case(kernel.name)}{which}Result{number}",
        members=(),
        is_located=False,
        parameters=(*named, *extras),
        result=COMPUTED[dtype],
        statements=tuple(writer.statements),
        value=value.text,
    )


def _factors(kernel: Kernel) -> frozenset[int]:
    products = kernel.anchored(JointProducts).products
    return frozenset(at for product in products for at in product.factors)


JOINT = Writer(emit=emit, early=_factors)
