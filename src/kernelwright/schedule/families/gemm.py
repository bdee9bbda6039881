"""Matrix products, with what becomes of each element of their results."""

from collections.abc import Sequence
from dataclasses import replace

from kernelwright.ir.anchors import Triangle
from kernelwright.ir.configs import Config
from kernelwright.ir.expr import Accumulator
from kernelwright.ir.graph import Graph, Node
from kernelwright.ir.kinds import Contract, Reduction
from kernelwright.ir.plan import Kernel, Launch
from kernelwright.ir.product_configs import Feed, GemmConfig, TensorCoreConfig
from kernelwright.ir.sizes import ONE, pieces, product
from kernelwright.ir.types import Dim, DType, TensorType, ValueType
from kernelwright.machine import Machine
from kernelwright.schedule.element_groups import ElementGroup, inputs_and_expression
from kernelwright.schedule.families.elements import grow_elements, is_located, work_of
from kernelwright.schedule.families.family import MOMENT_COLUMNS, Description, Family, Work
from kernelwright.schedule.gemm_configs import ranked_products
from kernelwright.schedule.gemm_work import PRODUCT_UNITS, contraction_flops, kept_share
from kernelwright.schedule.launches import labels, launched
from kernelwright.schedule.legality import Library
from kernelwright.schedule.product_or_library import why_no_product, why_the_library
from kernelwright.schedule.product_shape import product_shape
from kernelwright.schedule.roles import Roles, roles
from kernelwright.schedule.triangles import kept_triangle


def _launch(group: ElementGroup, graph: Graph, machine: Machine) -> Launch:
    inputs, expression = inputs_and_expression(group, graph)
    assert group.anchor is not None and isinstance(group.anchor.kind, Contract)
    types = tuple(node.type for node in inputs)
    triangle = kept_triangle(expression)
    output = group.root.tensor
    kernel = Kernel(
        family=GEMM.name,
        anchor=group.anchor.kind,
        inputs=types,
        epilogue=expression,
        outputs=(output,),
        config=_ranked(group.anchor.kind, types, output, machine, triangle)[0][1],
        triangle=triangle,
        **labels(group.in_order(graph)),
    )
    return launched(kernel, [group.root], inputs)


def together(kernels: Sequence[Kernel], machine: Machine) -> Kernel | None:
    """The kernel of products of one left factor that are alike; None where no configuration has
    several."""
    first = kernels[0]
    others = (kind for kernel in kernels[1:] for kind in kernel.inputs[1:])
    sources = (source for kernel in kernels for source in kernel.sources)
    joined = replace(
        first,
        inputs=(*first.inputs, *others),
        outputs=tuple(kernel.output for kernel in kernels),
        together=len(kernels),
        sources=tuple(dict.fromkeys(sources)),
    )
    ranked = _ranked_for(joined, machine)
    return replace(joined, config=ranked[0][1]) if ranked else None


def _ranked(
    anchor: Contract,
    inputs: tuple[ValueType, ...],
    output: TensorType,
    machine: Machine,
    triangle: Triangle | None,
    count: int = 1,
    kept: Reduction | None = None,
    *,
    pairs: bool = False,
) -> tuple[tuple[float, Config], ...]:
    """Configurations with their modelled seconds, best first."""
    widest = max(it.dtype.itemsize for it in (output, *inputs) if isinstance(it, TensorType))
    shape = product_shape(anchor, inputs, output, triangle, kept).together(count)
    ranked = ranked_products(replace(shape, pairs=pairs), widest, machine)
    if pairs:
        return tuple(entry for entry in ranked if _takes_pairs(entry[1]))
    if kept is not None:
        return tuple(entry for entry in ranked if _keeps_rows(entry[1]))
    if anchor.patches is None or anchor.patches.are_pixels:
        return ranked
    return tuple(entry for entry in ranked if _takes_patches(entry[1]))


def _takes_several(config: Config, factor: DType) -> bool:
    """Whether the variant has several products of one left factor in a launch."""
    if not isinstance(config, TensorCoreConfig) or config.transposed:
        return False
    feeds = (Feed.SPLIT,) if factor is DType.F32 else (Feed.DIRECT, Feed.TURNS)
    return config.feed in feeds


def _keeps_rows(config: Config) -> bool:
    """Whether the variant reduces rows where it has their sums."""
    return isinstance(config, TensorCoreConfig) and config.feed.is_direct and not config.transposed


def _takes_pairs(config: Config) -> bool:
    """Whether the variant reads the left factor in pairs."""
    return isinstance(config, TensorCoreConfig) and config.feed is Feed.PAIRED


_PART_ROWS = 64
"""`PART_MOMENT_ROWS`."""


def _makes_moments(config: Config) -> bool:
    """Whether the variant makes moments of columns: where it stores rows of the result, or adds
    slices of K."""
    if not isinstance(config, TensorCoreConfig) or config.transposed:
        return False
    return config.feed in (Feed.DIRECT, Feed.TURNS)


def _moment_parts(kernel: Kernel) -> Dim | None:
    """The parts of a product of float32 in TF32 whose results are its sums."""
    if not kernel.is_whole or kernel.together > 1 or kernel.pairs:
        return None
    if not _makes_moments(kernel.config):
        return None
    contract, output = kernel.anchored(Contract), kernel.output
    found = roles(contract)
    assert isinstance(found, Roles), "it has been scheduled as a product"
    columns = output.shape[-1]
    may = (
        contract.may_round
        and kernel.epilogue == Accumulator(DType.F32)
        and output.dtype is DType.F32
        and len(kernel.inputs) == 2
        and not found.swapped
        and found.batch + found.m + found.n == contract.out
        and columns.is_static
        and columns.hint % MOMENT_COLUMNS == 0
    )
    return pieces(product(output.shape[:-1]), _PART_ROWS) if may else None


