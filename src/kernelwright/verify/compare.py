"""Measure a candidate's tensor and the reference's against the oracle, in bounded memory."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from kernelwright.verify.tolerance import UNREPRESENTATIVE, ErrorMetrics, Oracle
from kernelwright.verify.waiting import on_the_host, settle

_CHUNK = 1 << 22
"""Elements looked at together: 32 MB in float64, so a comparison needs some 200 MB at most."""


@torch.no_grad()
def compare(
    name: str,
    candidate: Tensor,
    reference: Tensor,
    oracle: Tensor | None,
    note: str = "",
    undecided: Tensor | None = None,
    explained: Callable[[ErrorMetrics], bool] = lambda metrics: False,
) -> ErrorMetrics:
    """Errors of `candidate` and `reference`, two tensors of the same dtype.

    Another shape than the reference's is all that is said of a candidate that has one.
    `oracle` is the float64 result, or None (then `note` says why) to measure against the
    reference. It is dropped as well where the reference itself is nowhere near it, unless that is
    `explained`. `undecided` marks integers that a rounding decides about, such as which of two
    equal numbers is larger.
    """
    candidate, reference = _real(candidate), _real(reference)
    if candidate.shape != reference.shape:
        blank = _blank(name, reference, Oracle.REFERENCE, "")
        return replace(blank, candidate_shape=tuple(candidate.shape))
    if not reference.is_floating_point():
        return _compare_exact(name, candidate, reference, undecided)
    if oracle is not None:
        oracle = _real(oracle)
        if oracle.shape != reference.shape:
            note = f"no float64 oracle: its shape is {tuple(oracle.shape)}"
            oracle = None
    if oracle is None or reference.dtype == torch.float64:
        return _compare_floats(name, candidate, reference, reference, Oracle.REFERENCE, note)
    metrics = _compare_floats(name, candidate, reference, oracle, Oracle.FLOAT64, note)
    if represents(metrics) or explained(metrics):
        return metrics
    note = note_unrepresentative(metrics)
    return _compare_floats(name, candidate, reference, reference, Oracle.REFERENCE, note)


@dataclass(frozen=True, slots=True)
class Small:
    """One tensor among many small ones, all of one shape and the reference's dtype."""

    name: str
    candidate: Tensor
    reference: Tensor
    oracle: Tensor | None


@torch.no_grad()
def compare_together(tensors: Sequence[Small], device: torch.device) -> list[ErrorMetrics | None]:
    """What `compare` gives for each on `device`, with one wait; None where it has to be asked.

    That is for what is wrong or large, and for what has no float64 run.
    """
    begun = [_begun(it, device) for it in tensors]
    numbers = iter(on_the_host([found for _, found in filter(None, begun)]))
    return [None if it is None else it[0](next(numbers).tolist()) for it in begun]


_End = Callable[[Sequence[float]], ErrorMetrics | None]
"""From numbers that are on the host by now."""


def _begun(it: Small, device: torch.device) -> tuple[_End, Tensor] | None:
    """How to end a comparison, and its numbers on the device; None where it is no small one."""
    if not 0 < it.reference.numel() <= _CHUNK or it.reference.is_complex():
        return None
    candidate, reference = (
        tensor.to(device, non_blocking=True) for tensor in (it.candidate, it.reference)
    )
    if not reference.is_floating_point():
        differs = (candidate != reference).sum(dtype=torch.float64).reshape(1)
        blank = _blank(it.name, reference, Oracle.REFERENCE, "")
        return lambda counts: None if counts[0] else blank, differs
    if it.oracle is None or it.oracle.shape != reference.shape or reference.dtype == torch.float64:
        return None
    comparison = Comparison(it.name, reference, Oracle.FLOAT64)
    return comparison.end, comparison.start(candidate, reference, it.oracle.to(device))


def represents(metrics: ErrorMetrics) -> bool:
    """Whether the oracle computed what the reference does: that is near to it."""
    return metrics.reference_rmse <= UNREPRESENTATIVE * metrics.rms


_VANISHED = 1e-4
"""Share of the reference's error below which the float64 run has a result that is zero."""
_ROUNDINGS = 64
"""Roundings of a number of the operands' size that such a result may be: sums of many grow."""


def vanishes(metrics: ErrorMetrics) -> bool:
    """Whether the oracle is zero beside the reference's error, or the reference is zero."""
    return metrics.reference_rmse > 0.0 and (
        metrics.rms <= _VANISHED * metrics.reference_rmse or _is_zero(metrics)
    )


def _is_zero(metrics: ErrorMetrics) -> bool:
    """Whether the reference's result is: all of the oracle's is then its error."""
    return metrics.reference_rmse == metrics.rms


