"""Steps of recurrent cells in a graph: PyTorch's own cells, and those that a module spells out."""

from collections.abc import Iterator
from dataclasses import dataclass

from kernelwright.ir.calls import Record, Ref
from kernelwright.ir.expr import Call, Operand
from kernelwright.ir.graph import Graph, Node
from kernelwright.ir.kinds import Concat, Contract, Opaque, Pointwise, Project
from kernelwright.ir.library_calls import CELLS
from kernelwright.ir.recurrence import Cell
from kernelwright.ir.types import TensorType


@dataclass(frozen=True, slots=True)
class Weight:
    """Columns `start` to `stop` of a matrix with a row for each unit of each gate."""

    matrix: str
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Factor:
    """One of a step's two products: an operand (batch, columns) times a weight's columns."""

    operand: str
    weight: Weight


@dataclass(frozen=True, slots=True, kw_only=True)
class CellStep:
    """One step of one layer. Which of its products is that of the hidden state may be open."""

    cell: Cell
    factors: tuple[Factor, Factor]
    biases: tuple[str, ...]
    """None, one or two vectors with an element for each row of the weights."""
    is_settled: bool
    """Whether the first product is known to be that of the input."""
    others: tuple[str, ...]
    """The states before the step besides the hidden one."""
    after: tuple[str | None, ...]
    """Nodes of the states after it, the hidden one first; None for what nobody reads."""

    @property
    def weights(self) -> tuple[object, ...]:
        """What steps of one layer have in common."""
        return (self.cell, tuple(it.weight for it in self.factors), self.biases)


def cell_steps(graph: Graph) -> Iterator[CellStep]:
    """Every step of a cell, in the order of the graph."""
    for node in graph.nodes:
        step = _called(node, graph) or _plain(node, graph)
        if step is not None:
            yield step


# --- PyTorch's cells -----------------------------------------------------------------------------


def _called(node: Node, graph: Graph) -> CellStep | None:
    origin = node.origin
    if not isinstance(node.kind, Opaque) or origin is None or origin.target not in CELLS:
        return None
    cell, names = CELLS[origin.target], origin.operands
    states = origin.args[1]
    if isinstance(states, Record):  # hidden and cell of an LSTM
        names = (names[0], *(it.name for it in states.items if isinstance(it, Ref)), *names[1:])
    x, hidden, *rest = names
    others, (first, second, *biases) = tuple(rest[: cell.states - 1]), rest[cell.states - 1 :]
    if any(graph[name].tensor.rank != 2 for name in (x, hidden)):
        return None
    return CellStep(
        cell=cell,
        factors=(Factor(x, _whole(graph, first)), Factor(hidden, _whole(graph, second))),
        biases=tuple(biases),
        is_settled=True,
        others=others,
        after=_results(node, graph) if cell.states > 1 else (node.name,),
    )


def _results(node: Node, graph: Graph) -> tuple[str | None, ...]:
    readers = [graph[name] for name in graph.users()[node.name]]
    found = {it.kind.index: it.name for it in readers if isinstance(it.kind, Project)}
    return found.get(0), found.get(1)


def _whole(graph: Graph, name: str) -> Weight:
    return Weight(name, 0, graph[name].tensor.shape[1].hint)


# --- Cells that are spelled out ------------------------------------------------------------------


def _plain(node: Node, graph: Graph) -> CellStep | None:
    """tanh of a sum of two products, which may be one product of a concatenation."""
    if not _computes(node, "tanh"):
        return None
    found = _summed(graph[node.inputs[0]], graph)
    if found is None:
        return None
    factors, biases = found
    if len(factors) != 2 or len(biases) > 2 or node.tensor.rank != 2:
        return None
    return CellStep(
        cell=Cell.RNN_TANH,
        factors=(factors[0], factors[1]),
        biases=tuple(biases),
        is_settled=False,
        others=(),
        after=(node.name,),
    )


_MOST_TERMS = 4


def _summed(node: Node, graph: Graph) -> tuple[list[Factor], list[str]] | None:
    """The products and vectors whose sum this is; None of another value."""
    factors: list[Factor] = []
    biases: list[str] = []
    waiting = [node]
    while waiting:
        term = waiting.pop()
        if len(factors) + len(biases) + len(waiting) > _MOST_TERMS:
            return None
        if _computes(term, "add"):
            waiting += [graph[name] for name in reversed(term.inputs)]
        elif isinstance(term.kind, Contract):
            products = _products(term, graph)
            if products is None:
                return None
            factors += products
        elif _is_vector(term):
            biases.append(term.name)
        else:
            return None
    return factors, biases


def _products(node: Node, graph: Graph) -> list[Factor] | None:
    """Products of rows with a matrix's rows; a concatenation's parts are multiplied apart."""
    operand, weight = (graph[name] for name in node.inputs)
    match node.kind:
        case Contract(lhs, rhs, out) if len(lhs) == len(rhs) == len(out) == 2:
            as_linear = lhs[1] == rhs[1] and out == lhs[0] + rhs[0]
        case _:
            as_linear = False
    if not as_linear:
        return None
    if operand.kind != Concat(1):
        return [Factor(operand.name, _whole(graph, weight.name))]
    found, start = [], 0
    for name in operand.inputs:
        width = graph[name].tensor.shape[1]
        if not width.is_static:
            return None
        found.append(Factor(name, Weight(weight.name, start, start + width.hint)))
        start += width.hint
    return found


def _is_vector(node: Node) -> bool:
    return isinstance(node.type, TensorType) and node.type.rank == 1


def _computes(node: Node, operation: str) -> bool:
    """Whether a node is this operation on all its inputs in order, once each, in one type."""
    match node.kind:
        case Pointwise(Call(op, args)) if op == operation:
            return len(args) == len(node.inputs) and all(
                isinstance(arg, Operand) and arg.index == at for at, arg in enumerate(args)
            )
    return False
