"""Row programs as CUDA text: what is computed as a struct, and the kernels that run it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace

from kernelwright import kernels
from kernelwright.codegen.expressions import (
    ExpressionWriter,
    Member,
    coordinate_name,
    element_parameters,
    operand_name,
)
from kernelwright.codegen.families.row_facts import are_ones, facts_of, row_program_of, tensors_of
from kernelwright.codegen.families.writer import Writer
from kernelwright.codegen.functor import camel_case
from kernelwright.codegen.kernel_text import TEMPLATES, KernelText, heading, read_inputs
from kernelwright.codegen.spelling import COMPUTED, IS_AT, ROW_QUOTIENT, SHARE, Spelling
from kernelwright.ir.anchors import Extent
from kernelwright.ir.expr import Call, Coordinate, Expr, Operand, Total, has_coordinates, walk
from kernelwright.ir.plan import Kernel
from kernelwright.ir.row_configs import (
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
        f"static constexpr {type(value).__name__} {name.upper()} = {str(value).lower()};"
        for name, value in values.items()
    ]


def emit(kernel: Kernel) -> KernelText:
    """The text of a kernel that computes a row program."""
    whole, kernel = kernel, replace(kernel, inputs=kernel.operands)
    fields, members = program_fields(kernel)
    tensors = [operand_name(index) for index, _ in tensors_of(kernel)]
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
        levels=len(row_program_of(kernel).levels),
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
        "facts": facts_of(kernel),
        "methods": methods,
        "parameters": element_parameters(kernel.inputs, range(len(kernel.inputs))),
        "members": members,
        "pairs": kernel.pairs,
    }
    return fields, members


def _has_slices(kernel: Kernel) -> bool:
    """Whether rows in parts may be finished in slices: elements that are found by address alone."""
    located = any(map(has_coordinates, kernel.expressions))
    return _has_elements(kernel) and not located


def _has_elements(kernel: Kernel) -> bool:
    """Whether each element of a row has a result."""
    return any(result.extent is Extent.ELEMENT for result in row_program_of(kernel).results)


def _combined_levels(kernel: Kernel, way: _Config | None) -> int:
    """Levels of whose parts a kernel of its own makes totals; where there is one at all."""
    is_joined = isinstance(way, ColumnPartRows) and way.joined and _has_elements(kernel)
    return len(row_program_of(kernel).levels) - is_joined


def _names(members: Iterable[Member]) -> str:
    return ", ".join(member.name for member in members)


def _result_names(kernel: Kernel) -> list[str]:
    count = len(kernel.outputs)
    return ["out"] if count == 1 else [f"out{number}" for number in range(count)]


# --- What it computes --------------------------------------------------------------------------


def _takes(kernel: Kernel, writer: ExpressionWriter) -> list[Method]:
    return [
        _method(
            kernel, writer, f"What the {fold.op} takes of an element.", "take", index, fold.value
        )
        for index, fold in enumerate(row_program_of(kernel).folds)
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
        for index, result in enumerate(row_program_of(kernel).results)
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
    if row_program_of(kernel).is_share(call):
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
        or (isinstance(part, Operand) and not all(are_ones(kernel, part.index)))
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
    rank = len(row_program_of(kernel).shape)
    reduced = row_program_of(kernel).dims
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
