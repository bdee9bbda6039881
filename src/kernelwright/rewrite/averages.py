"""An average of products is the product of an average: fewer multiplications, smaller results."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

from kernelwright.ir.calls import rename_call
from kernelwright.ir.expr import Call, Expr, Literal, Operand
from kernelwright.ir.graph import Node
from kernelwright.ir.kinds import Contract, Conv, Pointwise, Pooling, Unsqueeze, View, Window
from kernelwright.ir.sizes import ONE
from kernelwright.ir.types import TensorType
from kernelwright.rewrite.driver import Rule
from kernelwright.rewrite.surroundings import Surroundings

_MOST_POOLED = 3
"""Dimensions that kernels pool over."""


def _average_of_product(around: Surroundings, node: Node) -> tuple[Node, ...] | None:
    # sum_w sum_k A[m,k] B[k,w] / n = sum_k A[m,k] (sum_w B[k,w] / n), where w goes over a window of
    # n elements: A[m,k] does not depend on w. A convolution that looks at one place at a time is
    # such a product at each. What is added at all places alike is its own average. (In 16 bits it
    # is the average that is rounded on the way, in place of each product; in IEEE arithmetic other
    # sums overflow.)
    found = _averaged(around, node)
    if found is None or not _is_less_work(found, node):
        return None
    made = _Made(around, node, found)
    made.product_of_average()
    for step in reversed(found.steps):
        made.step(step)
    made.nodes[-1] = replace(made.nodes[-1], name=node.name)
    return tuple(made.nodes)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Averaged:
    """An average over windows, from its last step back to a product."""

    total: Node
    """The windows' sums."""
    window: Window
    steps: tuple[Node, ...]
    """Between the product and the windows, the last one first."""
    product: Node
    at: int
    """Which of its operands has the pooled dimensions."""
    behind: int
    """Dimensions that this operand has behind those."""
    factor: Node

    @property
    def pooled(self) -> int:
        """How many dimensions are pooled: the last ones of the product."""
        return len(self.window.size)


def _is_less_work(found: _Averaged, node: Node) -> bool:
    """Whether half the results are enough, and fewer elements are written and read again."""
    results = found.product.tensor.numel_hint
    share = node.tensor.numel_hint / results
    return share <= 0.5 and share * found.factor.tensor.numel_hint < results


# --- What is averaged --------------------------------------------------------------------------


def _averaged(around: Surroundings, node: Node) -> _Averaged | None:
    if not isinstance(node.kind, Pointwise) or len(node.inputs) != 1:
        return None
    total = around.node(node.inputs[0])
    window = total.kind
    if not isinstance(window, Window) or not _is_average(node.kind.expr, window):
        return None
    steps: list[Node] = []
    current = around.node(total.inputs[0])
    while (source := _source_of_step(around, current, len(window.size))) is not None:
        steps.append(current)
        current = around.node(source)
    if not all(_is_private(around, it) for it in (total, *steps, current)):
        return None
    factor = _factor(around, current, len(window.size))
    same_type = isinstance(current.type, TensorType) and current.type.dtype == node.tensor.dtype
    if factor is None or not same_type or not around.may_move(current):
        return None
    if _has_bias(current, steps) and not _stays_inside(around, window, total):
        return None
    at, behind = factor
    return _Averaged(
        total=total,
        window=window,
        steps=tuple(steps),
        product=current,
        at=at,
        behind=behind,
        factor=around.node(current.inputs[at]),
    )


def _is_private(around: Surroundings, node: Node) -> bool:
    return around.readers(node.name) == 1 and around.unseen(node.name)


def _is_average(expr: Expr, window: Window) -> bool:
    """Whether a step divides the sums of windows by how many elements each has."""
    match _bare(expr):
        case Call(op="div", args=(Operand(), Literal(value=count))):
            is_plain = window.op is Pooling.SUM and not any(window.padding)
            return is_plain and set(window.dilation) == {1} and count == prod(window.size)
    return False


def _bare(expr: Expr) -> Expr:
    """The expression without conversions around it."""
    while isinstance(expr, Call) and expr.op == "cast":
        (expr,) = expr.args
    return expr


def _source_of_step(around: Surroundings, node: Node, pooled: int) -> str | None:
    """What a step is made of, if an average over the last dimensions may be taken before it."""
    match node.kind:
        case View(Unsqueeze(dim)) if dim < node.tensor.rank - pooled:
            return node.inputs[0]
        case Pointwise(Call(op="cast", args=(Operand(dtype=dtype),))):
            wider = dtype.is_float and dtype.itemsize < node.tensor.dtype.itemsize
            return node.inputs[0] if wider else None
        case Pointwise(expr):
            match _bare(expr):
                case Call(op="add", args=(first, second)):
                    if isinstance(_bare(first), Operand) and isinstance(_bare(second), Operand):
                        return _source_of_sum(around, node, pooled)
    return None


def _source_of_sum(around: Surroundings, node: Node, pooled: int) -> str | None:
    """The operand to which the other adds the same at all places, or a row of as many as those."""
    for name, bias in (node.inputs, node.inputs[::-1]) if len(node.inputs) == 2 else ():
        kind = around.node(bias).type
        if around.node(name).type != node.type or not isinstance(kind, TensorType):
            continue
        is_one = all(size == ONE for size in kind.shape[-pooled:])
        if kind.dtype == node.tensor.dtype and (is_one or _is_row(kind, node, pooled)):
            return name
    return None


def _is_row(kind: TensorType, node: Node, pooled: int) -> bool:
    """Whether an operand of a step has its pooled dimensions and no others."""
    return kind.shape == node.tensor.shape[-pooled:]


