"""Measure a candidate's tensor and the reference's against the oracle, in bounded memory."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from kernelwright.verify.tolerance import UNREPRESENTATIVE, ErrorMetrics, Oracle

_CHUNK = 1 << 22
"""Elements looked at together: 32 MB in float64, so a comparison needs some 200 MB at most."""


@torch.no_grad()
def compare(
    name: str, candidate: Tensor, reference: Tensor, oracle: Tensor | None, note: str = ""
) -> ErrorMetrics:
    """Errors of `candidate` and `reference`, two tensors of the same shape and dtype.

    `oracle` is the float64 result, or None (then `note` says why) to measure against the
    reference. It is dropped as well where the reference itself is nowhere near it.
    """
    candidate, reference = _real(candidate), _real(reference)
    if not reference.is_floating_point():
        return _compare_exact(name, candidate, reference)
    if oracle is not None:
        oracle = _real(oracle)
        if oracle.shape != reference.shape:
            note = f"no float64 oracle: its shape is {tuple(oracle.shape)}"
            oracle = None
    if oracle is None or reference.dtype == torch.float64:
        return _compare_floats(name, candidate, reference, reference, Oracle.REFERENCE, note)
    metrics = _compare_floats(name, candidate, reference, oracle, Oracle.FLOAT64, note)
    if metrics.reference_rmse > UNREPRESENTATIVE * metrics.rms:
        share = metrics.reference_rmse / metrics.rms if metrics.rms else float("inf")
        note = f"the reference is {share:.1%} away from its float64 run"
        return _compare_floats(name, candidate, reference, reference, Oracle.REFERENCE, note)
    return metrics


def _real(tensor: Tensor) -> Tensor:
    tensor = tensor.detach()
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def _compare_exact(name: str, candidate: Tensor, reference: Tensor) -> ErrorMetrics:
    differs = (candidate != reference).reshape(-1)
    mismatches = int(differs.sum().item())
    first = int(differs.to(torch.uint8).argmax().item()) if mismatches else 0
    return replace(
        _blank(name, reference, Oracle.REFERENCE, ""),
        mismatches=mismatches,
        mismatch_index=_unravel(first, reference) if mismatches else (),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Errors:
    """Errors of one chunk, with zeros where the reference is not finite."""

    oracle: Tensor
    candidate: Tensor
    reference: Tensor
    finite: Tensor
    mismatched: Tensor


def _errors(candidate: Tensor, reference: Tensor, oracle: Tensor) -> _Errors:
    finite = reference.isfinite()
    agrees = torch.where(
        finite,
        candidate.isfinite(),
        (candidate == reference) | (candidate.isnan() & reference.isnan()),
    )
    wide_reference = reference.double()
    # Where float64 overflows or divides by zero and the reference does not, it is its own oracle.
    wide_oracle = torch.where(oracle.isfinite(), oracle.double(), wide_reference)
    usable = finite & candidate.isfinite()
    zero = torch.zeros((), dtype=torch.float64, device=reference.device)
    return _Errors(
        oracle=torch.where(finite, wide_oracle, zero),
        candidate=torch.where(usable, candidate.double() - wide_oracle, zero),
        reference=torch.where(finite, wide_reference - wide_oracle, zero),
        finite=finite,
        mismatched=~agrees,
    )


def _compare_floats(
    name: str, candidate: Tensor, reference: Tensor, oracle: Tensor, kind: Oracle, note: str
) -> ErrorMetrics:
    metrics = _blank(name, reference, kind, note)
    if reference.numel() == 0:
        return metrics
    flats = [torch.split(tensor.reshape(-1), _CHUNK) for tensor in (candidate, reference, oracle)]
    totals = torch.zeros(5, dtype=torch.float64, device=reference.device)
    for chunk in zip(*flats, strict=True):
        errors = _errors(*chunk)
        sums = [errors.oracle.square(), errors.candidate.square(), errors.reference.square()]
        counts = [errors.finite, errors.mismatched]
        totals += torch.stack([part.sum(dtype=torch.float64) for part in (*sums, *counts)])
    oracle_sum, candidate_sum, reference_sum, finite, mismatches = totals.tolist()
    finite = max(finite, 1.0)
    metrics = replace(
        metrics,
        rms=(oracle_sum / finite) ** 0.5,
        candidate_rmse=(candidate_sum / finite) ** 0.5,
        reference_rmse=(reference_sum / finite) ** 0.5,
        mismatches=int(mismatches),
    )
    return _with_worst(metrics, flats, reference)


def _with_worst(
    metrics: ErrorMetrics, flats: list[tuple[Tensor, ...]], reference: Tensor
) -> ErrorMetrics:
    """`metrics` with the worst elements, which can be scaled only once the RMS is known."""
    worst, reference_worst, place, mismatch = 0.0, 0.0, 0, None
    start = 0
    for chunk in zip(*flats, strict=True):
        errors = _errors(*chunk)
        scale = (errors.oracle.abs() + metrics.rms).clamp_min(torch.finfo(torch.float64).tiny)
        largest, index = (errors.candidate.abs() / scale).max(dim=0)
        if largest.item() > worst:
            worst, place = largest.item(), start + int(index.item())
        reference_worst = max(reference_worst, (errors.reference.abs() / scale).max().item())
        if mismatch is None and metrics.mismatches and bool(errors.mismatched.any()):
            mismatch = start + int(errors.mismatched.to(torch.uint8).argmax().item())
        start += errors.finite.numel()
    which, offset = divmod(place, _CHUNK)
    return replace(
        metrics,
        candidate_worst=worst,
        reference_worst=reference_worst,
        worst_index=_unravel(place, reference),
        candidate_value=float(flats[0][which][offset].item()),
        oracle_value=float(flats[2][which][offset].item()),
        mismatch_index=() if mismatch is None else _unravel(mismatch, reference),
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
    )


def _unravel(flat: int, tensor: Tensor) -> tuple[int, ...]:
    index = []
    for size in reversed(tensor.shape):
        flat, place = divmod(flat, size)
        index.append(place)
    return tuple(reversed(index))
