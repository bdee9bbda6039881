"""Loops as CUDA text: a functor for the first value and for a step, and the walk of a thread."""

from kernelwright.codegen.families.writer import Writer
from kernelwright.codegen.kernel_text import TEMPLATES, KernelText, heading, read_inputs
from kernelwright.codegen.spelling import STORED
from kernelwright.codegen.surroundings import Device, Variant, surroundings
from kernelwright.ir.loop_configs import LoopConfig
from kernelwright.ir.plan import Kernel


def emit(kernel: Kernel) -> KernelText:
    """The text of a kernel that takes all steps of a loop."""
    functor = surroundings(kernel)
    section = TEMPLATES.get_template("scan.cu.jinja").render(
        **heading(kernel),
        functor=functor,
        traits=("static constexpr Running RUNNING = Running::SUM;",),
        stored=STORED[kernel.output.dtype],
        variants=(_walk(kernel),),
        arguments=read_inputs(kernel, functor.tensors, functor.members),
        dim=0,
    )
    return KernelText(section=section, sources=("loop_launch.cuh",), has_workspace=True)


def _walk(kernel: Kernel) -> Variant:
    config, name = kernel.configured(LoopConfig), f"{kernel.name}_kernel"
    return Variant(
        suffix="Tuned",
        why="Any sizes and strides",
        template="LoopVariant",
        members=(f"int AHEAD = {config.ahead}, BLOCK = {config.threads}",),
        kernels=(Device(name=name, function="walk_loop"),),
        pointers=(name,),
    )


LOOP = Writer(emit=emit)