def is_rounding(metrics: ErrorMetrics, scale: float) -> bool:
    """Whether the exact result is zero, and the reference gives what rounding leaves of it.

    As the mean of what was normalised before, where that may also be nothing, and only the float64
    run has a rounding. `scale` is the size of what the results were computed from: a module that
    computes with the very errors of a type, as in quantisation, gives zero in float64 as well, and
    these are larger.
    """
    epsilon = torch.finfo(torch.float64).eps if _is_zero(metrics) else metrics.epsilon
    return vanishes(metrics) and metrics.reference_rmse <= _ROUNDINGS * epsilon * scale


def with_rounding(metrics: ErrorMetrics, scale: float) -> ErrorMetrics:
    """The metrics, with a rounding of the operands as a loss where the result is nothing else."""
    if metrics.oracle is not Oracle.FLOAT64 or not is_rounding(metrics, scale):
        return metrics
    loss = metrics.epsilon * scale
    # Of zeros there is no element that another could be compared with.
    beyond = torch.finfo(torch.float64).max
    worst = beyond if _is_zero(metrics) else loss / metrics.reference_rmse
    return replace(metrics, loss_rmse=loss, loss_worst=worst)


_MANY = 256
"""Elements whose root mean square no chance makes twice as large."""


def is_as_large(tensor: Tensor, reference: Tensor) -> bool:
    """Whether many numbers are, together, at most twice as large as others or as small.

    All that is left to ask where roundings decide about each of them: zeros are no such result.
    """
    if reference.numel() < _MANY:
        return True
    mine, theirs = rms(tensor), rms(reference)
    return theirs <= 2.0 * mine and mine <= 2.0 * theirs


def note_unrepresentative(metrics: ErrorMetrics) -> str:
    """Why an oracle that is not `represents` was dropped."""
    share = metrics.reference_rmse / metrics.rms if metrics.rms else float("inf")
    return f"the reference is {share:.1%} away from its float64 run"


def _real(tensor: Tensor) -> Tensor:
    tensor = tensor.detach()
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class _Errors:
    """Errors of one chunk, with zeros where the reference is not finite."""

    oracle: Tensor
    candidate: Tensor
    reference: Tensor
    finite: Tensor
    mismatched: Tensor


_NEARLY_TOO_LARGE = 0.99
"""Share of a type's largest number above which a rounding decides whether a result is infinite."""

_CLOSE = 1e-2
"""Relative error of a finite result where the reference overflowed and float64 does not."""


def _errors(candidate: Tensor, reference: Tensor, oracle: Tensor) -> _Errors:
    finite = reference.isfinite()
    wide_reference, wide_candidate = reference.double(), candidate.double()
    # Where float64 overflows or divides by zero and the reference does not, it is its own oracle.
    wide_oracle = torch.where(oracle.isfinite(), oracle.double(), wide_reference)
    largest = torch.finfo(reference.dtype).max
    overflows = candidate.isinf() & (wide_oracle.abs() > _NEARLY_TOO_LARGE * largest)
    better = oracle.isfinite() & (
        (wide_candidate - wide_oracle).abs() <= _CLOSE * wide_oracle.abs()
    )
    # What has underflowed in the reference alone, times infinity, is NaN in the reference alone.
    better |= oracle.isinf() & (wide_candidate == oracle.double())
    agrees = torch.where(
        finite,
        candidate.isfinite() | overflows,
        (candidate == reference) | (candidate.isnan() & reference.isnan()) | better,
    )
    usable = finite & candidate.isfinite()
    zero = torch.zeros((), dtype=torch.float64, device=reference.device)
    return _Errors(
        oracle=torch.where(finite, wide_oracle, zero),
        candidate=torch.where(usable, wide_candidate - wide_oracle, zero),
        reference=torch.where(finite, wide_reference - wide_oracle, zero),
        finite=finite,
        mismatched=~agrees,
    )


_Chunk = tuple[Tensor, Tensor, Tensor]
"""Candidate, reference and oracle, flat."""


def _here(chunk: _Chunk, device: torch.device) -> _Chunk:
    candidate, reference, oracle = (part.to(device, non_blocking=True) for part in chunk)
    return candidate, reference, oracle


_SUMS = 5


