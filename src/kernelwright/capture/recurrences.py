"""Recurrent layers of `torch.nn`: a `Recurrent` node for the whole stack."""

from kernelwright.capture.builder import Builder, Call
from kernelwright.ir.graph import Guard
from kernelwright.ir.kinds import Opaque
from kernelwright.ir.recurrence import Cell, Recurrent


def recurrent(builder: Builder, call: Call) -> str | None:
    """The node of a stack of layers; None of another call, and where layers drop elements."""
    given = call.arguments
    if call.name not in _OPERATORS or (given["train"] and given["dropout"]):
        return None
    kind = _kind_of(call)
    if len(given["params"]) != kind.input_count - kind.first_weight:
        projected = Opaque(why="its states are projected, and no kernel keeps such weights on chip")
        origin = builder.origin(call.node)
        return builder.add_call(call, projected, origin.refs, origin)
    _require_steps(builder, call, kind)
    first = given["hx"] if kind.cell is Cell.LSTM else [given["hx"]]
    inputs = [builder.tensor(value) for value in (given["input"], *first, *given["params"])]
    return builder.add_call(call, kind, inputs, builder.origin(call.node))


_OPERATORS = frozenset(f"aten.{cell}.input" for cell in Cell)


def _require_steps(builder: Builder, call: Call, kind: Recurrent) -> None:
    """As PyTorch does: there is no last state of no steps."""
    steps = builder.sizes.dim(call.traced("input").shape[1 if kind.batch_first else 0])
    guard = Guard(condition=f"{steps} >= 1", message="a sequence must have a step at least")
    if not steps.is_static and guard not in builder.sizes.guards:
        builder.sizes.guards.append(guard)


def _kind_of(call: Call) -> Recurrent:
    given = call.arguments
    return Recurrent(
        cell=Cell(call.operator),
        layers=given["num_layers"],
        directions=2 if given["bidirectional"] else 1,
        has_bias=given["has_biases"],
        batch_first=given["batch_first"],
    )
