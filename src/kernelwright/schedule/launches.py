"""Groups of nodes as launches of kernels, each in the configuration that the model likes best."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypedDict

from kernelwright.ir.configs import GemmConfig
from kernelwright.ir.graph import Contract, Graph, Node, Pointwise, Scan, Window
from kernelwright.ir.plan import AnyKernel, Kernel, Launch, RowKernel, ScanKernel, WindowKernel
from kernelwright.machine import Machine
from kernelwright.schedule.anchored_groups import AnchoredGroup, expressions_of, source_shape
from kernelwright.schedule.configs import elementwise_configs
from kernelwright.schedule.element_groups import ElementGroup, inputs_and_expression
from kernelwright.schedule.memory_format import is_turned
from kernelwright.schedule.naming import kernel_name, merge_operators
from kernelwright.schedule.row_configs import row_configs
from kernelwright.schedule.row_groups import RowGroup, program_of
from kernelwright.schedule.scan_configs import scan_configs
from kernelwright.schedule.triangles import kept_triangle
from kernelwright.schedule.window_configs import window_configs


def launch_elements(group: ElementGroup, graph: Graph, machine: Machine) -> Launch:
    inputs, expression = inputs_and_expression(group, graph)
    members = {node.name for node in group.members}
    ordered = [node for node in graph.nodes if node.name in members]
    anchor = group.anchor.kind if group.anchor else None
    assert anchor is None or isinstance(anchor, Contract)
    types = tuple(node.type for node in inputs)
    triangle = kept_triangle(expression)
    kernel = Kernel(
        anchor=anchor,
        inputs=types,
        epilogue=expression,
        output=group.root.tensor,
        config=elementwise_configs(anchor, types, group.root.tensor, machine, triangle)[0],
        triangle=triangle,
        turned=anchor is None and any(is_turned(node, graph) for node in inputs),
        **_labels(ordered),
    )
    return _launched(kernel, [group.root], inputs)


def launch_copy(copy: Node, source: Node, graph: Graph, machine: Machine) -> Launch:
    """The kernel of a node that has the elements of another one."""
    assert isinstance(copy.kind, Pointwise)
    kernel = Kernel(
        anchor=None,
        inputs=(source.type,),
        epilogue=copy.kind.expr,
        output=copy.tensor,
        config=elementwise_configs(None, (source.type,), copy.tensor, machine)[0],
        turned=is_turned(source, graph),
        **_labels([copy]),
    )
    return _launched(kernel, [copy], [source])


def launch_rows(group: RowGroup, graph: Graph, machine: Machine) -> Launch:
    program, inputs = program_of(group, graph)
    types = tuple(node.type for node in inputs)
    kernel = RowKernel(
        program=program,
        inputs=types,
        outputs=tuple(node.tensor for node in group.results),
        config=row_configs(program, types, machine)[0],
        **_labels(group.members),
    )
    return _launched(kernel, group.results, inputs)


def launch_anchored(group: AnchoredGroup, graph: Graph, machine: Machine) -> Launch:
    found = expressions_of(group, graph)
    types = tuple(node.type for node in found.inputs)
    output = group.root.tensor
    kernel: AnyKernel
    match group.anchor.kind:
        case Scan() as scan:
            kernel = ScanKernel(
                scan=scan,
                inputs=types,
                prologue=found.prologue,
                epilogue=found.epilogue,
                output=output,
                config=scan_configs(scan, output, types, machine)[0],
                **_labels(group.members),
            )
        case Window() as window:
            kernel = WindowKernel(
                window=window,
                source=source_shape(group, graph),
                inputs=types,
                prologue_inputs=found.prologue_inputs,
                prologue=found.prologue,
                epilogue=found.epilogue,
                output=output,
                config=window_configs(window, output, types, machine)[0],
                **_labels(group.members),
            )
    return _launched(kernel, [group.root], found.inputs)


class _Labels(TypedDict):
    """What people call a kernel; its name comes when the whole plan is known."""

    name: str
    operators: tuple[str, ...]
    sources: tuple[str, ...]


def _labels(members: Sequence[Node]) -> _Labels:
    return _Labels(
        name="",
        operators=merge_operators(*(node.operators for node in members)),
        sources=tuple(dict.fromkeys(node.source for node in members if node.source)),
    )


def _launched(kernel: AnyKernel, results: Sequence[Node], inputs: Sequence[Node]) -> Launch:
    return Launch(
        results=tuple(node.name for node in results),
        kernel=kernel,
        inputs=tuple(node.name for node in inputs),
    )


def shared(launch: Launch, kernels: list[AnyKernel]) -> Launch:
    """The launch with a named kernel: one of `kernels` if its text serves, or a new one."""
    kernel = launch.kernel
    twin = next((other for other in kernels if _same_text(other, kernel)), None)
    if twin is None:
        name = kernel_name(kernel.operators, (other.name for other in kernels))
        twin = replace(kernel, name=name)
        kernels.append(twin)
    shared = replace(kernel, name=twin.name, config=twin.config)  # type: ignore[arg-type]
    return replace(launch, kernel=shared)


def _same_text(a: AnyKernel, b: AnyKernel) -> bool:
    """Whether one CUDA text serves both kernels: everything agrees but the sizes it is told.

    So does how a product is multiplied; only on the CUDA cores is one tile as good as another.
    """

    def signature(kernel: AnyKernel) -> object:
        inputs = [
            (type(kind).__name__, getattr(kind, "dtype", None), getattr(kind, "rank", None))
            for kind in kernel.inputs
        ]
        outputs = [(kind.dtype, kind.rank) for kind in kernel.outputs]
        way = None if isinstance(kernel.config, GemmConfig) else kernel.config
        turned = isinstance(kernel, Kernel) and kernel.turned
        return (_work(kernel), inputs, outputs, kernel.operators, way, turned)

    return signature(a) == signature(b)


def _work(kernel: AnyKernel) -> object:
    """What the kernel computes, whatever the sizes that tensors tell it."""
    expressions = [str(expr) for expr in kernel.expressions]
    match kernel:
        case Kernel(anchor=anchor):
            return (expressions, anchor)
        case RowKernel(program=program):
            folds = [(fold.op, fold.totals) for fold in program.folds]
            extents = [result.extent for result in program.results]
            sizes = (len(program.shape), kernel.untold, kernel.is_short, kernel.are_ones)
            return (expressions, program.dims, sizes, folds, extents)
        case ScanKernel(scan=scan):
            return (expressions, scan)
        case WindowKernel(window=window, prologue_inputs=count):
            return (expressions, window, count, kernel.untold)
