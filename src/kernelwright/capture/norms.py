"""Layer, group, instance, batch and RMS norm: moments of rows, and what each makes of them."""

from collections.abc import Sequence

import torch

from kernelwright.capture.making import (
    ItemRule,
    Maker,
    NotMadeError,
    Part,
    Rows,
    Rule,
    counted,
)
from kernelwright.capture.reductions import Each, mean_of, variance
from kernelwright.capture.scope import op
from kernelwright.capture.types import dtype_of
from kernelwright.ir.expr import Expr
from kernelwright.ir.graph import Update
from kernelwright.ir.kinds import Parameter, Reduction
from kernelwright.ir.sizes import ONE
from kernelwright.ir.types import Dim, DType


def _normalized(m: Maker, rows: Rows, weight: Part | None, bias: Part | None) -> Part:
    """(x - mean) / sqrt(variance + eps) * weight + bias, of rows in the computation's type."""
    mean, m2 = m.reduce_twice(Reduction.MOMENTS, rows, ("mean", "m2"))
    return _scaled(m, (rows.value, mean, m2), weight, bias, lambda x: variance(m, x, rows, 0))


def _scaled(
    m: Maker,
    parts: tuple[Part, Part, Part],
    weight: Part | None,
    bias: Part | None,
    variance_of: Each,
) -> Part:
    """The norm of an element from its mean and whatever `variance_of` makes a variance of."""
    eps = m.number(m.literal("eps"))
    factors = [factor for factor in (weight, bias) if factor is not None]

    def normalize(x: Expr, mean: Expr, spread: Expr, *factors: Expr) -> Expr:
        rest = list(factors)
        scale = op("rsqrt", op("add", variance_of(spread), eps))
        result = op("mul", op("sub", x, mean), scale)
        if weight is not None:
            result = op("mul", result, rest.pop(0))
        return op("add", result, rest.pop(0)) if rest else result

    return m.apply(normalize, *parts, *factors, dtype=m.dtype)


def _last(m: Maker, value: Part) -> list[int]:
    """The dimensions that `normalized_shape` names: as many, at the end."""
    return list(range(-len(m.call.arguments["normalized_shape"]), 0))


def _layer_norm(m: Maker) -> Part:
    value = m.wide(m.tensor("input"))
    rows = m.rows(value, _last(m, value), keeps=True)
    return _normalized(m, rows, m.optional("weight"), m.optional("bias"))


def _rms_norm(m: Maker) -> Part:
    """Without `eps`, the distance from 1 to the next number of the computation's type."""
    value = m.tensor("input")
    given = m.call.arguments.get("eps")
    eps = m.number(_EPSILON[m.compute] if given is None else m.literal("eps"))
    wide = m.wide(value)
    rows = m.rows(wide, _last(m, value), keeps=True)
    squares = m.apply(lambda x: op("mul", x, x), wide, name="square")
    mean = mean_of(m, squares, rows=Rows(squares, rows.dims, keeps=True))
    weight = m.optional("weight")

    def normalize(x: Expr, mean: Expr, *weight: Expr) -> Expr:
        result = op("mul", x, op("rsqrt", op("add", mean, eps)))
        return op("mul", result, weight[0]) if weight else result

    factors = [weight] if weight is not None else []
    return m.apply(normalize, wide, mean, *factors, dtype=m.dtype)


