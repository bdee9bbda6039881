"""How wrong a result may be: the only place where kernelwright holds a tolerance.

The rule is relative to the reference. Both results are measured against a float64 oracle on the
very same values, and the candidate has to be no less accurate than the reference is:

    RMSE(candidate) <= multiplier * RMSE(reference) + floor

with a floor of a few units in the last place, for references that are exact. The same holds for the
largest error of a single element, scaled by |oracle| + RMS, which finds the one wrong element in a
million that a mean does not show. (torchbench's `same` has the first half.)

A plain sum, one term after the other in float32, is honest arithmetic too, and libraries do better
by adding up parts: numbers of one sign lose some 0.17 * epsilon * sqrt(terms) that way (measured:
6.0e-7 for 1024 terms, where cuBLAS loses 1.6e-7). Twice that is allowed wherever it is more. TF32
operands lose 3e-4 on zero-mean inputs, a hundred times as much, however many terms there are.

Where that refuses a result, the oracle is run again with inputs, weights and what every operator
gives off by up to one rounding of the reference's type (Monte Carlo arithmetic), and a few times
the difference is allowed as well: a sum that cancels loses so much in any order of its terms, a
deep network amplifies what it rounds in between, and a reference that happens to be exact there is
no better, only luckier. For a product that is a share of |A||B| times epsilon, far below what
shorter operands would lose.
"""

import math
from dataclasses import dataclass
from enum import Enum


class Oracle(Enum):
    """What a result is measured against."""

    FLOAT64 = "float64"
    """The reference's own computation in float64."""
    REFERENCE = "reference"
    """The reference's result, where the float64 run failed or computes something else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorMetrics:
    """How far one tensor of the candidate and of the reference lie from the oracle.

    Errors are over the elements where the reference is finite. For integers and booleans
    `mismatches` counts elements that differ, and the errors are zero.
    """

    name: str
    """Which tensor: "output[0]", "state.running_mean", "input[1]"."""
    dtype: str
    oracle: Oracle
    note: str
    """Why the oracle is not float64, or empty."""
    count: int
    """Elements."""
    epsilon: float
    """Distance from 1 to the next number in the tensor's dtype; 0 for integers."""
    rms: float
    """Root mean square of the oracle."""
    candidate_rmse: float
    reference_rmse: float
    candidate_worst: float
    """Largest |error| / (|oracle| + rms)."""
    reference_worst: float
    worst_index: tuple[int, ...]
    """Where the candidate's largest scaled error is."""
    candidate_value: float
    """The candidate's element there."""
    oracle_value: float
    mismatches: int
    """Elements whose NaN, +Inf or -Inf is not the reference's, or integers that differ."""
    mismatch_index: tuple[int, ...]
    """The first of them."""
    shape: tuple[int, ...] = ()
    wrong: int = 0
    """Elements that no rounding explains."""
    wrong_box: tuple[tuple[int, int], ...] = ()
    """First and last index of these in every dimension; empty if there are none."""
    first_wrong: int = 0
    """The first of them, counted through the whole tensor."""
    terms: float = 1.0
    """Terms that are added up for one element, as far as is known: what rounding grows with."""
    loss_rmse: float = 0.0
    """RMSE of the oracle where inputs, weights and what operators give were rounded once: what any
    computation in this precision can lose. Zero unless it was asked for."""
    loss_worst: float = 0.0
    """Its largest scaled error."""
    candidate_shape: tuple[int, ...] | None = None
    """The candidate's shape where it is another one; then no error has been measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """The numbers of the rule."""

    multiplier: float
    """Times the reference's RMSE."""
    floor: float
    """Times epsilon * rms: what an exact reference still allows."""
    worst_multiplier: float
    """Times the reference's worst element."""
    worst_floor: float
    """Times epsilon."""
    loss: float = 4.0
    """Times what such roundings lose, in the mean and in the worst element."""
    plain_sum: float = 0.35
    """Times epsilon of float32 * sqrt(terms) * rms."""
    worst_plain_sum: float = 2.8
    """Times epsilon of float32 * sqrt(terms)."""


NO_LESS_ACCURATE = Tolerance(multiplier=2.0, floor=1.0, worst_multiplier=8.0, worst_floor=8.0)
"""Reference and candidate ran on the same device."""

CPU_STAND_IN = Tolerance(multiplier=4.0, floor=4.0, worst_multiplier=16.0, worst_floor=16.0)
"""The reference ran on the CPU in place of the GPU: torch's CPU sums cascade and its CPU products
keep other partial sums than its GPU kernels, so its own error is only a stand-in."""

_REFERENCE_ONLY = {
    "torch.float64": 1e-10,
    "torch.complex128": 1e-10,
    "torch.float32": 1e-4,
    "torch.complex64": 1e-4,
}
"""Error allowed, relative to the RMS, where there is no better oracle than the reference: what
KernelBench allows for fp32; its 1e-2 holds for every shorter type."""

_SHORT_TYPES = 1e-2

