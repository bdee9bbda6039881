"""Steps in front of a norm of groups, computed where a convolution of ours stores its sums.

Rewrites put such steps on channels in groups, so that a reduction computes them. What reads their
result twice would compute them twice.
"""

from dataclasses import replace

from kernelwright.ir.editing import Editor
from kernelwright.ir.expr import has_coordinates
from kernelwright.ir.graph import Graph, Node
from kernelwright.ir.kinds import Conv, Pointwise, Reshape, View
from kernelwright.ir.sizes import ONE, product
from kernelwright.ir.types import Dim, TensorType
from kernelwright.lower.layouts import view_of


def with_whole_steps(graph: Graph) -> Graph:
    """The graph with steps on groups of a convolution's channels on whole channels, where nobody
    else reads the convolution."""
    editor = Editor(graph)
    steps: set[str] = set()
    for node in graph.nodes:
        source = _source(node, editor, steps)
        if source is not None:
            made = _on_whole(node, source, editor)
            if made:
                editor.replace(editor.node(node.name), made)
                steps.add(made[-2].name)
    editor.drop_unread()
    return editor.graph()


def _source(node: Node, editor: Editor, steps: set[str]) -> Node | None:
    """What the step reads in groups: a convolution of ours that it alone reads, or such a step."""
    if not isinstance(node.kind, Pointwise) or has_coordinates(node.kind.expr):
        return None
    current = editor.node(node.name)
    wide = {name for name in current.inputs if editor.node(name).type == current.type}
    if len(wide) != 1 or current.tensor.rank < 4:
        return None
    view = editor.node(wide.pop())
    if not isinstance(view.kind, View) or not isinstance(view.kind.map, Reshape):
        return None
    source = editor.node(view.inputs[0])
    is_ours = isinstance(source.kind, Conv) and source.kind.rounding is not None
    alone = editor.readers(source.name) == {view.name} and editor.readers(view.name) == {node.name}
    seen = editor.is_shown(source.name) or editor.is_shown(view.name)
    fits = source.type == TensorType(current.tensor.dtype, _merged(current.tensor.shape))
    ours = is_ours or source.name in steps
    return source if fits and alone and ours and not seen else None


def _on_whole(node: Node, source: Node, editor: Editor) -> tuple[Node, ...]:
    """The step on whole channels and the view that shows it in groups; () where an operand has one
    value for each group alone."""
    current = editor.node(node.name)
    made: list[Node] = []
    inputs: list[str] = []
    for name in current.inputs:
        kind = editor.node(name).type
        if kind == current.type:
            inputs.append(source.name)
        elif not isinstance(kind, TensorType) or kind.rank < current.tensor.rank - 1:
            inputs.append(name)  # It has no groups.
        else:
            groups = kind.shape[-(current.tensor.rank - 1)]
            channels = kind.shape[-(current.tensor.rank - 2)]
            if (groups == ONE) != (channels == ONE):
                return ()
            lead = kind.shape[: kind.rank - current.tensor.rank + 1]
            rest = kind.shape[kind.rank - current.tensor.rank + 3 :]
            shape = (*lead, product((groups, channels)), *rest)
            fresh = editor.named(f"{name}_whole", [it.name for it in made])
            made.append(view_of(fresh, editor.node(name), Reshape(), shape, node))
            inputs.append(fresh)
    whole = editor.named(f"{node.name}_whole", [it.name for it in made])
    step = replace(
        current, name=whole, type=source.type, inputs=tuple(inputs), origin=None, part_of=None
    )
    seen = editor.named(f"{node.name}_in_groups", [it.name for it in (*made, step)])
    return (*made, step, view_of(seen, step, Reshape(), current.tensor.shape, node))


def _merged(shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
    return (shape[0], product(shape[1:3]), *shape[3:])