class Comparison:
    """Errors of one tensor, added up piece by piece in the order of its elements."""

    def __init__(self, name: str, reference: Tensor, kind: Oracle, note: str = "") -> None:
        """`reference` is the whole tensor; the pieces have its dtype and are on its device."""
        reference = _real(reference)
        self._metrics = _blank(name, reference, kind, note)
        self._shape = tuple(reference.shape)
        self._scale = _rms_there(reference)
        self._sums = torch.zeros(_SUMS, dtype=torch.float64, device=reference.device)
        self._seen = 0
        self._region = _Region(self._shape)

    def add(self, candidate: Tensor, reference: Tensor, oracle: Tensor) -> None:
        """The next elements of the three, in any shape; the candidate's may be elsewhere."""
        pieces = (_real(tensor).reshape(-1) for tensor in (candidate, reference, oracle))
        chunks = list(zip(*(torch.split(piece, _CHUNK) for piece in pieces), strict=True))
        if not chunks:
            return
        # Brought to the host together: waiting for the device takes longer than a small sum.
        rows = torch.stack([self.look(*_here(chunk, reference.device)) for chunk in chunks])
        settle(rows.device)
        seen = [_Seen(*row) for row in rows.tolist()]
        self._note_worst([part.numel() for _, part, _ in chunks], seen)
        for chunk, found in zip(chunks, seen, strict=True):
            if found.any_wrong or found.any_mismatch:
                self._note_wrong(_here(chunk, reference.device), found)
            self._seen += chunk[1].numel()

    def metrics(self) -> ErrorMetrics:
        """Metrics of everything that was added."""
        return self._metrics_of(self._sums.tolist())

    def start(self, candidate: Tensor, reference: Tensor, oracle: Tensor) -> Tensor:
        """Look at all of a small tensor of real numbers; numbers on its device for `end`."""
        row = self.look(candidate.reshape(-1), reference.reshape(-1), oracle.reshape(-1))
        return torch.cat([self._sums, row])

    def end(self, numbers: Sequence[float]) -> ErrorMetrics | None:
        """What `metrics` gives, from numbers of `start`; None where `add` has to say what is wrong.

        Not both for one object.
        """
        seen = _Seen(*numbers[_SUMS:])
        if seen.any_wrong or seen.any_mismatch:
            return None
        self._note_worst([self._metrics.count], [seen])
        return self._metrics_of(numbers[:_SUMS])

    def _metrics_of(self, sums: Sequence[float]) -> ErrorMetrics:
        oracle_sum, candidate_sum, reference_sum, finite, mismatches = sums
        finite = max(finite, 1.0)
        return replace(
            self._metrics,
            rms=(oracle_sum / finite) ** 0.5,
            candidate_rmse=(candidate_sum / finite) ** 0.5,
            reference_rmse=(reference_sum / finite) ** 0.5,
            mismatches=int(mismatches),
            wrong=self._region.count,
            wrong_box=self._region.box(),
            first_wrong=self._region.first,
        )

    def look(self, candidate: Tensor, reference: Tensor, oracle: Tensor) -> Tensor:
        """Add up a flat chunk; what there is to say of it, as `_Seen` has it, on its device."""
        errors = _errors(candidate, reference, oracle)
        squares = [errors.oracle.square(), errors.candidate.square(), errors.reference.square()]
        counts = [errors.finite, errors.mismatched]
        self._sums += torch.stack([part.sum(dtype=torch.float64) for part in (*squares, *counts)])
        scale = self._scales(errors)
        scaled = errors.candidate.abs() / scale
        largest, place = scaled.max(dim=0)
        reference_worst = (errors.reference.abs() / scale).max()
        any_wrong, any_mismatch = self._wrong(errors, scaled).any(), errors.mismatched.any()
        there = [part[place.reshape(1)].reshape(()) for part in (candidate, oracle)]
        found = [largest, reference_worst, place, any_wrong, any_mismatch, *there]
        return torch.stack([value.double() for value in found])

    def _scales(self, errors: _Errors) -> Tensor:
        return (errors.oracle.abs() + self._scale).clamp_min(torch.finfo(torch.float64).tiny)

    def _wrong(self, errors: _Errors, scaled: Tensor) -> Tensor:
        clearly = _CLEARLY if self._metrics.epsilon < _SHORT else _CLEARLY_SHORT
        return errors.mismatched | (scaled > clearly)

    def _note_wrong(self, chunk: _Chunk, found: "_Seen") -> None:
        """Where a chunk is wrong: it is looked at once more."""
        errors = _errors(*chunk)
        scaled = errors.candidate.abs() / self._scales(errors)
        if found.any_wrong:
            self._region.add(self._wrong(errors, scaled), self._seen)
        if found.any_mismatch and not self._metrics.mismatch_index:
            first = self._seen + int(errors.mismatched.to(torch.uint8).argmax().item())
            self._metrics = replace(self._metrics, mismatch_index=_unravel(first, self._shape))

    def _note_worst(self, sizes: Sequence[int], seen: Sequence["_Seen"]) -> None:
        """Remember the worst element of the next chunks, which have these sizes."""
        metrics = self._metrics
        of_reference = max(metrics.reference_worst, *(it.reference_worst for it in seen))
        self._metrics = replace(metrics, reference_worst=of_reference)
        number = max(range(len(seen)), key=lambda it: seen[it].worst)
        if seen[number].worst > metrics.candidate_worst:
            place = self._seen + sum(sizes[:number]) + int(seen[number].place)
            self._metrics = replace(
                self._metrics,
                candidate_worst=seen[number].worst,
                worst_index=_unravel(place, self._shape),
                candidate_value=seen[number].candidate,
                oracle_value=seen[number].oracle,
            )


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a chunk shows, as numbers of one tensor."""

    worst: float
    reference_worst: float
    place: float
    """Place of the worst within the chunk."""
    any_wrong: float
    any_mismatch: float
    candidate: float
    """The candidate's element where it is worst."""
    oracle: float


