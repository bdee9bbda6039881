"""Products of few rows in one launch as CUDA text: the rows' program, and a functor a result."""

from dataclasses import dataclass

from kernelwright.codegen.expressions import ExpressionWriter, operand_name
from kernelwright.codegen.families.rows import program_fields
from kernelwright.codegen.families.writer import Writer
from kernelwright.codegen.functor import Functor, camel_case
from kernelwright.codegen.kernel_text import TEMPLATES, KernelText, heading, read_inputs
from kernelwright.codegen.spelling import COMPUTED, STORED, Written, before_storing
from kernelwright.ir.joint import JointConfig, JointProduct, JointProducts
from kernelwright.ir.plan import Kernel
from kernelwright.ir.types import TensorType
from kernelwright.schedule.families.joint import extras_of, rows_kernel


@dataclass(frozen=True, slots=True, kw_only=True)
class _Result:
    """One result: its functor, and what its launcher describes."""

    functor: Functor
    types: str
    """Template arguments after the number of factors and the functor: of what joins it."""
    out_type: str
    out: str
    factors: str
    joining: str


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
        factors=len(joint.products[0].factors),
        arguments=read_inputs(kernel, names, ()),
        settings=kernel.configured(JointConfig),
    )
    return KernelText(section=section, sources=("joint_products.cuh",), has_workspace=False)


def _element(kernel: Kernel) -> TensorType:
    factor = kernel.inputs[kernel.anchored(JointProducts).products[0].factors[0]]
    assert isinstance(factor, TensorType)
    return factor


def _result(kernel: Kernel, number: int) -> _Result:
    product = kernel.anchored(JointProducts).products[number]
    extras = extras_of(product)
    joining = ", ".join(operand_name(at) for at in extras)
    kinds = [kernel.inputs[at] for at in extras]
    types = [STORED[it.dtype] for it in kinds if isinstance(it, TensorType)]
    return _Result(
        functor=_functor(kernel, product, number),
        types="".join(f", {it}" for it in types),
        out_type=STORED[kernel.outputs[number].dtype],
        out=f"out{number}",
        factors=", ".join(_factor(product, at) for at in product.factors),
        joining="".join(f", {it}" for it in joining.split(", ") if it),
    )


def _factor(product: JointProduct, at: int) -> str:
    """The input as a factor of (n, k)."""
    name = operand_name(at)
    is_turned = product.contract.rhs[0] == product.contract.lhs[-1]
    return f"turned({name})" if is_turned else name


def _functor(kernel: Kernel, product: JointProduct, number: int) -> Functor:
    """The result's functor, called with its sums and what joins them."""
    writer = ExpressionWriter(kernel.inputs, (product.epilogue,), operand_name)
    value = before_storing(writer.write(product.epilogue), kernel.outputs[number].dtype)
    computed = COMPUTED[_element(kernel).dtype]
    sums = [f"{computed} acc{at or ''}" for at in range(len(product.factors))]
    extras = []
    for at in extras_of(product):
        kind = kernel.inputs[at]
        assert isinstance(kind, TensorType)
        extras.append(f"{COMPUTED[kind.dtype]} {operand_name(at)}")
    return Functor(
        name=f"{camel_case(kernel.name)}Result{number}",
        members=(),
        is_located=False,
        parameters=(*sums, *extras),
        result=COMPUTED[kernel.outputs[number].dtype],
        statements=tuple(writer.statements),
        value=Written(value.text).text,
    )


JOINT = Writer(emit=emit)
