"""Row programs as CUDA text: what is computed as a struct, and the kernels that run it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from math import prod

from kernelwright import kernels
from kernelwright.codegen.expressions import (
    ExpressionWriter,
    Member,
    coordinate_name,
    element_parameters,
    operand_name,
)
from kernelwright.codegen.families.writer import Writer
from kernelwright.codegen.functor import camel_case
from kernelwright.codegen.kernel_text import TEMPLATES, KernelText, heading, read_inputs
from kernelwright.codegen.spelling import COMPUTED, IS_AT, ROW_QUOTIENT, SHARE, STORED, Spelling
from kernelwright.ir.anchors import Extent, Fold, RowProgram, RowResult, untold_sizes
from kernelwright.ir.configs import (
    BlockRows,
    ColumnPartRows,
    ColumnRows,
    GridRows,
    HeldRows,
    PartRows,
    RingRows,
    RowConfig,
    ShortRows,
)
from kernelwright.ir.expr import Call, Coordinate, Expr, Operand, Total, has_coordinates, walk
from kernelwright.ir.kinds import Reduction
from kernelwright.ir.plan import Kernel
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

_CPP = {True: "true", False: "false"}

_PAIRS = "row_paired.cuh"
"""The file for rows that a product reads next."""

_Config = RingRows | PartRows | GridRows | ColumnRows | ShortRows | BlockRows


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """What the program computes of one element: for a fold, or for a result."""

    purpose: str
    name: str
    """`take` or `result`."""
    index: int
    type: str
    """C++ type of the value."""
    totals: str
    """Name of the parameter with the totals, empty where none is used."""
    place: str
    """Name of the parameter with the element's place, empty where none is used."""
    statements: tuple[str, ...]
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """A way to walk rows: a class of parameters, and what its kernels run."""

    purpose: str
    source: str
    family: str
    """`Ring`: parameters are `RingRows`, what launches them is `RingVariant`."""
    function: str
    """What its last kernel runs."""
    fold_function: str | None = None
    """What its kernels before run, one for each level."""
    combine_function: str | None = None
    """What a kernel after each of these runs."""


_TUNED: Mapping[type[_Config], Tuned] = {
    RingRows: Tuned(
        purpose="Rows that fit on chip: read once, written once.",
        source="row_ring.cuh",
        family="Ring",
        function="ring_rows",
    ),
    HeldRows: Tuned(
        purpose="Rows that fit on chip, in registers while the next one comes.",
        source="row_held.cuh",
        family="Held",
        function="held_rows",
    ),
    PartRows: Tuned(
        purpose="Parts of long rows: the results.",
        source="row_parts.cuh",
        family="Part",
        function="finish_parts",
        fold_function="fold_parts",
    ),
    GridRows: Tuned(
        purpose="Rows that all of the card holds: read once, written once.",
        source="row_grid.cuh",
        family="Grid",
        function="grid_rows",
    ),
    ColumnRows: Tuned(
        purpose="Rows side by side: lanes along neighbours.",
        source="row_columns.cuh",
        family="Column",
        function="column_rows",
    ),
    ColumnPartRows: Tuned(
        purpose="Parts of rows side by side: the results.",
        source="row_column_parts.cuh",
        family="ColumnPart",
        function="finish_column_parts",
        fold_function="fold_column_parts",
        combine_function="combine_column_parts",
    ),
    ShortRows: Tuned(
        purpose="Rows in registers, of some lanes of a warp or of a block.",
        source="row_short.cuh",
        family="Short",
        function="short_rows",
    ),
    BlockRows: Tuned(
        purpose="A block for each row, of one run of memory or of short ones.",
        source="row_block.cuh",
        family="Block",
        function="block_rows",
    ),
}


def _constants(config: _Config) -> list[str]:
    """The members of the config struct: what the config has, and the threads of a block."""
    values = {field.name: getattr(config, field.name) for field in fields(config)}
    if isinstance(config, ColumnRows):
        values["threads"] = config.lanes * config.split
    if isinstance(config, GridRows):
        values |= {"threads": config.threads, "resident": 1}
    return [
        f"static constexpr bool {name.upper()} = {_CPP[value]};"
        if isinstance(value, bool)
        else f"static constexpr int {name.upper()} = {value};"
        for name, value in values.items()
    ]


def emit(kernel: Kernel) -> KernelText:
    """The text of a kernel that computes a row program."""
    whole, kernel = kernel, replace(kernel, inputs=kernel.operands)
    fields, members = program_fields(kernel)
    tensors = [operand_name(index) for index, _ in _tensors(kernel)]
    config = kernel.configured(RowConfig)
    way = config.tuned
    tuned = None if way is None else _TUNED[type(way)]
    section = TEMPLATES.get_template("rows.cu.jinja").render(
        **heading(whole),
        **fields,
        results=_result_names(kernel),
        tensors=tensors,
        arguments=read_inputs(whole, [*tensors, *["moments"] * whole.moments], members),
        moments=whole.moments,
        levels=len(_program(kernel).levels),
        combined=_combined_levels(kernel, way),
        scalars=_names(members),
        multiprocessors=config.multiprocessors,
        tuned=tuned,
        slices=isinstance(way, PartRows) and _has_slices(kernel),
        constants=[] if way is None else _constants(way),
    )
    own = () if tuned is None else (tuned.source,)
    pairs = (_PAIRS,) if kernel.pairs else ()
    return KernelText(
        section=section,
        sources=(*pairs, "row_any.cuh", *own, "row_launch.cuh"),
        has_workspace=True,
        absent=frozenset(kernels.facts(*pairs) if pairs else ()) - {"ANY_PAIRED"},
    )


