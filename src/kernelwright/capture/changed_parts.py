"""Changes of parts of a tensor: the part is made anew, and put into a new whole.

    mask[a:b, c:d] = 1        part = slice(slice(mask, 0, a, b), 1, c, d); part.fill_(1)
                              rows = slice_scatter(slice(mask, 0, a, b), fill(part, 1), 1, c, d)
                              mask = slice_scatter(mask, rows, 0, a, b)

So does PyTorch where it makes a program functional, by tracing it twice more.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

aten = torch.ops.aten
Node = Any
"""fx.Node; what stands in its arguments and its meta has no useful type."""

_PUT_BACK: Mapping[Any, Any] = {
    aten.slice.Tensor: aten.slice_scatter.default,
    aten.select.int: aten.select_scatter.default,
}
"""Views of a part, and what puts another one in its place, with the same arguments."""


def can_put_back(holders: Sequence[Node], is_change: Callable[[Node], bool]) -> bool:
    """Whether all changes of one memory are of parts of what its first holder made, and no other
    view of it is read after a change that follows it.

    `holders`: the nodes whose values lie in that memory, in the order of the program.
    """
    maker, *others = holders
    order = {node: at for at, node in enumerate(maker.graph.nodes)}
    changes = [node for node in others if is_change(node)]
    if any(node.users or _whole_and_views(node.args[0])[0] is not maker for node in changes):
        return False
    return all(
        order[user] <= next((order[it] for it in changes if order[it] > order[view]), order[user])
        for view in others
        if not is_change(view)
        for user in view.users
    )


def put_back(change: Node) -> tuple[Node, Node]:
    """What a call changed in part or altogether, and the node that holds it afterwards: the call,
    which makes a new tensor now, or what puts its result back into the whole."""
    whole, views = _whole_and_views(change.args[0])
    surroundings, value = [whole], change
    with change.graph.inserting_before(change.next):
        for view in views[:-1]:
            surroundings.append(_call(change, view.target, view, (surroundings[-1],), view))
        for around, view in reversed(list(zip(surroundings, views, strict=False))):
            value = _call(change, _PUT_BACK[view.target], view, (around, value), around)
    return whole, value


def _whole_and_views(part: Node) -> tuple[Node, list[Node]]:
    """What a part belongs to, and the views from there to it."""
    views: list[Node] = []
    while part.target in _PUT_BACK:
        views.insert(0, part)
        part = part.args[0]
    return part, views


def _call(change: Node, target: Any, view: Node, tensors: tuple[Node, ...], like: Node) -> Node:
    """A call with the arguments of a view behind these tensors; its value is one like another's."""
    made = change.graph.call_function(target, (*tensors, *view.args[1:]), view.kwargs)
    made.meta = {**change.meta, "val": like.meta["val"]}
    return made
