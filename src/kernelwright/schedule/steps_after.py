"""What the library's product leaves to another kernel, and ours computes where it leaves the
registers."""

from collections.abc import Iterator, Mapping

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
    reached = {product.name: product}
    found: tuple[Node, ...] = ()
    for node in _readers_in_order(product, graph):
        if any(reached.keys() & graph.results):
            break
        reached[node.name] = node
        # All that is read of those before is read by these steps: they have one result.
        read = {name for made in reached if made != node.name for name in users[made]}
        if called in reached and node.name != called and read <= reached.keys():
            found = tuple(it for name, it in reached.items() if _is_behind(name, called, reached))
    return found if found and _is_written(found[-1], graph) else ()


def _is_behind(name: str, called: str, reached: Mapping[str, Node]) -> bool:
    names = list(reached)
    return names.index(name) > names.index(called)


def _readers_in_order(product: Node, graph: Graph) -> Iterator[Node]:
    """Steps of the product's shape that read it, or steps before them, as the graph has them."""
    reached = {product.name}
    places = graph.places()
    for node in graph.nodes[places[product.name] + 1 :]:
        is_step = isinstance(node.kind, Pointwise) and not reached.isdisjoint(node.inputs)
        if is_step and node.tensor.shape == product.tensor.shape:
            reached.add(node.name)
            yield node


def _is_written(node: Node, graph: Graph) -> bool:
    """Whether no kernel of rows or of elements reads a node."""
    users = graph.users()
    readers = [graph[name] for name in users[node.name]]
    return all(
        isinstance(it.kind, Contract | Opaque)
        or (isinstance(it.kind, View) and _is_written(it, graph))
        for it in readers
    )
