"""Result shapes of the recurrent operators, so that tracing does not unroll them over time.

PyTorch knows the shape of an LSTM's result only by running its decomposition: one traced step for
each element of the sequence, a minute and more for a sequence of 512, and its length held fast.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch._C import DispatchKey
from torch._decomp import decomposition_table


def _shapes(
    input: torch.Tensor,
    state: torch.Tensor | list[torch.Tensor],
    *options: Any,
) -> tuple[torch.Tensor, ...]:
    """Empty results: outputs (time, batch, directions * hidden) and the last state or states."""
    *_, bidirectional, _batch_first = options
    states = [state] if isinstance(state, torch.Tensor) else list(state)
    hidden = states[0].shape[-1] * (2 if bidirectional else 1)
    outputs = input.new_empty((*input.shape[:2], hidden))
    return (outputs, *(item.new_empty(item.shape) for item in states))


@contextmanager
def recurrent_shapes() -> Iterator[None]:
    """While it lasts, tracing takes the results of recurrent operators from `_shapes`."""
    aten = torch.ops.aten
    operators = (aten.lstm.input, aten.gru.input, aten.rnn_tanh.input, aten.rnn_relu.input)
    kernels = {operator: dict(operator.py_kernels) for operator in operators}
    table: dict[Any, Any] = {operator: decomposition_table[operator] for operator in operators}
    try:
        for operator in operators:
            _set_kernels(operator, {DispatchKey.CompositeImplicitAutograd: _shapes})
            decomposition_table[operator] = _shapes
        yield
    finally:
        decomposition_table.update(table)
        for operator in operators:
            _set_kernels(operator, kernels[operator])


def _set_kernels(operator: Any, kernels: Mapping[DispatchKey, Any]) -> None:
    operator.py_kernels.clear()
    operator.py_kernels.update(kernels)
    operator._dispatch_cache.clear()
