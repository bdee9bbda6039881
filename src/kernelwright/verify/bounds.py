"""How far a result can lie from the expected one, bounded from above in a few passes over memory.

`compare` measures in float64, chunk by chunk, and says which element is worst: half a second for
six gigabytes. Whether a result is right can nearly always be told from less: the largest difference
and the root of the mean square, both in the type of the tensors and rounded up. Whoever finds a
bound too large measures with `compare`.
"""

import math

import torch
from torch import Tensor

from kernelwright.verify.tolerance import ErrorMetrics, Oracle

_CHUNK = 1 << 24
"""Elements looked at together: 64 MB of differences in float32. On an H200 two tensors of 6.4 GB
take 10 ms so, 11 ms with half as many, and launches cost more than they save below that."""
_SLACK = 1e-3
"""Share by which a sum of squares in float32 may be wrong: added as a tree it is some 1e-6."""
_LOST = 1.1e-19
"""What numbers whose squares underflow in float32 can add to the root of a mean square."""
_NEAR = 8.0
"""Times epsilon, relative to the RMS: a largest difference below needs no closer look."""


class Expected:
    """One tensor of what is expected, and what was found out about it already."""

    def __init__(self, name: str, tensor: Tensor) -> None:
        self.name = name
        self.tensor = tensor
        self._rms: float | None = None

    @torch.no_grad()
    def bound(self, found: Tensor) -> ErrorMetrics | None:
        """Metrics of `found`, of the same shape and dtype, that are no less than `compare`'s.

        The RMS is no more than that. None where these passes do not tell: what lies otherwise in
        memory, NaN and Inf, integers that differ.
        """
        flat = _flat(found, self.tensor)
        if flat is None:
            return None
        mine, theirs = flat
        if not theirs.is_floating_point():
            equal = all(torch.equal(*pair) for pair in _chunks(mine, theirs))
            return self._metrics(theirs, 0.0, 0.0, 0.0) if equal else None
        if theirs.numel() == 0:
            return self._metrics(theirs, 0.0, 0.0, 0.0)
        if self._rms is None:
            self._rms = _rms_at_least(theirs)
        if not math.isfinite(self._rms):
            return None
        largest, rmse = _differences(mine, theirs)
        if not math.isfinite(largest + rmse) or (largest and not self._rms):
            return None
        worst = largest / self._rms if self._rms else 0.0
        if worst > _NEAR * torch.finfo(theirs.dtype).eps:
            worst = min(worst, _scaled(mine, theirs, self._rms))
        return self._metrics(theirs, self._rms, rmse, worst)

    def _metrics(self, reference: Tensor, rms: float, rmse: float, worst: float) -> ErrorMetrics:
        shape = tuple(self.tensor.shape) + ((2,) if self.tensor.is_complex() else ())
        floating = reference.is_floating_point()
        return ErrorMetrics(
            name=self.name,
            dtype=str(reference.dtype),
            oracle=Oracle.REFERENCE,
            note="",
            count=reference.numel(),
            epsilon=torch.finfo(reference.dtype).eps if floating else 0.0,
            rms=rms,
            candidate_rmse=rmse,
            reference_rmse=0.0,
            candidate_worst=worst,
            reference_worst=0.0,
            worst_index=(),
            candidate_value=0.0,
            oracle_value=0.0,
            mismatches=0,
            mismatch_index=(),
            shape=shape,
        )


def _flat(found: Tensor, expected: Tensor) -> tuple[Tensor, Tensor] | None:
    """Both as they lie in memory, complex numbers as pairs; None unless they lie alike, densely."""
    if found.numel() == 0:
        return found.reshape(-1), expected.reshape(-1)
    sizes = expected.shape
    strides, others = (
        [stride for stride, size in zip(it.stride(), sizes, strict=True) if size > 1]
        for it in (found, expected)
    )
    last = sum((size - 1) * stride for size, stride in zip(sizes, found.stride(), strict=True))
    if strides != others or last + 1 != found.numel() or 0 in strides:
        return None
    if found.is_complex():
        return _in_memory(torch.view_as_real(found)), _in_memory(torch.view_as_real(expected))
    return _in_memory(found), _in_memory(expected)


def _in_memory(tensor: Tensor) -> Tensor:
    return tensor.as_strided((tensor.numel(),), (1,))


def _chunks(mine: Tensor, theirs: Tensor) -> list[tuple[Tensor, Tensor]]:
    return list(zip(*(torch.split(it, _CHUNK) for it in (mine, theirs)), strict=True))


def _wide(dtype: torch.dtype) -> torch.dtype:
    return dtype if dtype == torch.float64 else torch.float32


def _root(lengths: Tensor, count: int) -> float:
    """Root of the mean square from the lengths of the chunks."""
    return float(torch.linalg.vector_norm(lengths, dtype=torch.float64).item()) / math.sqrt(count)


def _rms_at_least(tensor: Tensor) -> float:
    """What the RMS is at least, all but exactly; not finite where the elements are not."""
    wide = _wide(tensor.dtype)
    lengths = [torch.linalg.vector_norm(chunk, dtype=wide) for chunk in torch.split(tensor, _CHUNK)]
    return _root(torch.stack(lengths), tensor.numel()) * (1.0 - _SLACK)


def _differences(mine: Tensor, theirs: Tensor) -> tuple[float, float]:
    """The largest difference and the root of their mean square, at most; NaN where one is."""
    wide = _wide(theirs.dtype)
    chunks = _chunks(mine, theirs)
    room = theirs.new_empty(chunks[0][0].numel(), dtype=wide)
    largest, lengths = theirs.new_empty((2, len(chunks)), dtype=wide)
    for (own, other), top, length in zip(chunks, largest, lengths, strict=True):
        difference = torch.sub(own, other, out=room[: own.numel()])
        torch.linalg.vector_norm(difference, torch.inf, out=top)
        torch.linalg.vector_norm(difference, out=length)
    # A difference of short numbers is rounded to one of them.
    slack = 1.0 + _SLACK + torch.finfo(theirs.dtype).eps
    most = float(largest.max().item()) * slack
    root = _root(lengths, theirs.numel())
    return most, min(most, root * slack + _LOST) if math.isfinite(root) else root


def _scaled(mine: Tensor, theirs: Tensor, rms: float) -> float:
    """The largest difference over (|expected| + rms), at most."""
    wide = _wide(theirs.dtype)
    chunks = _chunks(mine, theirs)
    room = theirs.new_empty((2, chunks[0][0].numel()), dtype=wide)
    largest = theirs.new_empty(len(chunks), dtype=wide)
    for (own, other), top in zip(chunks, largest, strict=True):
        difference, scale = room[0, : own.numel()], room[1, : own.numel()]
        torch.sub(own, other, out=difference)
        scale.copy_(other).abs_().add_(rms)
        torch.linalg.vector_norm(difference.div_(scale), torch.inf, out=top)
    return float(largest.max().item()) * (1.0 + _SLACK + torch.finfo(theirs.dtype).eps)