def _factor(around: Surroundings, product: Node, pooled: int) -> tuple[int, int] | None:
    """The one operand that has the pooled dimensions, and how many it has behind them."""
    match product.kind:
        case Contract(lhs, rhs, out) if len(out) >= pooled:
            letters = out[len(out) - pooled :]
            for at, (mine, other) in enumerate(((lhs, rhs), (rhs, lhs))):
                if letters in mine and set(letters).isdisjoint(other):
                    behind = len(mine) - mine.index(letters) - pooled
                    return (at, behind) if pooled + behind <= _MOST_POOLED else None
        case Conv() as conv if _is_pointwise(around, conv, product, pooled):
            return 0, 0
    return None


def _is_pointwise(around: Surroundings, conv: Conv, node: Node, pooled: int) -> bool:
    """Whether a convolution looks at one place at a time, and at each."""
    if conv.transposed or len(conv.stride) != pooled or node.inputs[0] in node.inputs[1:]:
        return False
    taps = around.node(node.inputs[1]).tensor.shape[2:]
    at_each = set(conv.stride) == {1} and not any(conv.padding)
    return at_each and all(size == ONE for size in taps)


def _has_bias(product: Node, steps: list[Node]) -> bool:
    added = any(len(step.inputs) > 1 for step in steps)
    return added or (isinstance(product.kind, Conv) and len(product.inputs) > 2)


def _stays_inside(around: Surroundings, window: Window, total: Node) -> bool:
    """Whether it is known that no window, at any size, reaches beyond what it is over.

    In ceil mode some do, and there is no bias outside.
    """
    count = len(window.size)
    sources = around.node(total.inputs[0]).tensor.shape[-count:]
    results = total.tensor.shape[-count:]
    return all(
        (result.hint - 1) * stride + size <= source.hint
        if source.is_static
        else result.text in _counts(size, stride, source.text)
        for size, stride, source, result in zip(
            window.size, window.stride, sources, results, strict=True
        )
    )


def _counts(size: int, stride: int, source: str) -> Iterator[str]:
    """How the number of windows that are whole is written of few sizes."""
    if size == stride == 1:
        yield source
    for text in (source, f"({source})"):
        yield f"(({text} - {size}) // {stride}) + 1"
        if size == stride:
            yield f"{text} // {stride}"


# --- What takes its place ----------------------------------------------------------------------


class _Made:
    """The new nodes, gathered from the average of the factor on."""

    def __init__(self, around: Surroundings, node: Node, found: _Averaged) -> None:
        self._around = around
        self._node = node
        self._found = found
        self.nodes: list[Node] = []

    def product_of_average(self) -> None:
        """The product, or the convolution, with the average of the factor in the factor's place."""
        product, factor, at = self._found.product, self._found.factor, self._found.at
        average = self._average(factor, self._found.behind)
        call = product.origin if isinstance(product.kind, Conv) else None
        self._add(
            replace(
                product,
                type=self._at_windows(product.tensor),
                inputs=(*product.inputs[:at], average, *product.inputs[at + 1 :]),
                origin=call and rename_call(call, {factor.name: average}),
            )
        )

    def step(self, step: Node) -> None:
        """The step on averages; these have been narrowed again."""
        source, kind = self.nodes[-1].name, self._at_windows(step.tensor)
        if isinstance(step.kind, View):
            self._add(replace(step, type=kind, inputs=(source,), origin=None))
        elif len(step.inputs) == 2:
            main = _source_of_sum(self._around, step, self._found.pooled)
            inputs = tuple(
                source if name == main else self._bias(name, step) for name in step.inputs
            )
            self._add(replace(step, type=kind, inputs=inputs, origin=None))

    def _bias(self, name: str, step: Node) -> str:
        bias = self._around.node(name)
        is_row = _is_row(bias.tensor, step, self._found.pooled)
        return self._average(bias, 0) if is_row else name

    def _average(self, source: Node, behind: int) -> str:
        """The averages of a tensor over the windows, which have one element in what is behind."""
        node, total, window = self._node, self._found.total, self._found.window
        dtype, shape = total.tensor.dtype, source.tensor.shape
        name = source.name
        if source.tensor.dtype != dtype:
            wide = Pointwise(Call("cast", (Operand(0, source.tensor.dtype),), dtype))
            kind = TensorType(dtype, shape)
            name = self._add(replace(node, kind=wide, type=kind, inputs=(name,), operators=()))
        end = len(shape) - behind
        places = node.tensor.shape[-self._found.pooled :]
        shape = (*shape[: end - len(places)], *places, *shape[end:])
        ones = (1,) * behind
        windows = Window(
            op=window.op,
            size=window.size + ones,
            stride=window.stride + ones,
            padding=window.padding + (0,) * behind,
            dilation=window.dilation + ones,
        )
        kind = TensorType(dtype, shape)
        name = self._add(replace(total, kind=windows, type=kind, inputs=(name,)))
        kind = TensorType(node.tensor.dtype, shape)
        return self._add(replace(node, type=kind, inputs=(name,)))

    def _at_windows(self, kind: TensorType) -> TensorType:
        """The type with the pooled dimensions as the windows are."""
        places = self._node.tensor.shape[-self._found.pooled :]
        return TensorType(self._node.tensor.dtype, (*kind.shape[: -len(places)], *places))

    def _add(self, node: Node) -> str:
        """A copy of the node under a name of its own."""
        made = replace(node, name=self._around.fresh(node.name))
        self.nodes.append(made)
        return made.name


AVERAGE_RULES = (
    Rule(
        name="average of a product becomes a product of an average",
        match=_average_of_product,
        algebraic=True,
    ),
)
