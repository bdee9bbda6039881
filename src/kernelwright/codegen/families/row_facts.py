"""What row kernels are told of a program: the declarations of row_program.cuh."""

from collections.abc import Iterable
from math import prod

from kernelwright.codegen.spelling import COMPUTED, STORED
from kernelwright.ir.anchors import Extent, Fold, RowProgram, RowResult, untold_sizes
from kernelwright.ir.expr import Call, Expr, Operand, Total, has_coordinates, walk
from kernelwright.ir.kinds import Reduction
from kernelwright.ir.plan import Kernel
from kernelwright.ir.row_configs import RowConfig
from kernelwright.ir.types import DType, TensorType

_FOLDS: dict[Reduction, str] = {
    Reduction.SUM: "SumFold<{}>",
    Reduction.PRODUCT: "ProductFold<{}>",
    Reduction.MAXIMUM: "MaximumFold<{}>",
    Reduction.MINIMUM: "MinimumFold<{}>",
    Reduction.ANY: "AnyFold",
    Reduction.ALL: "AllFold",
    Reduction.ARGMAX: "ArgmaxFold<{}>",
    Reduction.ARGMIN: "ArgminFold<{}>",
    Reduction.MOMENTS: "MomentsFold<{}>",
    Reduction.EXP_SUM: "ExpSumFold<{}>",
}


def facts_of(kernel: Kernel) -> list[str]:
    """The declarations of the program (row_program.cuh)."""
    program = row_program_of(kernel)
    levels = program.levels
    level_of = {fold: level for level, folds in enumerate(levels) for fold in folds}
    by_level = [[program.folds[fold].value for fold in folds] for folds in levels]
    of_elements, of_rows = (
        [result.value for result in program.results if result.extent is extent]
        for extent in (Extent.ELEMENT, Extent.ROW)
    )
    result_reads = [_reads(kernel, (result.value,)) for result in program.results]
    due = [_due(program, result) for result in program.results]
    untold = untold_sizes(program.shape, (*kernel.inputs, *kernel.outputs))
    reads = [_reads(kernel, values) for values in (*by_level, of_elements)]
    sizes = ["-1" if dim is None else str(dim.hint) for dim in untold]
    reduced = [str(at in program.dims).lower() for at in range(len(program.shape))]
    is_element = [str(result.extent is Extent.ELEMENT).lower() for result in program.results]
    located = any(map(has_coordinates, kernel.expressions))
    totals = [COMPUTED[dtype] for fold in program.folds for dtype in fold.totals]
    return [
        f"using Inputs = Pack<{_list(STORED[dtype] for _, dtype in tensors_of(kernel))}>;",
        f"using Results = Pack<{_list(_stored(kernel, out) for out in kernel.outputs)}>;",
        f"using Folds = Pack<{_list(map(_fold_type, program.folds))}>;",
        f"using Totals = Pack<{_list(totals)}>;",
        f"static constexpr int LEVELS = {len(levels)};",
        f"static constexpr int LEVEL_OF[] = "
        f"{{{_list(str(level_of[fold]) for fold in range(len(program.folds)))}}};",
        f"static constexpr unsigned READS[] = {{{_list(reads)}}};",
        f"static constexpr unsigned SHARED = {_shared(kernel)};",
        f"static constexpr unsigned STREAMED = {_streamed(kernel)};",
        f"static constexpr unsigned ALIKE = {_alike(kernel)};",
        f"static constexpr unsigned ONCE = {_once(kernel)};",
        f"static constexpr unsigned LEVELLED = {_levelled(kernel)};",
        f"static constexpr unsigned ROW_READS = {_reads(kernel, of_rows)};",
        f"static constexpr unsigned RESULT_READS[] = {{{_list(result_reads)}}};",
        f"static constexpr int DUE[] = {{{_list(str(level) for level in due)}}};",
        f"static constexpr int TAKES[] = {{{_list(map(str, _takes_results(program)))}}};",
        f"static constexpr bool IS_ELEMENT[] = {{{_list(is_element)}}};",
        f"static constexpr bool LOCATED = {str(located).lower()};",
        f"static constexpr RowShape<{len(sizes)}> SHAPE = "
        f"{{{{{_list(sizes)}}}, {{{_list(reduced)}}}}};",
    ]


def _stored(kernel: Kernel, result: TensorType) -> str:
    """The C++ type of an element of a result in memory."""
    return "Paired" if kernel.pairs else STORED[result.dtype]


def _list(items: Iterable[str]) -> str:
    return ", ".join(items)


