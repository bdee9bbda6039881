"""Meaning of recurrent layers: one step after the other in plain PyTorch."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from kernelwright.ir.recurrence import Cell, Recurrent


def recurred(kind: Recurrent, operands: Sequence[Any]) -> tuple[torch.Tensor, ...]:
    """The results of a stack: its sequence, and the last states."""
    sequence: torch.Tensor = operands[0]
    if kind.batch_first:
        sequence = sequence.transpose(0, 1)
    first, weights = operands[1 : kind.first_weight], operands[kind.first_weight :]
    last: list[list[torch.Tensor]] = [[] for _ in first]
    for layer in range(kind.layers):
        parts = []
        for direction in range(kind.directions):
            at = layer * kind.directions + direction
            own = weights[at * kind.tensors_each : (at + 1) * kind.tensors_each]
            states = [state[at] for state in first]
            hidden = []
            for step in sequence.flip(0) if direction else sequence:
                states = _next(kind.cell, step, states, own)
                hidden.append(states[0])
            parts.append(torch.stack(hidden[::-1] if direction else hidden))
            for kept, state in zip(last, states, strict=True):
                kept.append(state)
        sequence = torch.cat(parts, -1)
    result = sequence.transpose(0, 1) if kind.batch_first else sequence
    return (result, *(torch.stack(kept) for kept in last))


def _next(
    cell: Cell, step: torch.Tensor, states: list[torch.Tensor], own: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    """The states after one step of one layer."""
    of_input, of_hidden, *biases = own
    from_input = F.linear(step, of_input, *biases[:1]).chunk(cell.gates, -1)
    from_hidden = F.linear(states[0], of_hidden, *biases[1:]).chunk(cell.gates, -1)
    if cell in _PLAIN:
        return [_PLAIN[cell](from_input[0] + from_hidden[0])]
    if cell is Cell.GRU:
        reset, update = (
            torch.sigmoid(a + b) for a, b in zip(from_input[:2], from_hidden[:2], strict=True)
        )
        fresh = torch.tanh(from_input[2] + reset * from_hidden[2])
        return [fresh + update * (states[0] - fresh)]
    enter, forget, fresh, leave = (a + b for a, b in zip(from_input, from_hidden, strict=True))
    kept = torch.sigmoid(forget) * states[1] + torch.sigmoid(enter) * torch.tanh(fresh)
    return [torch.sigmoid(leave) * torch.tanh(kept), kept]


_PLAIN: Mapping[Cell, Callable[[torch.Tensor], torch.Tensor]] = {
    Cell.RNN_TANH: torch.tanh,
    Cell.RNN_RELU: torch.relu,
}
"""Next state of cells with one gate."""
