"""The passes, in order. Read this first."""

from kernelwright.ir.graph import Graph, Node
from kernelwright.ir.kinds import Opaque
from kernelwright.rewrite.averages import AVERAGE_RULES
from kernelwright.rewrite.constants import CONSTANT_RULES
from kernelwright.rewrite.convolution_sums import CONVOLUTION_SUM_RULES
from kernelwright.rewrite.convolutions import CONVOLUTION_RULES
from kernelwright.rewrite.counted import COUNTED_RULES
from kernelwright.rewrite.driver import Applied, Rewritten, Rule, apply
from kernelwright.rewrite.halves import HALF_RULES
from kernelwright.rewrite.interleaved import INTERLEAVED_RULES
from kernelwright.rewrite.linears import LINEAR_RULES
from kernelwright.rewrite.orders import ORDER_RULES, TURNING_RULES
from kernelwright.rewrite.reductions import REDUCTION_RULES
from kernelwright.rewrite.scans import SCAN_RULES
from kernelwright.rewrite.sinking import SINKING_RULES
from kernelwright.rewrite.sums import SUM_RULES
from kernelwright.rewrite.surroundings import Surroundings
from kernelwright.rewrite.tensors import (
    CONTRACT_RULES,
    POINTWISE_RULES,
    SIMPLIFYING_RULES,
    VIEW_RULES,
)


def rewrite(graph: Graph) -> Rewritten:
    """Run every pass over a captured graph; the result computes the same values."""
    applied: tuple[Applied, ...] = ()
    for rules in PASSES:
        result = apply(rules, graph)
        graph, applied = result.graph, applied + result.applied
    return Rewritten(graph=graph, applied=applied)


def _same_value(around: Surroundings, node: Node) -> tuple[Node, ...] | None:
    # Equal operations on equal inputs give equal values, unless they draw or change something.
    match node.kind:
        case Opaque(mutates, random) if mutates or random:
            return None
    if not around.may_move(node):
        return None
    twin = around.earlier_twin(node)
    return None if twin is None or not around.unseen(node.name) else (twin,)


PASSES: tuple[tuple[Rule, ...], ...] = (
    VIEW_RULES,
    (*CONSTANT_RULES, *SIMPLIFYING_RULES, *COUNTED_RULES, *VIEW_RULES),
    SCAN_RULES,
    (*HALF_RULES, *INTERLEAVED_RULES),
    SUM_RULES,
    AVERAGE_RULES,
    CONVOLUTION_SUM_RULES,
    (*LINEAR_RULES, *CONTRACT_RULES, *VIEW_RULES),
    (*ORDER_RULES, *VIEW_RULES),
    CONVOLUTION_RULES,
    (*SINKING_RULES, *REDUCTION_RULES, *VIEW_RULES),
    TURNING_RULES,
    POINTWISE_RULES,
    (Rule(name="common subexpression merged", match=_same_value),),
)
