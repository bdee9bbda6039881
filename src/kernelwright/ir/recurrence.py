"""Recurrent layers: what a node for a stack of them says."""

from dataclasses import dataclass
from enum import StrEnum


class Cell(StrEnum):
    """How the next state of a unit comes from its gates, as PyTorch has it."""

    LSTM = "lstm"
    GRU = "gru"
    RNN_TANH = "rnn_tanh"
    RNN_RELU = "rnn_relu"

    @property
    def states(self) -> int:
        """States that a unit carries from step to step: the hidden one first."""
        return 2 if self is Cell.LSTM else 1

    @property
    def gates(self) -> int:
        """Blocks of rows of its weights."""
        return {Cell.LSTM: 4, Cell.GRU: 3}.get(self, 1)


@dataclass(frozen=True, slots=True)
class Recurrent:
    """A stack of recurrent layers in evaluation: a layer reads what all directions below it give.

    Inputs: the sequence, the first states (layers * directions, batch, hidden), and for each layer
    and direction its weights of inputs and of hidden states, then their biases if there are any.
    Results: the sequence of the last layer's hidden states, then the last states of all.
    """

    cell: Cell
    layers: int
    directions: int
    """2: the second one begins at the sequence's end."""
    has_bias: bool
    batch_first: bool
    """The sequences are (batch, steps, features) and not (steps, batch, features)."""
    is_loop: bool = False
    """The module calls a cell for each step. That multiplies float32 as such: the library's layers,
    which may take TF32, are no way to compute it."""

    @property
    def tensors_each(self) -> int:
        """Weights and biases of a layer's direction."""
        return 4 if self.has_bias else 2

    @property
    def first_weight(self) -> int:
        """Index of the first of them among the inputs."""
        return 1 + self.cell.states

    @property
    def input_count(self) -> int:
        """Inputs in all."""
        return self.first_weight + self.layers * self.directions * self.tensors_each
