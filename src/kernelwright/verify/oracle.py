"""The reference in float64, on the very same values.

The module is copied and converted, and while it runs every low-precision tensor or dtype that an
operator meets (a `torch.zeros` inside `forward`, a `.float()`, a plain tensor attribute) is raised
to float64 as well, so modules that spell out float32 need no special case.
"""

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
from torch import Tensor, nn

from kernelwright.problem.modes import Mode
from kernelwright.verify.nesting import map_tensors, named_effects, named_tensors
from kernelwright.verify.noise import Noise, Ties

_RAISED = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex64: torch.complex128,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OracleRun:
    """What the float64 run gave, or why there is none."""

    tensors: Mapping[str, Tensor]
    """Results, arguments and state after the call, named as by `named_effects`; empty if the
    module does not run in float64."""
    note: str
    """Empty, or why there are no tensors, in one sentence."""
    out_of_memory: bool = False
    """Whether the device had too little memory for it."""


def upcast(tensor: Tensor) -> Tensor:
    """`tensor` in float64 (complex128), every value unchanged; integers as they are."""
    raised = _RAISED.get(tensor.dtype)
    return tensor if raised is None else tensor.to(raised)


class _InFloat64(Mode):  # type: ignore[no-untyped-call]
    """Raises the tensors and dtypes that operators are given."""

    def __torch_dispatch__(  # type: ignore[no-untyped-def]
        self, func, types, args=(), kwargs=None
    ):
        def raise_value(value: object) -> object:
            match value:
                case torch.dtype():
                    return _RAISED.get(value, value)
                case list() | tuple():
                    return type(value)(raise_value(item) for item in value)
                case Tensor():
                    return upcast(value)
                case _:
                    return value

        if func.overloadpacket in _DRAW:
            return map_tensors(_drawn(func, args, kwargs or {}), upcast)
        raised = [raise_value(argument) for argument in args]
        keywords = {name: raise_value(value) for name, value in (kwargs or {}).items()}
        return func(*raised, **keywords)


_DRAW = frozenset(
    getattr(torch.ops.aten, name)
    for name in (
        *("native_dropout", "bernoulli", "bernoulli_", "rand", "rand_like", "uniform_"),
        *("randn", "randn_like", "normal", "normal_", "exponential_", "log_normal_"),
    )
)
"""Not attention and recurrent cells: these may drop numbers, and compute."""


def _drawn(
    func: torch._ops.OpOverload, args: Sequence[Any], keywords: Mapping[str, object]
) -> object:
    """What an operator draws for float32: a generator's numbers are others in float64.

    A module that is float64 itself has others then; its results are compared with each other.
    """
    if func is torch.ops.aten.native_dropout.default:
        return _dropped(*args)
    drawn = [_lowered(argument) for argument in args]
    result = func(*drawn, **{name: _lowered(value) for name, value in keywords.items()})
    return args[0].copy_(drawn[0]) if func._schema.is_mutable else result


def _lowered(value: object) -> object:
    match value:
        case torch.float64:
            return torch.float32
        case Tensor() if value.dtype == torch.float64:
            return value.to(torch.float32)
    return value


def _dropped(x: Tensor, share: float, *trains: bool | None) -> tuple[Tensor, Tensor]:
    """Dropout, of which only the choice is drawn: values stay as exact as they are."""
    ones = torch.ones_like(x, dtype=torch.float32)
    _, kept = torch.native_dropout(ones, share, *trains)
    raised = upcast(x)
    if trains == (False,):
        return raised, kept
    return raised * kept * (1.0 / (1.0 - share) if share < 1.0 else 0.0), kept


class _Shortened(_InFloat64):
    """Besides, rounds what cuDNN multiplies, as it does with shorter operands."""

    def __init__(self, noise: Noise) -> None:
        super().__init__()
        self._noise = noise

    def __torch_dispatch__(  # type: ignore[no-untyped-def]
        self, func, types, args=(), kwargs=None
    ):
        recurs = func.overloadpacket is torch.ops.aten._cudnn_rnn
        if recurs or func.overloadpacket is torch.ops.aten.convolution:
            operands = [map_tensors(operand, self._shortened) for operand in args[:2]]
            args = (*operands, *args[2:])
        if recurs:  # the buffer has all weights once more, and they would be read there
            args = (*args[:3], None, *args[4:])
        return super().__torch_dispatch__(  # type: ignore[no-untyped-call]
            func, types, args, kwargs
        )

    def _shortened(self, operand: Tensor) -> Tensor:
        raised = _raised_copy(operand)
        self._noise.add_to(raised, _TF32_EPSILON)
        return raised


