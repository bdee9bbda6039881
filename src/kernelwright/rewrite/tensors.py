"""Rules on tensor nodes. Above each stands why the value stays the same."""

from dataclasses import replace

from kernelwright.ir.calls import rename_call
from kernelwright.ir.expr import Call, Coordinate, Literal, Operand
from kernelwright.ir.graph import Node
from kernelwright.ir.kinds import (
    Contract,
    DiagEmbed,
    Expand,
    Permute,
    Pointwise,
    Reshape,
    Select,
    Squeeze,
    Unsqueeze,
    View,
)
from kernelwright.ir.sizes import ONE
from kernelwright.ir.types import Dim, DType, TensorType, broadcast
from kernelwright.rewrite.driver import Rule
from kernelwright.rewrite.expressions import simplify
from kernelwright.rewrite.surroundings import Surroundings

# --- Index maps --------------------------------------------------------------------------------


def _identity_view(around: Surroundings, node: Node) -> tuple[Node, ...] | None:
    # An index map that sends every index to itself is the tensor itself.
    match node.kind:
        case View(Permute(dims)) if dims == tuple(range(len(dims))):
            return (around.node(node.inputs[0]),)
        case View(Reshape()):
            source = around.node(node.inputs[0])
            return (source,) if source.tensor.shape == node.tensor.shape else None
    return None


def _only_index(around: Surroundings, node: Node) -> tuple[Node, ...] | None:
    # Taking the one index of a dimension of size 1 takes everything.
    match node.kind:
        case View(Select(dim)) if around.node(node.inputs[0]).tensor.shape[dim] == ONE:
            return (replace(node, kind=View(Squeeze((dim,))), origin=None),)
    return None


def _permute_of_permute(around: Surroundings, node: Node) -> tuple[Node, ...] | None:
    # (x.permute(p)).permute(q)[i] = x at p[q[i]]: maps compose.
    inner = around.node(node.inputs[0]) if isinstance(node.kind, View) else None
    match node.kind, inner:
        case View(Permute(outer)), Node(kind=View(Permute(first)), inputs=(source,)):
            dims = tuple(first[d] for d in outer)
            return (replace(node, kind=View(Permute(dims)), inputs=(source,), origin=None),)
    return None


def _reshape_of_reshape(around: Surroundings, node: Node) -> tuple[Node, ...] | None:
    # All three keep the elements in row-major order, so that only the last shape counts.
    inner = around.node(node.inputs[0]) if isinstance(node.kind, View) else None
    match node.kind, inner:
        case (
            View(Reshape() | Squeeze() | Unsqueeze() as outer),
            Node(kind=View(Reshape() | Squeeze() | Unsqueeze() as first), inputs=(source,)),
        ) if isinstance(outer, Reshape) or isinstance(first, Reshape):
            return (replace(node, kind=View(Reshape()), inputs=(source,), origin=None),)
    return None


def _leading_ones(around: Surroundings, node: Node) -> tuple[Node, ...] | None:
    # Broadcasting puts leading dimensions of size 1 in front by itself, and a leading one changes
    # nothing where the result has as many dimensions.
    if not isinstance(node.kind, Pointwise) or not isinstance(node.type, TensorType):
        return None
    for at, name in enumerate(node.inputs):
        view = around.node(name)
        match view.kind:
            case View(Reshape() | Squeeze() | Unsqueeze()):
                source = around.node(view.inputs[0])
                same = _without_ones(source.tensor.shape) == _without_ones(view.tensor.shape)
                if same and source.tensor.rank <= node.tensor.rank:
                    inputs = (*node.inputs[:at], source.name, *node.inputs[at + 1 :])
                    return (replace(node, inputs=inputs, origin=None),)
    return None