def program_fields(kernel: Kernel) -> tuple[dict[str, object], tuple[Member, ...]]:
    """Fields of the template of a row program, and its run-time scalars."""
    writer = ExpressionWriter(
        kernel.inputs, kernel.expressions, operand_name, lambda call: _spelling(kernel, call)
    )
    methods = [*_takes(kernel, writer), *_results(kernel, writer)]
    members = tuple(writer.members.values())
    fields: dict[str, object] = {
        "program": camel_case(kernel.name),
        "facts": _facts(kernel),
        "methods": methods,
        "parameters": element_parameters(kernel.inputs, range(len(kernel.inputs))),
        "members": members,
        "pairs": kernel.pairs,
    }
    return fields, members


def _program(kernel: Kernel) -> RowProgram:
    return kernel.anchored(RowProgram)


def _are_ones(kernel: Kernel, index: int) -> tuple[bool, ...]:
    """For each dimension along the row, whether the size of an input is always 1."""
    return _program(kernel).are_ones(kernel.inputs[index])


def _has_slices(kernel: Kernel) -> bool:
    """Whether rows in parts may be finished in slices: elements that are found by address alone."""
    located = any(map(has_coordinates, kernel.expressions))
    return _has_elements(kernel) and not located


def _has_elements(kernel: Kernel) -> bool:
    """Whether each element of a row has a result."""
    return any(result.extent is Extent.ELEMENT for result in _program(kernel).results)


def _combined_levels(kernel: Kernel, way: _Config | None) -> int:
    """Levels of whose parts a kernel of its own makes totals; where there is one at all."""
    is_joined = isinstance(way, ColumnPartRows) and way.joined and _has_elements(kernel)
    return len(_program(kernel).levels) - is_joined


def _names(members: Iterable[Member]) -> str:
    return ", ".join(member.name for member in members)


def _result_names(kernel: Kernel) -> list[str]:
    count = len(kernel.outputs)
    return ["out"] if count == 1 else [f"out{number}" for number in range(count)]


def _tensors(kernel: Kernel) -> list[tuple[int, DType]]:
    """Indices of the inputs that are tensors, and what they hold."""
    return [
        (index, kind.dtype)
        for index, kind in enumerate(kernel.inputs)
        if isinstance(kind, TensorType)
    ]


# --- What the kernels need to know of the program ----------------------------------------------