def _due(program: RowProgram, result: RowResult) -> int:
    """The level with whose folds a result can be written."""
    if result.extent is Extent.ROW:
        return len(program.levels)
    needed = {part.index for part in walk(result.value) if isinstance(part, Total)}
    first, level = 0, 0
    level_of = {fold: at for at, folds in enumerate(program.levels) for fold in folds}
    for number, fold in enumerate(program.folds):
        if not needed.isdisjoint(range(first, first + len(fold.totals))):
            level = max(level, level_of[number] + 1)
        first += len(fold.totals)
    return level


def _takes_results(program: RowProgram) -> list[int]:
    """For each fold the result that is what it takes of an element, and due with it; or -1."""
    level_of = {fold: at for at, folds in enumerate(program.levels) for fold in folds}
    return [
        next(
            (
                number
                for number, result in enumerate(program.results)
                if result.extent is Extent.ELEMENT
                and _due(program, result) == level_of[at]
                and COMPUTED[result.value.dtype] == COMPUTED[fold.value.dtype]
                and fold.value in (result.value, Call("cast", (result.value,), fold.value.dtype))
            ),
            -1,
        )
        for at, fold in enumerate(program.folds)
    ]


def _fold_type(fold: Fold) -> str:
    return _FOLDS[fold.op].format(COMPUTED[fold.value.dtype])


def _shared(kernel: Kernel) -> str:
    """The tensors that have size 1 along the whole row, as `_reads` writes them."""
    return _bits(all(are_ones(kernel, index)) for index, _ in tensors_of(kernel))


def _streamed(kernel: Kernel) -> str:
    """The tensors that have as many elements along the row as the program has, likewise."""
    ones = [are_ones(kernel, index) for index, _ in tensors_of(kernel)]
    return _bits(
        not any(
            own and not whole
            for own, whole in zip(sizes, row_program_of(kernel).is_short, strict=True)
        )
        and not all(sizes)
        for sizes in ones
    )


def _alike(kernel: Kernel) -> str:
    """The tensors that have size 1 wherever rows differ, likewise."""
    rank = len(row_program_of(kernel).shape)
    kept = [rank - at for at in range(rank) if at not in row_program_of(kernel).dims]
    return _bits(
        bool(kept) and all(at > kind.rank or kind.shape[-at].text == "1" for at in kept)
        for index, _ in tensors_of(kernel)
        if isinstance(kind := kernel.inputs[index], TensorType)
    )


def _once(kernel: Kernel) -> str:
    """The tensors that are loaded to leave the caches first, likewise: the program's size, so that
    each element is one row's."""
    shape = row_program_of(kernel).shape
    if not (isinstance(kernel.config, RowConfig) and kernel.config.streams):
        return "0"
    return _bits(
        kind.numel_hint == prod(size.hint for size in shape)
        for kind in kernel.inputs
        if isinstance(kind, TensorType)
    )


def _levelled(kernel: Kernel) -> str:
    """The tensors that have size 1 along the last dimension in which rows differ, likewise."""
    shape, dims = row_program_of(kernel).shape, row_program_of(kernel).dims
    kept = [at for at, size in enumerate(shape) if at not in dims and size.text != "1"]
    last = len(shape) - kept[-1] if kept else 0
    return _bits(
        bool(kept) and (kind.rank < last or kind.shape[-last].text == "1")
        for index, _ in tensors_of(kernel)
        if isinstance(kind := kernel.inputs[index], TensorType)
    )


def _bits(values: Iterable[bool]) -> str:
    """A mask, the first value in its lowest bit."""
    return "0b" + ("".join("1" if value else "0" for value in values)[::-1] or "0")


def _reads(kernel: Kernel, values: Iterable[Expr]) -> str:
    """The tensors among the operands of the expressions, a bit for each, the first one lowest."""
    used = {part.index for value in values for part in walk(value) if isinstance(part, Operand)}
    return _bits(index in used for index, _ in tensors_of(kernel))


def row_program_of(kernel: Kernel) -> RowProgram:
    return kernel.anchored(RowProgram)


def are_ones(kernel: Kernel, index: int) -> tuple[bool, ...]:
    """For each dimension along the row, whether the size of an input is always 1."""
    return row_program_of(kernel).are_ones(kernel.inputs[index])


def tensors_of(kernel: Kernel) -> list[tuple[int, DType]]:
    """Indices of the inputs that are tensors, and what they hold."""
    return [
        (index, kind.dtype)
        for index, kind in enumerate(kernel.inputs)
        if isinstance(kind, TensorType)
    ]