UNREPRESENTATIVE = 0.05
"""Above this error relative to the RMS the float64 run computed something other than the
reference (random numbers, a branch on a rounded value), so it is no oracle for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """Whether one tensor is right, and the sentence that says why."""

    accepted: bool
    reason: str


def rule(metrics: ErrorMetrics, tolerance: Tolerance) -> Ruling:
    """Apply the rule to one tensor."""
    if metrics.candidate_shape is not None:
        found, wanted = list(metrics.candidate_shape), list(metrics.shape)
        reason = f"{metrics.name}: other shape, {found} where the reference has {wanted}"
        return Ruling(accepted=False, reason=reason)
    if metrics.mismatches:
        where = f"first at {list(metrics.mismatch_index)}"
        kind = "NaN or Inf is not where the reference has it" if metrics.epsilon else "differs"
        return Ruling(
            accepted=False,
            reason=f"{metrics.name}: {kind} in {metrics.mismatches} of {metrics.count} elements, "
            + where
            + where_wrong(metrics),
        )
    limit, worst_limit = _limits(metrics, tolerance)
    if metrics.candidate_rmse > limit:
        return Ruling(accepted=False, reason=_explain_mean(metrics, limit) + where_wrong(metrics))
    if metrics.candidate_worst > worst_limit:
        reason = _explain_worst(metrics, worst_limit) + where_wrong(metrics)
        return Ruling(accepted=False, reason=reason)
    return Ruling(accepted=True, reason=_explain_mean(metrics, limit))


_EPSILON_OF_SUMS = 2.0**-23
_FEW_TERMS = 16
"""Up to so many terms the order of a sum hardly matters."""


def _limits(metrics: ErrorMetrics, tolerance: Tolerance) -> tuple[float, float]:
    """The largest accepted RMSE and worst scaled error."""
    # The smallest normal number keeps results that underflow from failing on a flushed denormal.
    tiny = 1.2e-38
    if metrics.oracle is Oracle.REFERENCE:
        allowed = _REFERENCE_ONLY.get(metrics.dtype, _SHORT_TYPES)
        return allowed * metrics.rms + tiny, 10 * allowed
    # A handful of elements says little about how accurate the reference is: a scalar may be
    # right to the last bit by luck. The share of luck falls with the root of their number.
    luck = 1.0 + 4.0 / math.sqrt(max(metrics.count, 1))
    floor = tolerance.floor * metrics.epsilon * metrics.rms
    # Numbers of 16 bits are added up in float32.
    growth = _EPSILON_OF_SUMS * math.sqrt(metrics.terms) if metrics.terms > _FEW_TERMS else 0.0
    floor += tolerance.plain_sum * growth * metrics.rms + tolerance.loss * metrics.loss_rmse
    limit = luck * (tolerance.multiplier * metrics.reference_rmse + floor) + tiny
    worst_floor = tolerance.worst_floor * metrics.epsilon + tolerance.worst_plain_sum * growth
    worst_floor += tolerance.loss * metrics.loss_worst
    worst_limit = luck * (tolerance.worst_multiplier * metrics.reference_worst + worst_floor)
    return limit, worst_limit


def _explain_mean(metrics: ErrorMetrics, limit: float) -> str:
    if not metrics.epsilon:
        return f"{metrics.name}: all {metrics.count} elements equal"
    scale = metrics.rms or 1.0
    return (
        f"{metrics.name}: RMSE against {metrics.oracle.value} is "
        f"{metrics.candidate_rmse / scale:.2e} of the RMS, the reference's is "
        f"{metrics.reference_rmse / scale:.2e}, allowed is {limit / scale:.2e}"
    )


def _explain_worst(metrics: ErrorMetrics, limit: float) -> str:
    return (
        f"{metrics.name}{list(metrics.worst_index)} is {metrics.candidate_value:.9g}, should be "
        f"{metrics.oracle_value:.9g}: scaled error {metrics.candidate_worst:.2e}, the reference's "
        f"worst {metrics.reference_worst:.2e}, allowed {limit:.2e}"
    )


_INT32_ELEMENTS = 1 << 31


def where_wrong(metrics: ErrorMetrics) -> str:
    """Which elements are wrong, and what that pattern usually means; empty if it says nothing."""
    if not metrics.wrong_box or metrics.wrong == metrics.count:
        return ""
    text = f". {metrics.wrong} of {metrics.count} elements are wrong"
    if metrics.first_wrong >= _INT32_ELEMENTS:
        return f"{text}, all beyond element 2^31: an index of 32 bits overflows"
    parts = [
        (dim, low, high, size)
        for dim, ((low, high), size) in enumerate(
            zip(metrics.wrong_box, metrics.shape, strict=True)
        )
        if (low, high) != (0, size - 1)
    ]
    if not parts:
        return text if 2 * metrics.wrong < metrics.count else ""
    ranges = " and ".join(f"{low}..{high} of dimension {dim}" for dim, low, high, _ in parts)
    if all(high == size - 1 and low > 0 for _, low, high, size in parts):
        return f"{text}, all in the last {ranges}: is a last, partly filled tile left out?"
    return f"{text}, all in {ranges}"
