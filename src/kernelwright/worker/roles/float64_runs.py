"""Float64 runs of the reference on one case beside its oracle, and what each of them tells."""

import torch
from torch import Tensor, nn

from kernelwright.verify.compare import compare
from kernelwright.verify.noise import Ties
from kernelwright.verify.oracle import (
    OracleRun,
    Rounded,
    run_on_cpu,
    run_oracle,
    run_rounded,
)
from kernelwright.verify.tolerance import ErrorMetrics
from kernelwright.worker.card.ledger import Ledger
from kernelwright.worker.roles.expectation import Expectation, rounded_as_by
from kernelwright.worker.roles.large_results import OracleByRows, oracle_by_rows
from kernelwright.worker.roles.magnitudes import counting_products, scale_of
from kernelwright.worker.roles.subject import Resident, Subject

_DRAWS = 12
"""Times that inputs are rounded to find the integers that a rounding decides about."""
_SENSITIVE = 8
"""Times what rounded inputs lose that the reference may be from a float64 run that is its oracle:
it rounds in between as well."""
_SOON_ON_CPU = 1 << 33
"""Multiplications and additions in float64 that the CPU is done with in seconds."""


class Float64Runs:
    """Runs of one module on the inputs of one case, each made once and when it is asked for."""

    def __init__(self, subject: Subject, resident: Resident, ledger: Ledger) -> None:
        """`ledger` gets the seconds of the runs."""
        self._subject = subject
        self._resident = resident
        self._ledger = ledger
        self._rounded: dict[tuple[int, Ties, Rounded], OracleRun] = {}
        self._scale: float | None = None

    def rounded(
        self, expected: Expectation, draw: int, ties: Ties, what: Rounded = Rounded.GIVEN
    ) -> OracleRun:
        """The run on inputs and weights that this draw has rounded."""
        key = (draw, ties, what)
        if key not in self._rounded:
            module, arguments = self._call_of(expected)
            with self._ledger.spending("oracle on rounded inputs"):
                self._rounded[key] = run_rounded(
                    module, arguments, seed=expected.case.seed, draw=draw, ties=ties, what=what
                )
                self._subject.synchronize()
        return self._rounded[key]

    def scale(self, expected: Expectation) -> float:
        """The largest RMS of what the call computes from."""
        if self._scale is None:
            self._scale = scale_of(*self._call_of(expected))
        return self._scale

    def whole(self, expected: Expectation) -> tuple[OracleRun, int]:
        """The oracle in one piece, and its operations; where it does not fit, its note says so."""
        module, arguments = self._call_of(expected)
        with self._ledger.spending("oracle"), counting_products() as flops:
            oracle = run_oracle(module, arguments, seed=expected.case.seed)
            self._subject.synchronize()
        return oracle, flops.get_total_flops()

    def by_rows(self, expected: Expectation) -> OracleByRows | None:
        """The oracle on some rows at a time; None where they may depend on each other."""
        return oracle_by_rows(expected, *self._call_of(expected))

    def is_sensitive(self, expected: Expectation, name: str, metrics: ErrorMetrics) -> bool:
        """Whether rounded inputs and weights take the float64 run as far as the reference is."""
        assert expected.oracle is not None
        rounded = self.rounded(expected, 0, Ties.KEPT, rounded_as_by(expected)).tensors.get(name)
        reference, oracle = expected.effects[name], expected.oracle.tensors[name]
        if rounded is None or rounded.shape != reference.shape:
            return False
        device = rounded.device
        lost = compare(
            name, rounded, reference.to(device), oracle.to(device), explained=lambda _: True
        )
        return metrics.reference_rmse <= _SENSITIVE * lost.candidate_rmse

    def undecided_integers(self, expected: Expectation, name: str) -> Tensor | None:
        """Where integers depend on a rounding of the inputs; None where no oracle says."""
        assert expected.oracle is not None
        reference, oracle = expected.effects[name], expected.oracle.tensors.get(name)
        if oracle is None or oracle.shape != reference.shape:
            return None
        undecided = oracle != reference.to(oracle.device)
        for draw in range(_DRAWS):
            rounded = self.rounded(expected, draw, Ties.BROKEN).tensors.get(name)
            if rounded is not None and rounded.shape == oracle.shape:
                undecided |= rounded != oracle
        return undecided.to(self._subject.device)

    def without_kinds(self, expected: Expectation, name: str, tensor: Tensor) -> Tensor:
        """The tensor with the reference's NaN or infinity wherever it has either.

        Of statistics that a module keeps neither is of use. Results are unchanged where PyTorch
        has the same of them for every element, however it adds up: then it is no matter of order.
        """
        reference = expected.effects[name].to(tensor.device)
        either = ~reference.isfinite() & ~tensor.isfinite()
        if name.startswith("state"):
            return torch.where(either, reference, tensor)
        if expected.flops > _SOON_ON_CPU:
            return tensor
        module, arguments = self._call_of(expected)
        with self._ledger.spending("oracle on the CPU"):
            other = run_on_cpu(module, arguments, seed=expected.case.seed).tensors.get(name)
        if other is None or other.shape != reference.shape:
            return tensor
        other = other.to(tensor.device)
        differs = reference.isnan() & other.isinf() | reference.isinf() & other.isnan()
        return torch.where(either, reference, tensor) if differs.any() else tensor

    def _call_of(self, expected: Expectation) -> tuple[nn.Module, list[object]]:
        return self._resident.module, self._subject.arguments(expected.case)
