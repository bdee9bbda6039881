"""A sum of a product's elements is a product of sums: far fewer multiplications."""

from dataclasses import dataclass, replace

from kernelwright.ir.expr import Call, Expr, Literal, Operand, Size
from kernelwright.ir.graph import Node
from kernelwright.ir.kinds import Contract, Conv, Kind, Pointwise, Reduce, Reduction, Reshape, View
from kernelwright.ir.sizes import ONE, product
from kernelwright.ir.types import Dim, DType, TensorType
from kernelwright.rewrite.driver import Rule
from kernelwright.rewrite.surroundings import Surroundings


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear:
    """One pointwise node, linear in one operand of its own shape."""

    node: Node
    main: str
    """Name of that operand."""
    call: Call
    at: int
    """Which argument of the call it is."""


def _sum_of_product(around: Surroundings, node: Node) -> tuple[Node, ...] | None:
    # sum_n sum_k A[m,k] B[k,n] = sum_k A[m,k] (sum_n B[k,n]): sums of finitely many terms may
    # change their order, and A[m,k] does not depend on n. Steps in between that are linear keep
    # that: sum_n (c x_n) = c sum_n x_n, sum_n (x_n + y_n) = sum_n x_n + sum_n y_n. (In IEEE
    # arithmetic an Inf that the product would overflow to, or Inf - Inf, may come out otherwise.)
    if not isinstance(node.kind, Reduce) or node.kind.op is not Reduction.SUM:
        return None
    steps, current = linear_steps(around, around.node(node.inputs[0]), node.kind.dims)
    shape = around.node(node.inputs[0]).tensor.shape
    if not isinstance(current.kind, Contract) or not is_private(around, current):
        return None
    if current.tensor.shape != shape or node.tensor.dtype not in (DType.F32, DType.F64):
        return None
    made = SumsMade(around, node, node.kind.dims)
    small = made.product_of_sums(current, current.kind)
    if small is None:
        return None
    for step in reversed(steps):
        small = made.summed_step(step, small, shape)
    made.nodes[-1] = replace(made.nodes[-1], name=node.name, source=node.source)
    return tuple(made.nodes)


def linear_steps(
    around: Surroundings, node: Node, dims: tuple[int, ...]
) -> tuple[list[Linear], Node]:
    """Steps that sums over `dims` may be taken before, from the last one back, and what the first
    of them is made of."""
    steps: list[Linear] = []
    while isinstance(node.kind, Pointwise) and is_private(around, node):
        step = _linear_step(around, node, dims)
        if step is None:
            break
        steps.append(step)
        node = around.node(step.main)
    return steps, node


def is_private(around: Surroundings, node: Node) -> bool:
    """Whether one node reads the value, and the caller does not see it."""
    return around.readers(node.name) == 1 and around.unseen(node.name)


def _linear_step(around: Surroundings, node: Node, dims: tuple[int, ...]) -> Linear | None:
    assert isinstance(node.kind, Pointwise)
    call = node.kind.expr
    if not isinstance(call, Call) or call.op not in ("add", "sub", "mul", "div", "neg"):
        return None
    if not all(isinstance(arg, Operand | Literal) for arg in call.args):
        return None
    # The longest way to a product is the one that counts; a sum of two of them has none.
    for at, arg in enumerate(call.args):
        if not isinstance(arg, Operand) or (call.op == "div" and at == 1):
            continue
        source = around.node(node.inputs[arg.index])
        is_whole = isinstance(source.type, TensorType) and source.type.shape == node.tensor.shape
        if not is_whole or not _is_from_product(around, source, dims):
            continue
        others = [other for number, other in enumerate(call.args) if number != at]
        scales = call.op in ("mul", "div")
        if arg not in others and not (scales and _varies(around, node, others, dims)):
            return Linear(node=node, main=source.name, call=call, at=at)
    return None


def _is_from_product(around: Surroundings, node: Node, dims: tuple[int, ...]) -> bool:
    if isinstance(node.kind, Conv) or around.is_from_anchor(node.name):
        return True
    return isinstance(node.kind, Pointwise) and _linear_step(around, node, dims) is not None


def _varies(around: Surroundings, node: Node, others: list[Expr], dims: tuple[int, ...]) -> bool:
    """Whether one of the operands has several elements along the summed dimensions."""
    for other in others:
        if isinstance(other, Operand):
            kind = around.node(node.inputs[other.index]).type
            if isinstance(kind, TensorType):
                missing = node.tensor.rank - kind.rank
                if any(dim >= missing and kind.shape[dim - missing] != ONE for dim in dims):
                    return True
    return False


