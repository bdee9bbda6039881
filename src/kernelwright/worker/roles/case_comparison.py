"""The results of one case against what the reference and its float64 oracle give."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from kernelwright.verify.compare import (
    Small,
    compare,
    compare_together,
    is_as_large,
    is_rounding,
    represents,
    vanishes,
    with_rounding,
)
from kernelwright.verify.noise import Ties
from kernelwright.verify.oracle import Rounded, upcast
from kernelwright.verify.tolerance import (
    NO_LESS_ACCURATE,
    ErrorMetrics,
    Oracle,
    rule,
)
from kernelwright.worker.errors import OracleMemoryError
from kernelwright.worker.roles.expectation import Expectation, rounded_as_by
from kernelwright.worker.roles.float64_runs import Float64Runs
from kernelwright.worker.roles.magnitudes import terms_of
from kernelwright.worker.roles.subject import Resident, Subject

_DRAWS_OF_LOSSES = 4
"""Times that every result is rounded to find what that loses: of deep networks now and then a
hundred times as much, where a rounding decides between two numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseComparison:
    """What one case should give, and how far from it tensors are."""

    expected: Expectation
    terms: float
    """Terms that are added up for one element of the results."""
    runs: Float64Runs
    resident: Resident
    subject: Subject

    def with_left(self, names: tuple[str, ...]) -> "CaseComparison":
        """With those of the names whose state only a rounding left: the float64 run did not."""
        expected = self.expected
        if expected.oracle is None:
            return self
        oracles = expected.oracle.tensors
        names = tuple(name for name in names if name not in expected.effects)
        left = {
            name: tensor.clone()
            for name, tensor in self.resident.before(names).items()
            if name in oracles and not torch.equal(oracles[name], upcast(tensor))
        }
        return replace(self, expected=replace(expected, effects={**expected.effects, **left}))

    def errors_of(self, found: Mapping[str, Tensor]) -> tuple[ErrorMetrics, ...]:
        """The errors of tensors that have the form of what is expected."""
        if self.expected.oracle is None:
            return self._errors_of_large(found)
        quick = self._errors_at_first_sight(found)
        return tuple(quick.get(name) or self._errors(name, found[name]) for name in found)

    def accepts(self, given: Mapping[str, Tensor]) -> bool:
        """Whether results would be taken for right ones; nothing is not."""
        effects = self.expected.effects
        return bool(given) and all(
            rule(self._measure(name, tensor), NO_LESS_ACCURATE).accepted
            for name, tensor in given.items()
            if name in effects and tensor.shape == effects[name].shape
        )

    def _errors_at_first_sight(self, found: Mapping[str, Tensor]) -> Mapping[str, ErrorMetrics]:
        """Those that are right without a look: a model has hundreds of small statistics."""
        assert self.expected.oracle is not None
        effects, oracles = self.expected.effects, self.expected.oracle.tensors
        small = [Small(n, found[n], effects[n], oracles.get(n)) for n in found]
        compared = compare_together(small, self.subject.device)
        metrics = {
            name: replace(it, terms=self.terms)
            for name, it in zip(found, compared, strict=True)
            if it is not None
        }
        return {name: it for name, it in metrics.items() if _is_clear(it)}

    def _errors(self, name: str, tensor: Tensor) -> ErrorMetrics:
        """The errors of one tensor, with what a rounding can lose where they are not small."""
        metrics = self._measure(name, tensor)
        if rule(metrics, NO_LESS_ACCURATE).accepted:
            return metrics
        if metrics.mismatches and not metrics.epsilon:
            undecided = self.runs.undecided_integers(self.expected, name)
            return self._measure(name, tensor, undecided)
        if metrics.mismatches:
            tensor = self.runs.without_kinds(self.expected, name, tensor)
            metrics = self._measure(name, tensor)
        if metrics.oracle is Oracle.REFERENCE:
            self._refuse_to_guess(metrics)
            return metrics
        draws = [(draw, Rounded.ALL) for draw in range(_DRAWS_OF_LOSSES)]
        if is_rounding(metrics, self._scale_for(metrics)):  # which luck may hide
            draws.append((0, rounded_as_by(self.expected)))
        for draw, what in draws:
            metrics = self._with_loss(metrics, draw, what)
            if rule(metrics, NO_LESS_ACCURATE).accepted:
                break
        return metrics

    def _refuse_to_guess(self, metrics: ErrorMetrics) -> None:
        """Do not call a candidate wrong that is merely not what the reference is.

        Where sums cancel, or a recurrence loses what it is given, the reference itself may be
        anywhere, and the oracle is missing because others have the memory.
        """
        assert self.expected.oracle is not None
        if not metrics.mismatches and self.expected.oracle.out_of_memory:
            self._blame_neighbours(metrics.name)

    def _blame_neighbours(self, name: str) -> None:
        """Raise OracleMemoryError, for another try, if others have the memory."""
        if self.subject.is_crowded():
            raise OracleMemoryError(
                f"out of memory: a float64 run of the reference does not fit beside other "
                f"processes' data, and without it nobody can say whether {name} is wrong"
            )

    def _with_loss(self, metrics: ErrorMetrics, draw: int, what: Rounded) -> ErrorMetrics:
        """With what one more draw of roundings loses, if that is more than the draws before."""
        name = metrics.name
        run = self.runs.rounded(self.expected, draw, Ties.KEPT, what)
        rounded = run.tensors.get(name)
        if run.out_of_memory:
            self._blame_neighbours(name)
        if rounded is None or rounded.shape != self.expected.effects[name].shape:
            return metrics
        loss = self._measure(name, rounded)
        return replace(
            metrics,
            loss_rmse=max(metrics.loss_rmse, loss.candidate_rmse),
            loss_worst=max(metrics.loss_worst, loss.candidate_worst),
        )

    def _measure(self, name: str, tensor: Tensor, undecided: Tensor | None = None) -> ErrorMetrics:
        """The errors of one tensor; integers that are `undecided` have none."""
        expected, device = self.expected, self.subject.device
        assert expected.oracle is not None

        def is_explained(metrics: ErrorMetrics) -> bool:
            if is_rounding(metrics, self._scale_for(metrics)):
                return True
            sensible = vanishes(metrics) or is_as_large(tensor, expected.effects[name])
            return sensible and self.runs.is_sensitive(expected, name, metrics)

        oracle = expected.oracle.tensors.get(name)
        metrics = compare(
            name,
            tensor.to(device),
            expected.effects[name].to(device),
            None if oracle is None else oracle.to(device),
            expected.oracle.note,
            undecided,
            is_explained,
        )
        return replace(with_rounding(metrics, self._scale_for(metrics)), terms=self.terms)

    def _scale_for(self, metrics: ErrorMetrics) -> float:
        """The largest RMS of what the call computes from; 0 where no vanishing result asks."""
        return self.runs.scale(self.expected) if vanishes(metrics) else 0.0

    def _errors_of_large(self, found: Mapping[str, Tensor]) -> tuple[ErrorMetrics, ...]:
        """With the oracle on some rows at a time, compared and dropped, or in one piece."""
        expected = self.expected
        if (rows := self.runs.by_rows(expected)) is not None:
            metrics, flops = rows.compare(expected, found)
            terms = terms_of(flops, expected.elements, expected.effects)
            return tuple(replace(it, terms=terms) for it in metrics)
        oracle, flops = self.runs.whole(expected)
        whole = replace(
            self,
            expected=replace(expected, oracle=oracle, flops=flops),
            terms=terms_of(flops, expected.elements, expected.effects),
        )
        return tuple(whole._errors(name, tensor) for name, tensor in found.items())


def _is_clear(metrics: ErrorMetrics) -> bool:
    """Whether neither a rounding nor another oracle has anything to say about it."""
    if vanishes(metrics) or not represents(metrics):
        return False
    return rule(metrics, NO_LESS_ACCURATE).accepted
