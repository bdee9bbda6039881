"""Result shapes of operators that tracing has a slow or a wrong idea of.

PyTorch knows the shape of an LSTM's result only by running its decomposition: one traced step for
each element of the sequence, a minute and more for a sequence of 512, and its length held fast.
What it runs for the shape of nll_loss takes every reduction for a mean. Where sizes are symbolic,
torch 2.6's short cut for the type of a quotient of integers says that it is one. Normalizations and
activations it takes apart to find that the result is as large as the argument, which is half the
time that it takes to trace a deep network.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch._C import DispatchKey
from torch._decomp import decomposition_table
from torch._prims_common import get_computation_dtype
from torch._subclasses.fake_impls import get_fast_op_impls
from torch.fx.experimental.symbolic_shapes import sym_eq


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


def _shape_of_loss(
    input: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    reduction: int = 1,
    ignore_index: int = -100,
) -> torch.Tensor:
    """An empty loss: one number, or one for each target if `reduction` is 0."""
    return input.new_empty(() if reduction else target.shape)


def _same(input: torch.Tensor, *_options: Any, **_more: Any) -> torch.Tensor:
    """An empty result like the argument."""
    return torch.empty_like(input)


def _shapes_of_norm(
    input: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    mean: torch.Tensor,
    variance: torch.Tensor,
    training: bool,  # noqa: FBT001 - the operator's own arguments
    momentum: float,
    eps: float,
) -> tuple[torch.Tensor, ...]:
    """Empty results: the normalized input and what backward needs, one number for each channel."""
    channels = input.shape[1] if training else 0
    saved = input.new_empty((channels,), dtype=get_computation_dtype(input.dtype))
    return (torch.empty_like(input), saved, torch.empty_like(saved))


def _shapes_of_functional_norm(
    input: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    mean: torch.Tensor,
    variance: torch.Tensor,
    *options: Any,
) -> tuple[torch.Tensor, ...]:
    """Results of the norm, and the running mean and variance as they are afterwards."""
    results = _shapes_of_norm(input, weight, bias, mean, variance, *options)
    return (*results, torch.empty_like(mean), torch.empty_like(variance))


def _shapes_of_layer_norm(
    input: torch.Tensor,
    normalized: Sequence[int],
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    eps: float,
) -> tuple[torch.Tensor, ...]:
    """Empty results: the normalized input and what backward needs, two numbers for each row."""
    kept, shape = input.ndim - len(normalized), tuple(normalized)
    operands = {"input": input.shape[max(kept, 0) :]}
    operands |= {
        name: it.shape for name, it in (("weight", weight), ("bias", bias)) if it is not None
    }
    for name, found in operands.items():
        # This holds open sizes at the numbers that the module has.
        message = f"layer_norm over {shape}: {name} has {tuple(found)}"
        torch._check(sym_eq(found, shape), lambda text=message: text)  # type: ignore[no-untyped-call]
    is_rounded = input.device.type == "cpu"
    dtype = input.dtype if is_rounded else get_computation_dtype(input.dtype)
    mean = input.new_empty((*input.shape[:kept], *(1 for _ in shape)), dtype=dtype)
    return (input.new_empty(input.shape), mean, torch.empty_like(mean))


@contextmanager
def known_shapes() -> Iterator[None]:
    """While it lasts, tracing takes the results of these operators from here."""
    aten = torch.ops.aten
    recurrent = (aten.lstm.input, aten.gru.input, aten.rnn_tanh.input, aten.rnn_relu.input)
    shapes: dict[Any, Any] = {operator: _shapes for operator in recurrent}
    shapes[aten.nll_loss_nd.default] = _shape_of_loss
    kernels = {operator: dict(operator.py_kernels) for operator in shapes}
    composite = tuple(shapes)
    shapes |= {
        aten._native_batch_norm_legit.default: _shapes_of_norm,
        aten._native_batch_norm_legit_functional.default: _shapes_of_functional_norm,
        aten.native_layer_norm.default: _shapes_of_layer_norm,
        aten.relu.default: _same,
        aten.hardtanh.default: _same,
    }
    table: dict[Any, Any] = {
        operator: decomposition_table[operator]
        for operator in shapes
        if operator in decomposition_table
    }
    short_cuts = get_fast_op_impls()
    division = short_cuts.pop(aten.div.Tensor)
    try:
        for operator, shape in shapes.items():
            decomposition_table[operator] = shape
        for operator in composite:
            _set_kernels(operator, {DispatchKey.CompositeImplicitAutograd: shapes[operator]})
        yield
    finally:
        for operator in shapes:
            del decomposition_table[operator]
        for operator in composite:
            _set_kernels(operator, kernels[operator])
        decomposition_table.update(table)
        short_cuts[aten.div.Tensor] = division


def _set_kernels(operator: Any, kernels: Mapping[DispatchKey, Any]) -> None:
    operator.py_kernels.clear()
    operator.py_kernels.update(kernels)
    operator._dispatch_cache.clear()
