"""What the library's product leaves to another kernel, and ours computes where it leaves the
registers."""

from kernelwright.ir.graph import Graph, Node
from kernelwright.ir.kinds import Contract, Opaque, Pointwise, View
from kernelwright.machine import Machine


def seconds_after(product: Node, graph: Graph, machine: Machine) -> float:
    """Seconds of the kernel of the steps behind a product that its call in the user's module does
    not do; 0 where there are none, or where a kernel of rows does them on its way.

    Of several products that the steps read, the last one has them."""
    steps = _steps_after(product, graph)
    if not steps:
        return 0.0
    inside = {product.name, _called(product), *(step.name for step in steps)}
    last = steps[-1].tensor
    read = {
        name
        for step in steps
        for name in step.inputs
        if name not in inside and graph[name].type == last
    }
    order = {node.name: at for at, node in enumerate(graph.nodes)}
    if any(order[name] > order[product.name] for name in read):
        return 0.0
    moved = (len(read) + 2) * last.bytes_hint
    return moved / machine.copy_bandwidth + machine.launches.next_seconds


def _called(product: Node) -> str:
    """The result of the call that a product is part of."""
    return product.name if product.part_of is None else product.part_of.result


def _steps_after(product: Node, graph: Graph) -> tuple[Node, ...]:
    """Pointwise steps behind the call of a product, of its result alone; none but before another
    product or at the end."""
    users = graph.users()
    called = _called(product)
    found: list[Node] = []
    node, is_after = product, product.name == called
    while node.name not in graph.results and len(readers := users[node.name]) == 1:
        reader = graph[readers[0]]
        if not isinstance(reader.kind, Pointwise) or reader.tensor.shape != node.tensor.shape:
            break
        node = reader
        if is_after:
            found.append(node)
        is_after |= node.name == called
    return tuple(found) if found and _is_written(node, graph) else ()


def _is_written(node: Node, graph: Graph) -> bool:
    """Whether no kernel of rows or of elements reads a node."""
    users = graph.users()
    readers = [graph[name] for name in users[node.name]]
    return all(
        isinstance(it.kind, Contract | Opaque)
        or (isinstance(it.kind, View) and _is_written(it, graph))
        for it in readers
    )