def _takes_patches(config: Config) -> bool:
    """Whether the variant brings them to where it multiplies."""
    return _keeps_rows(config)


def _why_not(node: Node, graph: Graph, machine: Machine, library: Library) -> str | None:
    assert isinstance(node.kind, Contract)
    if node.kind.patches is not None:
        # Who computes a convolution was decided before it was one by place.
        return None
    reason = why_no_product(node, graph)
    if reason is None and library is Library.WHERE_FASTER:
        return why_the_library(node, graph, machine)
    return reason


def _configs(kernel: Kernel, machine: Machine) -> tuple[Config, ...]:
    return tuple(config for _, config in _ranked_for(kernel, machine))


def _seconds(kernel: Kernel, machine: Machine) -> float:
    return _ranked_for(kernel, machine)[0][0]


def _ranked_for(kernel: Kernel, machine: Machine) -> tuple[tuple[float, Config], ...]:
    anchor, one = kernel.anchored(Contract), kernel.one_product
    ranked = _ranked(
        anchor,
        one.inputs,
        one.output,
        machine,
        kernel.triangle,
        kernel.together,
        kernel.kept,
        pairs=kernel.pairs,
    )
    if kernel.moments:
        return tuple(entry for entry in ranked if _makes_moments(entry[1]))
    if kernel.together == 1:
        return ranked
    factor = one.inputs[0]
    assert isinstance(factor, TensorType)
    return tuple(entry for entry in ranked if _takes_several(entry[1], factor.dtype))


def _cost(kernel: Kernel) -> Work:
    factor, anchor = kernel.inputs[0], kernel.anchored(Contract)
    assert isinstance(factor, TensorType)
    output, count = kernel.outputs[0], kernel.together
    products = count * round(
        contraction_flops(anchor, kernel.inputs, output) * kept_share(kernel.triangle, output)
    )
    results = output.numel_hint
    if kernel.kept is not None:
        results *= product_shape(anchor, kernel.inputs, output).n
    return Work(
        flops=work_of(kernel) * count * results + products,
        products=products,
        # As convolutions have it (conv.py).
        units=("fp16", "tf32") if anchor.may_round else PRODUCT_UNITS.get(factor.dtype, ()),
    )


def _same_text(kernel: Kernel) -> object:
    # How a product is multiplied matters; only on the CUDA cores is one tile as good as another.
    way = None if isinstance(kernel.config, GemmConfig) else kernel.config
    own = (kernel.together, kernel.kept, kernel.pairs, kernel.moments)
    return (str(kernel.epilogue), kernel.anchor, way, own)


def _describe(kernel: Kernel) -> Description:
    kept = f", {kernel.triangle}" if kernel.triangle else ""
    each = f", {kernel.together} of one left factor" if kernel.together > 1 else ""
    of_rows = f"{kernel.kept} of each row of " if kernel.kept else ""
    return Description(
        what=f" {kernel.anchor}{kept}{each}",
        computes=(f"{kernel.outputs[0]} = {of_rows}{kernel.epilogue}",),
    )


def _apart(first: Kernel, second: Kernel) -> str:
    return "a product reads its operands many times, so they are computed once before it"


def _at_any_size(config: Config) -> Config:
    if isinstance(config, GemmConfig):
        return replace(config, min_tiles=2)
    if isinstance(config, TensorCoreConfig):
        return replace(config, min_products=0, least_ahead=0)
    return config


def _wants_whole_rows(config: Config) -> bool:
    return isinstance(config, TensorCoreConfig) and config.feed not in (Feed.SPLIT, Feed.PAIRED)


def _writes_anywhere(kernel: Kernel) -> bool:
    """Whether rows may lie apart, as those of a part of a concatenation do."""
    return isinstance(kernel.config, TensorCoreConfig) and kernel.config.feed.is_direct


def _keeps_extremes(kernel: Kernel) -> bool:
    """Whether what joins the product has one value for a row: then it can reduce its rows."""
    if kernel.anchored(Contract).patches is not None:
        return False
    anchor = kernel.anchored(Contract)
    found = roles(anchor)
    joining = [it for it in kernel.inputs[2:] if isinstance(it, TensorType)]
    return (
        isinstance(found, Roles)
        and found.m == anchor.out[-2:-1] != ""
        and kernel.triangle is None
        and kernel.output.dtype.itemsize == 2
        and not is_located(kernel)
        and all(it.rank == 0 or it.shape[-1] == ONE for it in joining)
    )


GEMM = Family(
    name="gemm",
    nodes=(Contract,),
    grow=grow_elements,
    launch=_launch,
    why_not=_why_not,
    configs=_configs,
    cost=_cost,
    same_text=_same_text,
    describe=_describe,
    apart=_apart,
    at_any_size=_at_any_size,
    seconds=_seconds,
    wants_whole_rows=_wants_whole_rows,
    writes_anywhere=_writes_anywhere,
    moment_parts=_moment_parts,
    keeps_extremes=_keeps_extremes,
)
