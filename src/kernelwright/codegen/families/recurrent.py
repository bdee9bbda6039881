"""Recurrent layers as CUDA text: a config, its kernels, and the tensors of a call in order."""

from collections.abc import Iterator

from kernelwright.codegen.families.writer import Writer
from kernelwright.codegen.kernel_text import TEMPLATES, KernelText, heading
from kernelwright.codegen.spelling import HEADERS, STORED
from kernelwright.ir.anchors import Recurrence
from kernelwright.ir.plan import Kernel
from kernelwright.ir.recurrence import Cell, Recurrent
from kernelwright.ir.recurrent_configs import RecurrentConfig
from kernelwright.ir.types import DType

_RESULTS = ("y", "last_hidden", "last_cell")
_STATES = ("first_hidden", "first_cell")


def emit(kernel: Kernel) -> KernelText:
    """The text of a launch that takes all steps of a stack."""
    anchor = kernel.anchored(Recurrence)
    layers, dtype = anchor.layers, kernel.outputs[0].dtype
    sequences = ["x"] + ["y"] * (0 in anchor.results)
    section = TEMPLATES.get_template("recurrent.cu.jinja").render(
        **heading(kernel),
        type=_type_name(kernel.name),
        stored=STORED[dtype],
        members=_members(layers, kernel.configured(RecurrentConfig)),
        layers=layers.layers,
        directions=layers.directions,
        hidden=anchor.hidden,
        tensors=tuple(_tensors(anchor)),
        biases=2 if layers.has_bias else 0,
        turned=sequences if layers.batch_first else (),
    )
    # States without a bound are multiplied as they are stored.
    is_raw = layers.cell is Cell.RNN_RELU and dtype is DType.BF16
    products = "wgmma_narrow_bf16.cuh" if is_raw else None
    sources = ("recurrent_launch.cuh", *filter(None, (HEADERS.get(dtype), products)))
    return KernelText(section=section, sources=sources, has_workspace=True)


def _type_name(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


def _members(layers: Recurrent, config: RecurrentConfig) -> tuple[str, ...]:
    return (
        f"RecurrentCell CELL = RecurrentCell::{layers.cell.name}",
        f"int DIRECTIONS = {layers.directions}, CLUSTER = {config.cluster}",
        f"int BATCH = {config.batch}, INPUTS = {config.inputs}, PLANES = {config.planes}",
        f"int STAGES = {config.stages}, UNITS = {config.units}",
    )


def _tensors(anchor: Recurrence) -> Iterator[str]:
    """The request's members in the order of the words, up to the weights."""
    yield from (_RESULTS[index] for index in anchor.results)
    yield "x"
    yield from _STATES[: anchor.layers.cell.states]


RECURRENT = Writer(emit=emit)