_CLEARLY, _CLEARLY_SHORT = 1e-3, 5e-2
"""Scaled error above which an element is wrong rather than rounded; for types of 16 bits."""
_SHORT = 1e-5
"""Epsilon above which a type counts as short."""


class _Region:
    """The smallest box of indices around all elements that are wrong."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._shape = shape
        self._low: list[int] = []
        self._high: list[int] = []
        self.count = 0
        self.first = 0

    def add(self, wrong: Tensor, start: int) -> None:
        """`wrong` is flat and begins at element `start` of the tensor."""
        places = wrong.nonzero().reshape(-1)
        if places.numel() == 0:
            return
        if self.count == 0:
            self.first = start + int(places[0].item())
        self.count += places.numel()
        places = places + start
        low, high = [], []
        for size in reversed(self._shape):
            index = places % size
            low.append(int(index.min().item()))
            high.append(int(index.max().item()))
            places = places // size
        low, high = low[::-1], high[::-1]
        self._low = [min(pair) for pair in zip(self._low or low, low, strict=True)]
        self._high = [max(pair) for pair in zip(self._high or high, high, strict=True)]

    def box(self) -> tuple[tuple[int, int], ...]:
        return tuple(zip(self._low, self._high, strict=True))


def rms(tensor: Tensor) -> float:
    """Root mean square of the finite elements of any tensor of numbers."""
    return float(_rms_there(tensor).item())


def _rms_there(tensor: Tensor) -> Tensor:
    """Root mean square, where the tensor is."""
    total = torch.zeros(2, dtype=torch.float64, device=tensor.device)
    for chunk in torch.split(tensor.reshape(-1), _CHUNK):
        finite = chunk.isfinite()
        squares = chunk.double().where(finite, 0.0).square().sum()
        total += torch.stack([squares, finite.sum(dtype=torch.float64)])
    return (total[0] / total[1].clamp_min(1.0)).sqrt()


def _compare_floats(
    name: str, candidate: Tensor, reference: Tensor, oracle: Tensor, kind: Oracle, note: str
) -> ErrorMetrics:
    comparison = Comparison(name, reference, kind, note)
    if reference.numel():
        comparison.add(candidate, reference, oracle)
    return comparison.metrics()


def _compare_exact(
    name: str, candidate: Tensor, reference: Tensor, undecided: Tensor | None
) -> ErrorMetrics:
    region = _Region(tuple(reference.shape))
    parts = [torch.split(tensor.reshape(-1), _CHUNK) for tensor in (candidate, reference)]

    def differs(number: int) -> Tensor:
        mine, theirs = (part[number] for part in parts)
        found = mine.to(theirs.device) != theirs
        if undecided is not None:
            start = number * _CHUNK
            found &= ~undecided.reshape(-1)[start : start + found.numel()]
        return found

    numbers = range(len(parts[1]))
    counts = torch.stack([differs(number).sum() for number in numbers]).tolist()
    mismatches = sum(counts)
    for number in numbers:
        if counts[number]:
            region.add(differs(number), number * _CHUNK)
    return replace(
        _blank(name, reference, Oracle.REFERENCE, ""),
        mismatches=mismatches,
        mismatch_index=_unravel(region.first, tuple(reference.shape)) if mismatches else (),
        wrong=mismatches,
        wrong_box=region.box(),
        first_wrong=region.first,
    )


def _blank(name: str, reference: Tensor, kind: Oracle, note: str) -> ErrorMetrics:
    floating = reference.is_floating_point()
    return ErrorMetrics(
        name=name,
        dtype=str(reference.dtype),
        oracle=kind,
        note=note,
        count=reference.numel(),
        epsilon=torch.finfo(reference.dtype).eps if floating else 0.0,
        rms=0.0,
        candidate_rmse=0.0,
        reference_rmse=0.0,
        candidate_worst=0.0,
        reference_worst=0.0,
        worst_index=(),
        candidate_value=0.0,
        oracle_value=0.0,
        mismatches=0,
        mismatch_index=(),
        shape=tuple(reference.shape),
    )


def _unravel(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    index = []
    for size in reversed(shape):
        flat, place = divmod(flat, size)
        index.append(place)
    return tuple(reversed(index))