def _without_ones(shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
    while shape and shape[0] == ONE:
        shape = shape[1:]
    return shape


# --- Contractions ------------------------------------------------------------------------------


def _contract_reads_as_it_lies(around: Surroundings, node: Node) -> tuple[Node, ...] | None:
    # Einstein notation names dimensions; permuting an operand permutes its letters and no data.
    if not isinstance(node.kind, Contract):
        return None
    kind = node.kind
    for side in (0, 1):
        operand = around.node(node.inputs[side])
        match operand.kind:
            case View(Permute(dims)):
                labels = (kind.lhs, kind.rhs)[side]
                before = [""] * len(dims)
                for label, dim in zip(labels, dims, strict=True):
                    before[dim] = label
                letters = [kind.lhs, kind.rhs]
                letters[side] = "".join(before)
                inputs = list(node.inputs)
                inputs[side] = operand.inputs[0]
                new = Contract(letters[0], letters[1], kind.out)
                return (replace(node, kind=new, inputs=tuple(inputs), origin=None),)
    return None


def _contract_of_diagonal(around: Surroundings, node: Node) -> tuple[Node, ...] | None:
    # sum_q D[p,q] B[q,j] with D zero off the diagonal has the one term d[p] B[p,j]. (In IEEE
    # arithmetic the dropped terms 0 * B[q,j] are 0 for finite B; an Inf or NaN there no longer
    # spreads along its column.)
    if not isinstance(node.kind, Contract):
        return None
    kind = node.kind
    for side in (0, 1):
        matrix = around.node(node.inputs[side])
        if not isinstance(matrix.kind, View) or not isinstance(matrix.kind.map, DiagEmbed):
            continue
        mine, other = (kind.lhs, kind.rhs) if side == 0 else (kind.rhs, kind.lhs)
        first, second = mine[-2], mine[-1]
        kept, summed = (first, second) if first in kind.out else (second, first)
        if kept not in kind.out or kept in other or summed in kind.out:
            continue
        vector = around.node(matrix.inputs[0])
        dense = around.node(node.inputs[1 - side])
        pair = [(vector, mine[:-2] + kept), (dense, other.replace(summed, kept))]
        return _product(around, node, pair if side == 0 else pair[::-1], kind.out, matrix)
    return None


def _contract_without_sum(around: Surroundings, node: Node) -> tuple[Node, ...] | None:
    # With no letter to sum over, one product is left for each element.
    if not isinstance(node.kind, Contract):
        return None
    kind = node.kind
    if not set(kind.lhs) | set(kind.rhs) <= set(kind.out):
        return None
    operands = [around.node(name) for name in node.inputs]
    pair = list(zip(operands, (kind.lhs, kind.rhs), strict=True))
    return _product(around, node, pair, kind.out, None)


def _product(
    around: Surroundings,
    node: Node,
    operands: list[tuple[Node, str]],
    out: str,
    swallowed: Node | None,
) -> tuple[Node, ...]:
    """Nodes for `out[...] = a * b`, each operand laid out along the letters of `out`."""
    made: list[Node] = []
    names: list[str] = []
    for operand, labels in operands:
        views = align(around, operand, labels, out)
        made += views
        names.append(views[-1].name if views else operand.name)
    dtype = node.tensor.dtype
    product = replace(
        node,
        name=around.fresh(node.name),
        kind=Pointwise(Call("mul", (Operand(0, dtype), Operand(1, dtype)), dtype)),
        inputs=tuple(names),
        origin=None,
        operators=(*(swallowed.operators if swallowed else ()), *node.operators),
    )
    return (*made, product)


def align(around: Surroundings, operand: Node, labels: str, out: str) -> list[Node]:
    """Views that lay `operand`, with dimensions `labels`, along `out`; size 1 elsewhere."""
    made: list[Node] = []
    order = tuple(sorted(range(len(labels)), key=lambda d: out.index(labels[d])))
    node = operand

    def push(index_map: Permute | Unsqueeze, shape: tuple[Dim, ...]) -> Node:
        new = replace(
            node,
            name=around.fresh(operand.name),
            kind=View(index_map),
            type=TensorType(operand.tensor.dtype, shape),
            inputs=(node.name,),
            origin=None,
            operators=(),
        )
        made.append(new)
        return new

    if order != tuple(range(len(labels))):
        node = push(Permute(order), tuple(node.tensor.shape[d] for d in order))
    present = [label for label in out if label in labels]
    # Leading dimensions come from broadcasting; only those after the first present one are made.
    for position in range(out.index(present[0]), len(out)):
        if out[position] not in labels:
            at = sum(out.index(label) < position for label in labels)
            at += sum(out[q] not in labels for q in range(out.index(present[0]), position))
            shape = (*node.tensor.shape[:at], ONE, *node.tensor.shape[at:])
            node = push(Unsqueeze(at), shape)
    return made


# --- Pointwise ---------------------------------------------------------------------------------


def _simplify_expression(around: Surroundings, node: Node) -> tuple[Node, ...] | None:
    # See expressions.py for the proofs, row by row.
    if not isinstance(node.kind, Pointwise):
        return None
    expr = simplify(node.kind.expr)
    return None if expr == node.kind.expr else (replace(node, kind=Pointwise(expr)),)


def _pointwise_identity(around: Surroundings, node: Node) -> tuple[Node, ...] | None:
    # An expression that is its operand, with nothing broadcast, is that operand. What the caller
    # sees must stay a tensor of its own: a copy of an input may not become the input itself.
    match node.kind:
        case Pointwise(Operand(index)):
            source = around.node(node.inputs[index])
            fresh = isinstance(source.kind, Pointwise | Contract) and around.unseen(source.name)
            same = isinstance(source.type, TensorType) and source.type == node.type
            keeps = fresh or (around.unseen(node.name) and around.may_move(node))
            return (source,) if same and keeps else None
    return None


def _reads_unexpanded(around: Surroundings, node: Node) -> tuple[Node, ...] | None:
    # Kernels repeat the elements of an operand by broadcasting: of a view that repeats them they
    # would only know that it has the whole size.
    if not isinstance(node.kind, Pointwise) or not isinstance(node.type, TensorType):
        return None
    for at, name in enumerate(node.inputs):
        view = around.node(name)
        if not isinstance(view.kind, View) or not isinstance(view.kind.map, Expand):
            continue
        inputs = (*node.inputs[:at], view.inputs[0], *node.inputs[at + 1 :])
        types = [around.node(it).type for it in inputs]
        shapes = [kind.shape for kind in types if isinstance(kind, TensorType)]
        if around.may_move(node) and broadcast(*shapes) == node.tensor.shape:
            call = node.origin and rename_call(node.origin, {name: view.inputs[0]})
            return (replace(node, inputs=inputs, origin=call),)
    return None


def _matrix_of_diagonal(around: Surroundings, node: Node) -> tuple[Node, ...] | None:
    # The element in row i and column j is that of the vector at j where i = j, and else zero.
    if not isinstance(node.kind, View) or not isinstance(node.kind.map, DiagEmbed):
        return None
    dtype, shape = node.tensor.dtype, node.tensor.shape
    # With leading dimensions, no call of PyTorch would stand for the node.
    if dtype.is_complex or len(shape) != 2:
        return None
    if shape[-1] == ONE:
        return (replace(node, kind=View(Reshape()), origin=None),)
    on = Call("eq", (Coordinate(-1), Coordinate(-2)), DType.BOOL)
    zero = Literal(False if dtype is DType.BOOL else 0.0 if dtype.is_float else 0, dtype)
    return (replace(node, kind=Pointwise(Call("where", (on, Operand(0, dtype), zero), dtype))),)


VIEW_RULES = (
    Rule(name="identity index map removed", match=_identity_view),
    Rule(name="only index of a dimension taken", match=_only_index),
    Rule(name="double transpose merged", match=_permute_of_permute),
    Rule(name="double reshape merged", match=_reshape_of_reshape),
    Rule(name="leading dimensions of size 1 left to broadcasting", match=_leading_ones),
)

CONTRACT_RULES = (
    Rule(
        name="product with a diagonal matrix becomes a scaling",
        match=_contract_of_diagonal,
        algebraic=True,
    ),
    Rule(name="contraction without a sum becomes a product", match=_contract_without_sum),
    Rule(name="operand read in the layout it lies in", match=_contract_reads_as_it_lies),
)

SIMPLIFYING_RULES = (
    Rule(name="expression simplified", match=_simplify_expression),
    Rule(name="identity removed", match=_pointwise_identity),
)

POINTWISE_RULES = (
    Rule(name="diagonal matrix written element by element", match=_matrix_of_diagonal),
    Rule(name="operand repeated where it is read", match=_reads_unexpanded),
    *SIMPLIFYING_RULES,
)
