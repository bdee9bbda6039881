"""Attention as CUDA text: a config, its kernels, and the tensors of a call in order."""

from kernelwright.codegen.families.writer import Writer
from kernelwright.codegen.kernel_text import TEMPLATES, KernelText, heading
from kernelwright.ir.attention import Attention, Masking
from kernelwright.ir.attention_configs import AttentionConfig
from kernelwright.ir.plan import Kernel
from kernelwright.ir.types import DType

_ELEMENTS = {DType.F32: "float", DType.F16: "__half", DType.BF16: "__nv_bfloat16"}


def emit(kernel: Kernel) -> KernelText:
    """The text of a launch that computes all rows of all heads."""
    anchor, config = kernel.anchored(Attention), kernel.configured(AttentionConfig)
    masks = () if anchor.masking is Masking.NONE else ("mask",)
    section = TEMPLATES.get_template("attention.cu.jinja").render(
        **heading(kernel),
        type="".join(word.capitalize() for word in kernel.name.split("_")),
        element=_ELEMENTS[kernel.output.dtype],
        members=_members(anchor, config),
        tensors=("result", "q", "k", "v", *masks),
        scale=anchor.scale,
        order=anchor.order,
        is_pairs=config.planes == 2,
        has_few=config.few > 0,
    )
    source = "attention_few_launch.cuh" if config.few else "attention_launch.cuh"
    return KernelText(section=section, sources=(source,), has_workspace=True)


def _members(anchor: Attention, config: AttentionConfig) -> tuple[str, ...]:
    causal, zero = (str(it).lower() for it in (anchor.causal, anchor.empty_is_zero))
    return (
        f"int DEPTH = {config.depth}, WIDTH = {config.width}",
        f"int BLOCK_N = {config.block_n}, STAGES = {config.stages}",
        f"int CONSUMERS = {config.consumers}{f', FEW = {config.few}' * (config.few > 0)}",
        f"Masking MASKING = Masking::{anchor.masking.name}",
        f"Weighing WEIGHING = Weighing::{anchor.weighing.name}",
        f"bool CAUSAL = {causal}, EMPTY_IS_ZERO = {zero}",
    )


ATTENTION = Writer(emit=emit)