def _group_norm(m: Maker) -> Part:
    """The channels of a group lie together: under a view they are rows."""
    value, groups = m.tensor("input"), m.call.arguments["num_groups"]
    traced = m.call.traced("input")
    batch, _, *space = value.shape
    split = (Dim.static(groups), m.builder.sizes.dim(traced.shape[1] // groups))
    wide = m.reshape(m.wide(value), (batch, *split, *space))
    channels = (*split, *[ONE] * len(space))
    factors = [
        None if part is None else m.reshape(part, channels)
        for part in (m.optional("weight"), m.optional("bias"))
    ]
    rows = m.rows(wide, list(range(2, len(wide.shape))), keeps=True)
    return m.reshape(_normalized(m, rows, *factors), value.shape)


def _channels(m: Maker, value: Part, names: Sequence[str]) -> list[Part | None]:
    """Arguments with one value for each channel, ready to broadcast over what `value` has."""
    return [m.trailing(m.optional(name), len(value.shape) - 2) for name in names]


def _instance_norm(m: Maker) -> Part:
    value = m.wide(m.tensor("input"))
    names = ("weight", "bias", "running_mean", "running_var")
    weight, bias, *statistics = _channels(m, value, names)
    if not m.call.arguments["use_input_stats"]:
        return _with_statistics(m, value, weight, bias, (statistics[0], statistics[1]))
    if len(value.shape) < 3:
        raise NotMadeError
    rows = Rows(value, tuple(range(2, len(value.shape))), keeps=False)
    mean, m2 = m.reduce_twice(Reduction.MOMENTS, rows, ("mean", "m2"))
    if statistics != [None, None]:
        _update(m, "running_mean", _batch_mean(m, mean, rows, lambda x: x))
        _update(m, "running_var", _batch_mean(m, m2, rows, lambda x: _unbiased(m, x, rows)))
    parts = (value, mean, m2)
    return _scaled(m, parts, weight, bias, lambda x: variance(m, x, rows, 0))


def _batch_mean(m: Maker, totals: Part, rows: Rows, statistic: Each) -> Part:
    """The mean over the batch of a statistic of every instance, one for each channel."""
    each = m.apply(statistic, totals, name="statistic")
    return mean_of(m, each, rows=Rows(each, (0,), keeps=True))


def _update(m: Maker, name: str, batch: Part) -> None:
    """A buffer that the call changes, although its schema does not say so."""
    kind = m.builder.node(m.tensor(name).name).kind
    if not isinstance(kind, Parameter):
        raise NotMadeError
    dims = tuple(dim for dim in range(len(batch.shape)) if dim != 1)
    moved = _moved(m, name, batch, Rows(batch, dims, keeps=False), lambda x: x)
    m.builder.updates.append(Update(path=kind.path, value=moved.name))


def _with_statistics(
    m: Maker,
    value: Part,
    weight: Part | None,
    bias: Part | None,
    statistics: tuple[Part | None, Part | None],
) -> Part:
    """By the mean and the variance that the module holds."""
    mean, var = statistics
    if mean is None or var is None:
        raise NotMadeError
    return _scaled(m, (value, mean, var), weight, bias, lambda x: x)


_EPSILON = {DType.F32: torch.finfo(torch.float32).eps, DType.F64: torch.finfo(torch.float64).eps}


# --- Batch norm --------------------------------------------------------------------------------


def _batch_norm(m: Maker, used: frozenset[int]) -> dict[int, Part]:
    """Items: the result, the mean and inverse deviation of the batch, the new statistics."""
    arguments = {"running_mean": None, "running_var": None, "training": False} | m.call.arguments
    value = m.wide(m.tensor("input"))
    weight, bias = _channels(m, value, ("weight", "bias"))
    if not arguments["training"]:
        statistics = _channels(m, value, ("running_mean", "running_var"))
        if used != {0}:
            raise NotMadeError
        return {0: _with_statistics(m, value, weight, bias, (statistics[0], statistics[1]))}
    if used & {1, 2}:
        raise NotMadeError
    dims = [dim for dim in range(len(value.shape)) if dim != 1]
    rows = Rows(value, counted(dims, len(value.shape)), keeps=True)
    mean, m2 = m.reduce_twice(Reduction.MOMENTS, rows, ("mean", "m2"))
    made = {
        0: _scaled(m, (value, mean, m2), weight, bias, lambda x: variance(m, x, rows, 0)),
    }
    if 3 in used:
        moved = _moved(m, "running_mean", mean, rows, lambda x: x)
        made[3] = m.converted(moved, dtype_of(m.call.result[3].dtype))
    if 4 in used:
        moved = _moved(m, "running_var", m2, rows, lambda x: _unbiased(m, x, rows))
        made[4] = m.converted(moved, dtype_of(m.call.result[4].dtype))
    return made


def _unbiased(m: Maker, m2: Expr, rows: Rows) -> Expr:
    return op("div", m2, op("sub", m.count(rows), m.number(1.0)))


def _moved(m: Maker, name: str, batch: Part, rows: Rows, statistic: Each) -> Part:
    """A running statistic after a batch: (1 - momentum) * old + momentum * new."""
    buffer, momentum = m.tensor(name), m.literal("momentum")
    old = m.reshape(buffer, batch.shape[1:])

    def move(old: Expr, new: Expr) -> Expr:
        kept = op("mul", old, m.number(1.0 - momentum))
        return op("add", kept, op("mul", statistic(new), m.number(momentum)))

    return m.squeeze(m.apply(move, old, batch, name=f"new_{name}", dtype=old.dtype), rows.dims)


RULES: dict[str, Rule] = {
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "group_norm": _group_norm,
    "instance_norm": _instance_norm,
}
"""By the operator's short name."""

ITEM_RULES: dict[str, ItemRule] = {
    "batch_norm": _batch_norm,
}
"""Operators with several results, by the name that people know them by."""
