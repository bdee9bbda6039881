"""Scans as CUDA text: a functor, and the ways to compute its running totals."""

from kernelwright.codegen.families.writer import Writer
from kernelwright.codegen.kernel_text import TEMPLATES, KernelText, heading, read_inputs
from kernelwright.codegen.spelling import STORED
from kernelwright.codegen.surroundings import Device, Variant, surroundings
from kernelwright.ir.kinds import Scan
from kernelwright.ir.plan import Kernel
from kernelwright.ir.scan_configs import ScanConfig, ScanWay


def emit(kernel: Kernel) -> KernelText:
    """The text of a kernel that computes running totals."""
    functor = surroundings(kernel)
    section = TEMPLATES.get_template("scan.cu.jinja").render(
        **heading(kernel),
        functor=functor,
        traits=_traits(kernel),
        stored=STORED[kernel.output.dtype],
        variants=(_tuned(kernel), _general(kernel)),
        arguments=read_inputs(kernel, functor.tensors, functor.members),
        dim=kernel.anchored(Scan).dim,
    )
    return KernelText(section=section, sources=("scan_launch.cuh",), has_workspace=True)


def _traits(kernel: Kernel) -> tuple[str, ...]:
    """What the kernels know of the scan when they are compiled."""
    scan = kernel.anchored(Scan)
    reverse, exclusive = (str(flag).lower() for flag in (scan.reverse, scan.exclusive))
    return (
        f"static constexpr Running RUNNING = Running::{scan.op.name};",
        f"static constexpr bool REVERSE = {reverse}, EXCLUSIVE = {exclusive};",
    )


def _tuned(kernel: Kernel) -> Variant:
    config, name = kernel.configured(ScanConfig), kernel.name
    match config.way:
        case ScanWay.COLUMNS:
            return Variant(
                suffix="Tuned",
                why="The captured sizes and layouts",
                template="ColumnScanVariant",
                members=_column_members(config),
                kernels=(Device(name=f"{name}_kernel", function="scan_columns"),),
                pointers=(f"{name}_kernel",),
            )
        case ScanWay.ROW_IN_LANES:
            return Variant(
                suffix="Tuned",
                why="Short rows that begin anywhere",
                template="LaneScanVariant",
                members=(f"int ITEMS = {config.items}, WARPS = {config.warps}",),
                kernels=(Device(name=f"{name}_kernel", function="scan_lanes"),),
                pointers=(f"{name}_kernel",),
                blocks=config.resident,
            )
        case ScanWay.ROW_PER_WARP:
            totals: tuple[Device, ...] = ()
            pointers = (f"{name}_kernel", "nullptr")
        case ScanWay.ROW_PER_BLOCK:
            totals = (Device(name=f"{name}_totals_kernel", function="scan_segment_totals"),)
            pointers = (f"{name}_kernel", f"{name}_totals_kernel")
    return Variant(
        suffix="Tuned",
        why="The captured sizes and layouts, rows that begin anywhere",
        template="RowScanVariant",
        members=(
            f"int WIDTH = {config.width}, VECTORS = {config.items}",
            f"int WARPS = {config.warps}, ROW_WARPS = {config.row_warps}, STAGES = {config.stages}",
            f"int64_t MIN_BLOCKS = {config.min_blocks}",
        ),
        kernels=(Device(name=f"{name}_kernel", function="scan_rows"), *totals),
        pointers=pointers,
        blocks=config.resident,
    )


_ANY_LAYOUT = ScanConfig(way=ScanWay.COLUMNS, width=1, items=4, warps=8)


def _general(kernel: Kernel) -> Variant:
    name = f"{kernel.name}_general_kernel"
    return Variant(
        suffix="General",
        why="Any strides and alignment",
        template="ColumnScanVariant",
        members=_column_members(_ANY_LAYOUT),
        kernels=(Device(name=name, function="scan_columns"),),
        pointers=(name,),
    )


def _column_members(config: ScanConfig) -> tuple[str, ...]:
    return (f"int COLUMNS = {config.width}, ITEMS = {config.items}, WARPS = {config.warps}",)


SCAN = Writer(emit=emit)