def _facts(kernel: Kernel) -> list[str]:
    """The declarations of the program (row_program.cuh)."""
    program = _program(kernel)
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
    reduced = [_CPP[at in program.dims] for at in range(len(program.shape))]
    is_element = [_CPP[result.extent is Extent.ELEMENT] for result in program.results]
    located = any(map(has_coordinates, kernel.expressions))
    totals = [COMPUTED[dtype] for fold in program.folds for dtype in fold.totals]
    return [
        f"using Inputs = Pack<{_list(STORED[dtype] for _, dtype in _tensors(kernel))}>;",
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
        f"static constexpr bool LOCATED = {_CPP[located]};",
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
    return _bits(all(_are_ones(kernel, index)) for index, _ in _tensors(kernel))


def _streamed(kernel: Kernel) -> str:
    """The tensors that have as many elements along the row as the program has, likewise."""
    ones = [_are_ones(kernel, index) for index, _ in _tensors(kernel)]
    return _bits(
        not any(
            own and not whole for own, whole in zip(sizes, _program(kernel).is_short, strict=True)
        )
        and not all(sizes)
        for sizes in ones
    )


def _alike(kernel: Kernel) -> str:
    """The tensors that have size 1 wherever rows differ, likewise."""
    rank = len(_program(kernel).shape)
    kept = [rank - at for at in range(rank) if at not in _program(kernel).dims]
    return _bits(
        bool(kept) and all(at > kind.rank or kind.shape[-at].text == "1" for at in kept)
        for index, _ in _tensors(kernel)
        if isinstance(kind := kernel.inputs[index], TensorType)
    )


def _once(kernel: Kernel) -> str:
    """The tensors that are loaded to leave the caches first, likewise: the program's size, so that
    each element is one row's."""
    shape = _program(kernel).shape
    if not (isinstance(kernel.config, RowConfig) and kernel.config.streams):
        return "0"
    return _bits(
        kind.numel_hint == prod(size.hint for size in shape)
        for kind in kernel.inputs
        if isinstance(kind, TensorType)
    )


def _levelled(kernel: Kernel) -> str:
    """The tensors that have size 1 along the last dimension in which rows differ, likewise."""
    shape, dims = _program(kernel).shape, _program(kernel).dims
    kept = [at for at, size in enumerate(shape) if at not in dims and size.text != "1"]
    last = len(shape) - kept[-1] if kept else 0
    return _bits(
        bool(kept) and (kind.rank < last or kind.shape[-last].text == "1")
        for index, _ in _tensors(kernel)
        if isinstance(kind := kernel.inputs[index], TensorType)
    )


def _bits(values: Iterable[bool]) -> str:
    """A mask, the first value in its lowest bit."""
    return "0b" + ("".join("1" if value else "0" for value in values)[::-1] or "0")


def _reads(kernel: Kernel, values: Iterable[Expr]) -> str:
    """The tensors among the operands of the expressions, a bit for each, the first one lowest."""
    used = {part.index for value in values for part in walk(value) if isinstance(part, Operand)}
    return _bits(index in used for index, _ in _tensors(kernel))


# --- What it computes --------------------------------------------------------------------------


def _takes(kernel: Kernel, writer: ExpressionWriter) -> list[Method]:
    return [
        _method(
            kernel, writer, f"What the {fold.op} takes of an element.", "take", index, fold.value
        )
        for index, fold in enumerate(_program(kernel).folds)
    ]


def _results(kernel: Kernel, writer: ExpressionWriter) -> list[Method]:
    names = _result_names(kernel)
    return [
        _method(
            kernel,
            writer,
            f"Of `{names[index]}`, by {result.extent}.",
            "result",
            index,
            result.value,
        )
        for index, result in enumerate(_program(kernel).results)
    ]


def _spelling(kernel: Kernel, call: Call) -> Spelling | None:
    """How a call is written whose operand all elements of a row share; None for as usual."""
    return IS_AT if _asks_for_place(kernel, call) else _division(kernel, call)


def _asks_for_place(kernel: Kernel, value: Expr) -> bool:
    """Whether this compares where an element stands in its row with what is the same for all."""
    match value:
        case Call("eq", (Coordinate(dim), other), _):
            return _coordinate(kernel, dim) == "place.place" and not _differs(kernel, other)
    return False


def _division(kernel: Kernel, call: Call) -> Spelling | None:
    """How an element is divided by a total, or what is made of totals; None for other calls."""
    if call.op != "div" or COMPUTED[call.dtype] != "float":
        return None
    element, divisor = call.args
    if _program(kernel).is_share(call):
        return SHARE
    by_row = any(isinstance(part, Total) for part in walk(divisor)) and not _varies(divisor)
    return ROW_QUOTIENT if by_row and _varies(element) else None


def _varies(value: Expr) -> bool:
    """Whether it may differ within a row."""
    return any(isinstance(part, Operand | Coordinate) for part in walk(value))


def _differs(kernel: Kernel, value: Expr) -> bool:
    """Whether it may differ within a row, as `_varies` has it but for inputs with one element."""
    return any(
        isinstance(part, Coordinate)
        or (isinstance(part, Operand) and not all(_are_ones(kernel, part.index)))
        for part in walk(value)
    )


def _coordinates(kernel: Kernel, value: Expr) -> set[int]:
    """The dimensions whose coordinate has to have a name."""
    match value:
        case Coordinate(dim):
            return {dim}
        case Call(_, args, _):
            named = args[1:] if _asks_for_place(kernel, value) else args
            return {dim for arg in named for dim in _coordinates(kernel, arg)}
    return set()


def _coordinate(kernel: Kernel, dim: int) -> str:
    """Where an element stands along a dimension, counted from the end."""
    rank = len(_program(kernel).shape)
    reduced = _program(kernel).dims
    kept = tuple(at for at in range(rank) if at not in reduced)
    for dims, name in ((reduced, "place"), (kept, "row")):
        if dims == (rank + dim,):
            return f"place.{name}"
    return f"place.coordinate({-dim})"


def _method(
    kernel: Kernel, writer: ExpressionWriter, purpose: str, name: str, index: int, value: Expr
) -> Method:
    writer.start_scope()
    text = writer.write(value).text
    totals = {part.index: part for part in walk(value) if isinstance(part, Total)}
    places = _coordinates(kernel, value)
    return Method(
        purpose=purpose,
        name=name,
        index=index,
        type=COMPUTED[value.dtype],
        totals=" totals" if totals else "",
        place=" place" if has_coordinates(value) else "",
        statements=(
            *(
                f"const {COMPUTED[total.dtype]} {total} = get<{total.index}>(totals);"
                for _, total in sorted(totals.items())
            ),
            *(
                f"const int64_t {coordinate_name(dim)} = {_coordinate(kernel, dim)};"
                for dim in sorted(places)
            ),
            *writer.statements,
        ),
        value=text,
    )


ROWS = Writer(emit=emit)