class SumsMade:
    """The new nodes, gathered from the product on."""

    def __init__(self, around: Surroundings, node: Node, dims: tuple[int, ...]) -> None:
        self._around = around
        self._node = node
        self._dims = dims
        self.nodes: list[Node] = []

    def product_of_sums(self, node: Node, kind: Contract) -> Node | None:
        """The product of the factors, each summed over the letters that disappear."""
        gone = {kind.out[dim] for dim in self._dims}
        if gone & set(kind.lhs) & set(kind.rhs) or len(gone) == len(kind.out):
            return None
        factors = []
        for name, letters in zip(node.inputs, (kind.lhs, kind.rhs), strict=True):
            factor = self._around.node(name)
            dims = tuple(at for at, letter in enumerate(letters) if letter in gone)
            factors.append(self._summed(factor, dims) if dims else factor)
        lhs, rhs, out = (
            "".join(letter for letter in letters if letter not in gone)
            for letters in (kind.lhs, kind.rhs, kind.out)
        )
        shape = tuple(
            dim for letter, dim in zip(kind.out, node.tensor.shape, strict=True) if letter in out
        )
        names = tuple(factor.name for factor in factors)
        small = self.add(node, Contract(lhs, rhs, out), shape, names)
        return self.add(node, View(Reshape()), self._node.tensor.shape, (small.name,), ())

    def summed_step(self, step: Linear, small: Node, shape: tuple[Dim, ...]) -> Node:
        """The step on the sums in place of the elements."""
        inputs = [small.name]
        args: list[Expr] = []
        for at, arg in enumerate(step.call.args):
            if at == step.at:
                args.append(Operand(0, small.tensor.dtype))
            elif step.call.op in ("add", "sub"):
                args.append(self._total(step, arg, inputs, shape))
            else:
                args.append(self._same(step, arg, inputs))
        expr = Call(step.call.op, tuple(args), step.call.dtype)
        return self.add(step.node, Pointwise(expr), small.tensor.shape, tuple(inputs))

    def _same(self, step: Linear, arg: Expr, inputs: list[str]) -> Expr:
        if isinstance(arg, Operand):
            inputs.append(step.node.inputs[arg.index])
            return Operand(len(inputs) - 1, arg.dtype)
        return arg

    def _total(self, step: Linear, arg: Expr, inputs: list[str], shape: tuple[Dim, ...]) -> Expr:
        """The sum of an addend over the dimensions, those that it is broadcast along too."""
        repeated = [shape[dim] for dim in self._dims]
        if isinstance(arg, Operand):
            addend = self._around.node(step.node.inputs[arg.index])
            if isinstance(addend.type, TensorType):
                missing = len(shape) - addend.tensor.rank
                own = tuple(
                    dim - missing
                    for dim in self._dims
                    if dim >= missing and addend.tensor.shape[dim - missing] != ONE
                )
                repeated = [shape[dim] for dim in self._dims if dim - missing not in own]
                addend = self.reduced(addend, own) if own else addend
            inputs.append(addend.name)
            arg = Operand(len(inputs) - 1, arg.dtype)
        if not repeated:
            return arg
        return Call("mul", (arg, Size(product(repeated), arg.dtype)), arg.dtype)

    def _summed(self, node: Node, dims: tuple[int, ...]) -> Node:
        total = self.reduced(node, dims)
        kept = tuple(dim for at, dim in enumerate(node.tensor.shape) if at not in dims)
        return self.add(node, View(Reshape()), kept, (total.name,), ())

    def reduced(self, node: Node, dims: tuple[int, ...]) -> Node:
        shape = tuple(ONE if at in dims else dim for at, dim in enumerate(node.tensor.shape))
        kind = Reduce(Reduction.SUM, dims)
        return self.add(node, kind, shape, (node.name,), self._node.operators)

    def add(
        self,
        like: Node,
        kind: Kind,
        shape: tuple[Dim, ...],
        inputs: tuple[str, ...],
        operators: tuple[str, ...] | None = None,
    ) -> Node:
        made = Node(
            name=self._around.fresh(like.name),
            kind=kind,
            type=TensorType(self._node.tensor.dtype, shape),
            inputs=inputs,
            operators=like.operators if operators is None else operators,
            source=like.source,
        )
        self.nodes.append(made)
        return made


SUM_RULES = (
    Rule(name="sum of a product becomes a product of sums", match=_sum_of_product, algebraic=True),
)
