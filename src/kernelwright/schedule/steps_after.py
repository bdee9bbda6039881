"""What the library's product leaves to another kernel, and ours computes where it leaves the
registers."""

from kernelwright.ir.graph import Graph, Node
from kernelwright.ir.kinds import Contract, Opaque, Pointwise, View
from kernelwright.machine import Machine
from kernelwright.schedule.in_order import InOrder


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
    users, called, shape = graph.users(), _called(product), product.tensor.shape
    reached, behind, found = {product.name}, list[Node](), tuple[Node, ...]()
    queue = InOrder(graph.places(), forwards=True)
    queue.add(users[product.name])
    for node in (graph[name] for name in queue):
        if not reached.isdisjoint(graph.results):
            break
        if not isinstance(node.kind, Pointwise) or node.tensor.shape != shape:
            continue
        # All that is read of those before is read by these steps: they have one result.
        read = {name for made in reached for name in users[made]}
        if called in reached:
            behind.append(node)
        reached.add(node.name)
        queue.add(users[node.name])
        if behind and read <= reached:
            found = tuple(behind)
    return found if found and _is_written(found[-1], graph) else ()


def _is_written(node: Node, graph: Graph) -> bool:
    """Whether no kernel of rows or of elements reads a node."""
    users = graph.users()
    readers = [graph[name] for name in users[node.name]]
    return all(
        isinstance(it.kind, Contract | Opaque)
        or (isinstance(it.kind, View) and _is_written(it, graph))
        for it in readers
    )