class _RoundingAll(_InFloat64):
    """Besides, rounds every result that has memory of its own."""

    def __init__(self, noise: Noise, epsilon: float) -> None:
        super().__init__()
        self._noise = noise
        self._epsilon = epsilon

    def __torch_dispatch__(  # type: ignore[no-untyped-def]
        self, func, types, args=(), kwargs=None
    ):
        result = super().__torch_dispatch__(  # type: ignore[no-untyped-call]
            func, types, args, kwargs
        )
        returned = result if isinstance(result, list | tuple) else [result]
        # Views of one result, or of an argument, say so in the operator's schema.
        for tensor, described in zip(returned, func._schema.returns, strict=False):
            if isinstance(tensor, Tensor) and described.alias_info is None:
                self._noise.add_to(tensor, self._epsilon)
        return result


class _Finest(Mode):  # type: ignore[no-untyped-call]
    """Notes the smallest epsilon of what operators give."""

    epsilon: float = 1.0

    def __torch_dispatch__(  # type: ignore[no-untyped-def]
        self, func, types, args=(), kwargs=None
    ):
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, list | tuple) else [result]:
            if isinstance(tensor, Tensor) and tensor.is_floating_point():
                self.epsilon = min(self.epsilon, torch.finfo(tensor.dtype).eps)
        return result


def _finest(model: nn.Module, arguments: Sequence[object], seed: int) -> float:
    """Epsilon of the finest type that the module computes in: it may ask for float64 in between."""
    fresh = [map_tensors(value, Tensor.clone) for value in arguments]
    torch.manual_seed(seed)
    finest = _Finest()
    with finest:
        copy.deepcopy(model)(*fresh)
    return float(finest.epsilon)


@torch.no_grad()
def run_oracle(model: nn.Module, arguments: Sequence[object], *, seed: int) -> OracleRun:
    """`model` on `arguments` in float64; the given module and tensors are left alone.

    A module that cannot run in float64 gives a note instead of tensors.
    """
    try:
        return _run_raised(copy.deepcopy(model).double(), arguments, seed)
    except torch.OutOfMemoryError as error:
        return OracleRun(tensors={}, note=_note(error), out_of_memory=True)
    except Exception as error:  # whatever a module raises in a precision it was not made for
        return OracleRun(tensors={}, note=_note(error))


@torch.no_grad()
def run_on_cpu(model: nn.Module, arguments: Sequence[object], *, seed: int) -> OracleRun:
    """The oracle by PyTorch's code for the CPU, which adds up in another order.

    Says what the device's code decides by its order: NaN or infinity, for an infinite input.
    """
    try:
        raised = copy.deepcopy(model).cpu().double()
        there = [map_tensors(value, lambda tensor: tensor.cpu()) for value in arguments]
        return _run_raised(raised, there, seed)
    except Exception as error:  # the same as for the oracle itself
        return OracleRun(tensors={}, note=_note(error))


class Rounded(Enum):
    """What is rounded once."""

    GIVEN = "inputs and weights"
    SHORTENED = "these to TF32, and so what cuDNN multiplies in between"
    """As its convolutions and recurrent layers do with float32 by default in PyTorch."""
    ALL = "inputs, weights and the result of every operator"


_TF32_EPSILON = 2.0**-10


@torch.no_grad()
def run_rounded(
    model: nn.Module,
    arguments: Sequence[object],
    *,
    seed: int,
    draw: int,
    ties: Ties,
    what: Rounded = Rounded.GIVEN,
) -> OracleRun:
    """The oracle on values that are off by up to one rounding of their type.

    `draw` says in which direction each. With `Ties.BROKEN` zeros move a little as well.
    """
    try:
        noise = Noise(draw, ties)
        rounded_model = copy.deepcopy(model)
        epsilons = {name: _epsilon(tensor, what) for name, tensor in model.state_dict().items()}
        rounded_model.double()
        for name, tensor in rounded_model.state_dict().items():
            noise.add_to(tensor, epsilons[name])

        def round_argument(tensor: Tensor) -> Tensor:
            raised = _raised_copy(tensor)
            noise.add_to(raised, _epsilon(tensor, what))
            return raised

        rounded = [map_tensors(value, round_argument) for value in arguments]
        match what:
            case Rounded.GIVEN:
                mode = _InFloat64()
            case Rounded.SHORTENED:
                mode = _Shortened(noise)
            case Rounded.ALL:
                mode = _RoundingAll(noise, _finest(model, arguments, seed))
        return _run_raised(rounded_model, rounded, seed, mode)
    except torch.OutOfMemoryError as error:
        return OracleRun(tensors={}, note=_note(error), out_of_memory=True)
    except Exception as error:  # the same as for the oracle itself
        return OracleRun(tensors={}, note=_note(error))


