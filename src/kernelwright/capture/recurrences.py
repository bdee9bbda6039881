"""Recurrent layers of `torch.nn`: a `Recurrent` node for the whole stack."""

from kernelwright.capture.builder import Builder, Call
from kernelwright.ir.recurrence import Cell, Recurrent


def recurrent(builder: Builder, call: Call) -> str | None:
    """The node of a stack of LSTM or GRU layers; None of another call.

    None too where layers drop elements, and where states are projected.
    """
    kind = _kind_of(call)
    if kind is None:
        return None
    given = call.arguments
    first = given["hx"] if kind.cell is Cell.LSTM else [given["hx"]]
    inputs = [builder.tensor(value) for value in (given["input"], *first, *given["params"])]
    return builder.add_call(call, kind, inputs, builder.origin(call.node))


def _kind_of(call: Call) -> Recurrent | None:
    if call.name not in ("aten.lstm.input", "aten.gru.input"):
        return None
    given = call.arguments
    kind = Recurrent(
        cell=Cell(call.operator),
        layers=given["num_layers"],
        directions=2 if given["bidirectional"] else 1,
        has_bias=given["has_biases"],
        batch_first=given["batch_first"],
    )
    drops = given["train"] and given["dropout"]
    is_whole = len(given["params"]) == kind.input_count - kind.first_weight
    return kind if is_whole and not drops else None