class RowOracle:
    """The oracle of a module that treats the rows of its inputs alike, some rows at a time.

    Rows are places along the first dimension. For modules whose float64 run would not fit.
    """

    def __init__(
        self, model: nn.Module, arguments: Sequence[object], rows: int, split: frozenset[int]
    ) -> None:
        """`split`: which of the arguments' tensors have rows, by their number."""
        self._model = copy.deepcopy(model).double()
        self._arguments = arguments
        self._split = split
        self.rows = rows

    @torch.no_grad()
    def run(self, start: int, stop: int, seed: int) -> Mapping[str, Tensor]:
        """Results for these rows; raises what the module raises."""
        numbers = iter(range(1 << 30))

        def cut(tensor: Tensor) -> Tensor:
            return tensor[start:stop] if next(numbers) in self._split else tensor

        arguments = [map_tensors(value, cut) for value in self._arguments]
        run = _run_raised(self._model, arguments, seed)
        return {name: t for name, t in run.tensors.items() if name.startswith("output")}

    def pieces(
        self, piece: int, seed: int, first: AbstractContextManager[object]
    ) -> Iterator[tuple[int, int, Mapping[str, Tensor]]]:
        """First and last row, and results, of `piece` rows each; `first` is around the first."""
        for start in range(0, self.rows, piece):
            stop = min(start + piece, self.rows)
            with first if start == 0 else nullcontext():
                tensors = self.run(start, stop, seed)
            yield start, stop, tensors


def rows_oracle(
    model: nn.Module, arguments: Sequence[object], outputs: Mapping[str, Tensor], piece: int
) -> RowOracle | None:
    """An oracle for `piece` rows at a time, or None where rows are not independent.

    They are when `piece` rows together give what both halves of them give alone, in float64 and
    but for roundings of that. All `outputs` must have as many rows.
    """
    tensors = [tensor for value in arguments for _, tensor in named_tensors(value, "")]
    heights = {tensor.shape[0] if tensor.dim() else 0 for tensor in outputs.values()}
    rows = next(iter(heights), 0)
    if len(heights) != 1 or rows < 2 * piece or piece < 2:
        return None
    tall = [n for n, tensor in enumerate(tensors) if tensor.dim() and tensor.shape[0] == rows]
    for split in dict.fromkeys((frozenset(tall), frozenset(tall[:1]))):
        oracle = RowOracle(model, arguments, rows, split)
        if split and _independent(oracle, piece):
            return oracle
    return None


def _independent(oracle: RowOracle, piece: int) -> bool:
    half = piece // 2
    try:
        whole = oracle.run(0, piece, 0)
        parts = [oracle.run(0, half, 0), oracle.run(half, piece, 0)]
    except Exception:  # a module that has its sizes fixed takes no fewer rows
        return False
    for name, tensor in whole.items():
        joined = torch.cat([part[name] for part in parts])
        if joined.shape != tensor.shape or not _alike(joined, tensor):
            return False
    return True


def _alike(joined: Tensor, whole: Tensor) -> bool:
    """Whether two results of one shape are the same but for the order of sums."""
    if not whole.is_floating_point():
        return torch.equal(joined, whole)
    size = float(whole[whole.isfinite()].abs().mean().nan_to_num(0.0))
    return torch.allclose(joined, whole, rtol=_SAME, atol=_SAME * size, equal_nan=True)


_SAME = 1e-9
"""Relative difference in float64 that only the order of sums makes."""


def _run_raised(
    model: nn.Module, arguments: Sequence[object], seed: int, mode: _InFloat64 | None = None
) -> OracleRun:
    """A module that is raised already; it and its state are changed as the call changes them."""
    raised_arguments = [map_tensors(value, _raised_copy) for value in arguments]
    torch.manual_seed(seed)
    with mode or _InFloat64():
        result = model(*raised_arguments)
    effects = named_effects(result, raised_arguments, model.state_dict())
    return OracleRun(tensors=effects, note="")


def _note(error: Exception) -> str:
    first_line = str(error).splitlines()[0] if str(error) else ""
    return f"no float64 oracle: {type(error).__name__}: {first_line}"


def _raised_copy(tensor: Tensor) -> Tensor:
    raised = upcast(tensor)
    return raised.clone() if raised is tensor else raised


def _epsilon(tensor: Tensor, what: Rounded) -> float:
    if what is Rounded.SHORTENED and tensor.dtype == torch.float32:
        return _TF32_EPSILON
    return torch.finfo(tensor.dtype).eps if tensor.is_floating_point() else 0.0
