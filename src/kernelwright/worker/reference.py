"""The trusted child: runs the reference and its float64 oracle, keeps both, compares."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from kernelwright.problem import Problem
from kernelwright.verify.cases import Case, Sizes
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
from kernelwright.verify.mutants import Mutant, mutants_of, run_mutant
from kernelwright.verify.nesting import named_tensors
from kernelwright.verify.noise import Ties
from kernelwright.verify.oracle import (
    OracleRun,
    Rounded,
    run_on_cpu,
    run_oracle,
    run_rounded,
    upcast,
)
from kernelwright.verify.tolerance import (
    NO_LESS_ACCURATE,
    UNREPRESENTATIVE,
    ErrorMetrics,
    Oracle,
    rule,
)
from kernelwright.worker.errors import OracleMemoryError
from kernelwright.worker.expectation import Expectation, is_comparable, rounded_as_by
from kernelwright.worker.handover import Handed, MemoryMaker, taken
from kernelwright.worker.large_results import oracle_by_rows
from kernelwright.worker.ledger import Ledger
from kernelwright.worker.magnitudes import bytes_of, counting_products, scale_of, terms_of
from kernelwright.worker.requests import ReferenceRun
from kernelwright.worker.subject import Resident, Subject, module_key
from kernelwright.worker.timed import Timed
from kernelwright.worker.weights import load_other

_LARGE = 512 << 20
"""Bytes of arguments and results from which on the oracle is run on some rows at a time."""
_DRAWS = 12
"""Times that inputs are rounded to find the integers that a rounding decides about."""
_DRAWS_OF_LOSSES = 4
"""Times that every result is rounded to find what that loses: of deep networks now and then a
hundred times as much, where a rounding decides between two numbers."""
_SENSITIVE = 8
"""Times what rounded inputs lose that the reference may be from a float64 run that is its oracle:
it rounds in between as well."""
_SOON_ON_CPU = 1 << 33
"""Multiplications and additions in float64 that the CPU is done with in seconds."""
_ELSEWHERE = 100_000
"""Added to a case's seed for inputs that no case has."""


class Reference:
    """The problem's own module. Holds the results of one case at a time."""

    def __init__(
        self, problem: Problem, device: torch.device, memory: MemoryMaker | None = None
    ) -> None:
        """`memory` makes that of the device; None where results come in files."""
        self._subject = Subject(problem, device)
        self._memory = memory
        self._resident: tuple[Case, Resident] | None = None
        self._expectation: Expectation | None = None
        self._rounded: dict[tuple[int, Ties, Rounded], OracleRun] = {}
        self._undecided: tuple[Mutant, ...] | None = None
        self._ledger = Ledger()
        self._terms = 1.0
        self._flops: dict[Sizes, int] = {}
        """Operations of the oracle, by sizes."""
        self._scale: float | None = None

    def make(self, case: Case) -> None:
        """Construct the module that comes next, if it is another, without the device."""
        if self._resident is None or self._resident[0] != module_key(case):
            self._subject.make_reference(case)

    def timed(self) -> Timed:
        """The timing of a module, after `forget`."""
        return Timed(self._subject, self._given_away)

    @torch.no_grad()
    def run(self, case: Case) -> ReferenceRun:
        """Run the reference and the oracle on `case`."""
        self._forget_case()
        with self._ledger.spending("module"):
            resident = self._resident_for(case)
            self._subject.synchronize()
        with self._ledger.spending("inputs"):
            arguments = self._subject.arguments(case)
            self._subject.synchronize()
        with self._ledger.spending("call"):
            call = resident.call(self._subject, arguments, case)
        elements = sum(tensor.numel() for _, tensor in named_tensors(arguments, "input"))
        oracle = None
        if bytes_of(arguments, call) < _LARGE:
            if any(name.startswith("input") for name in call.facts.changed):
                arguments = self._subject.arguments(case)
            with self._ledger.spending("oracle"), self._counted(case):
                oracle = run_oracle(resident.module, arguments, seed=case.seed)
                self._subject.synchronize()
        self._expectation = Expectation(
            case=case,
            effects=call.effects,
            oracle=oracle,
            random=call.facts.random,
            elements=elements,
            flops=0 if oracle is None else self._flops[case.sizes],
        )
        self._terms = terms_of(self._expectation.flops, elements, call.effects)
        return ReferenceRun(facts=call.facts, state=resident.facts)

    @contextmanager
    def _counted(self, case: Case) -> Iterator[None]:
        """Count products, once for each sizes.

        While the oracle runs, for the reference itself runs as it would alone.
        """
        if case.sizes in self._flops:
            yield
            return
        with counting_products() as flops:
            yield
        self._flops[case.sizes] = flops.get_total_flops()

    @torch.no_grad()
    def compare(
        self, case: Case, folder: Path, handed: tuple[Handed, ...], kept: tuple[str, ...] = ()
    ) -> tuple[ErrorMetrics, ...]:
        """Errors of the candidate's tensors; those of another form are left out.

        Files are in `folder`. What lies on the device is read there: nobody may write to it. Of
        `kept` state the candidate has what it was before the call, which is the same here.
        """
        expected = self._with_left(self._expected(case), handed)
        alike = [it for it in handed if is_comparable(it, expected.effects)]
        as_before = self._resident_for(case).before(kept)
        with taken(self._memory, folder, alike) as found:
            metrics = self._compare(expected, {**as_before, **found})
            self._subject.synchronize()
        self._subject.release()  # once in a case: what is given back has to be taken again
        return metrics

    def _with_left(self, expected: Expectation, handed: tuple[Handed, ...]) -> Expectation:
        """With state that only a rounding left as it was: the float64 run did not."""
        if expected.oracle is None:
            return expected
        names = tuple(it.name for it in handed if it.name not in expected.effects)
        oracles = expected.oracle.tensors
        left = {
            name: tensor.clone()
            for name, tensor in self._resident_for(expected.case).before(names).items()
            if name in oracles and not torch.equal(oracles[name], upcast(tensor))
        }
        return replace(expected, effects={**expected.effects, **left})

    def _compare(
        self, expected: Expectation, found: Mapping[str, Tensor]
    ) -> tuple[ErrorMetrics, ...]:
        if expected.oracle is None:
            metrics = self._compare_large(expected, found)
        else:
            quick = self._compare_small(expected, found)
            metrics = tuple(
                quick.get(name) or self._compare_one(expected, name, found[name]) for name in found
            )
        return tuple(replace(it, terms=self._terms) for it in metrics)

    @torch.no_grad()
    def probe(self, case: Case) -> tuple[str, ...] | None:
        """Run the mutants that no case has refused yet on the latest case; what is left of them.

        None for a case that is too large to be run as often.
        """
        expected = self._expected(case)
        resident = self._resident_for(case)
        if expected.oracle is None:
            return None
        arguments = self._subject.arguments(case)
        if self._undecided is None:
            self._undecided = mutants_of(resident.module, arguments)
        others = self._subject.arguments(replace(case, seed=case.seed + _ELSEWHERE))
        self._undecided = tuple(
            mutant
            for mutant in self._undecided
            if self._accepts(expected, self._given(mutant, expected, arguments, others))
        )
        return tuple(str(mutant) for mutant in self._undecided)

    def take_spent(self) -> Mapping[str, float]:
        """Seconds since the last time by what they went to."""
        ledger, self._ledger = self._ledger, Ledger()
        return ledger.seconds

    def forget(self) -> None:
        """Drop results, and their memory."""
        self._forget_case()
        self._subject.release()

    def _forget_case(self) -> None:
        self._expectation = None
        self._rounded = {}
        self._scale = None

    def _expected(self, case: Case) -> Expectation:
        if self._expectation is None or self._expectation.case != case:
            raise LookupError(f"the latest case is not {case}")
        return self._expectation

    def _given_away(self, case: Case) -> nn.Module:
        """A module for somebody else, without what is needed to put its state back."""
        resident, self._resident = self._resident, None
        if resident is not None and resident[0] == module_key(case):
            return resident[1].module
        del resident
        return self._subject.reference(case)

    def _resident_for(self, case: Case) -> Resident:
        key = module_key(case)
        if self._resident is None or self._resident[0] != key:
            self._resident = None
            make = self._subject.definition(case.sizes).build
            self._resident = key, self._subject.construct(case, make)
        return self._resident[1]

    def _given(
        self,
        mutant: Mutant,
        expected: Expectation,
        arguments: Sequence[object],
        others: Sequence[object],
    ) -> Mapping[str, Tensor]:
        """What a mutant gives; empty where it does not run."""
        module = self._resident_for(expected.case).module
        outputs = {n: t for n, t in expected.effects.items() if n.startswith("output")}
        torch.manual_seed(expected.case.seed)
        try:
            return run_mutant(mutant, module, arguments, others, outputs, load_other)
        except Exception:  # a module that cannot be copied, or takes other values only
            return {}

    def _accepts(self, expected: Expectation, given: Mapping[str, Tensor]) -> bool:
        """Whether a mutant's results would be taken for right ones."""
        if not given:
            return False
        rulings = [
            rule(self._with_terms(expected, name, tensor), NO_LESS_ACCURATE).accepted
            for name, tensor in given.items()
            if name in expected.effects and tensor.shape == expected.effects[name].shape
        ]
        return all(rulings)

    def _with_terms(self, expected: Expectation, name: str, tensor: Tensor) -> ErrorMetrics:
        return replace(self._measure(expected, name, tensor), terms=self._terms)

    def _compare_small(
        self, expected: Expectation, found: Mapping[str, Tensor]
    ) -> Mapping[str, ErrorMetrics]:
        """Those that are right at first sight: a model has hundreds of small statistics."""
        assert expected.oracle is not None
        effects, oracles = expected.effects, expected.oracle.tensors
        small = [Small(n, found[n], effects[n], oracles.get(n)) for n in found]
        compared = zip(found, compare_together(small, self._subject.device), strict=True)
        return {name: it for name, it in compared if it is not None and self._is_clear(it)}

    def _is_clear(self, metrics: ErrorMetrics) -> bool:
        """Whether neither a rounding nor another oracle has anything to say about it."""
        if vanishes(metrics) or not represents(metrics):
            return False
        return rule(replace(metrics, terms=self._terms), NO_LESS_ACCURATE).accepted

    def _compare_one(self, expected: Expectation, name: str, tensor: Tensor) -> ErrorMetrics:
        """The errors of one tensor, with what a rounding can lose where they are not small."""
        metrics = self._with_terms(expected, name, tensor)
        if rule(metrics, NO_LESS_ACCURATE).accepted:
            return metrics
        if metrics.mismatches and not metrics.epsilon:
            undecided = self._undecided_integers(expected, name)
            return self._measure(expected, name, tensor, undecided)
        if metrics.mismatches:
            tensor = self._without_kinds(expected, name, tensor)
            metrics = self._with_terms(expected, name, tensor)
        if metrics.oracle is Oracle.REFERENCE:
            self._refuse_to_guess(expected, metrics)
            return metrics
        draws = [(draw, Rounded.ALL) for draw in range(_DRAWS_OF_LOSSES)]
        if is_rounding(metrics, self._scale_for(expected, metrics)):  # which luck may hide
            draws.append((0, rounded_as_by(expected)))
        for draw, what in draws:
            metrics = self._with_loss(expected, metrics, draw, what)
            if rule(metrics, NO_LESS_ACCURATE).accepted:
                break
        return metrics

    def _refuse_to_guess(self, expected: Expectation, metrics: ErrorMetrics) -> None:
        """Do not call a candidate wrong that is merely not what the reference is.

        Where sums cancel the reference itself may be further from the truth than is allowed
        without an oracle, and the oracle is missing because others have the memory.
        """
        assert expected.oracle is not None
        if metrics.mismatches or not expected.oracle.out_of_memory:
            return
        if metrics.candidate_rmse <= UNREPRESENTATIVE * metrics.rms and self._subject.is_crowded():
            raise OracleMemoryError(
                f"out of memory: the float64 run of the reference does not fit beside other "
                f"processes' data, and without it nobody can say whether {metrics.name} is wrong"
            )

    def _with_loss(
        self, expected: Expectation, metrics: ErrorMetrics, draw: int, what: Rounded
    ) -> ErrorMetrics:
        """With what one more draw of roundings loses, if that is more than the draws before."""
        name = metrics.name
        rounded = self._run_rounded(expected.case, draw, Ties.KEPT, what).tensors.get(name)
        if rounded is None or rounded.shape != expected.effects[name].shape:
            return metrics
        loss = self._measure(expected, name, rounded)
        return replace(
            metrics,
            loss_rmse=max(metrics.loss_rmse, loss.candidate_rmse),
            loss_worst=max(metrics.loss_worst, loss.candidate_worst),
        )

    def _measure(
        self,
        expected: Expectation,
        name: str,
        tensor: Tensor,
        undecided: Tensor | None = None,
    ) -> ErrorMetrics:
        assert expected.oracle is not None
        device = self._subject.device

        def is_explained(metrics: ErrorMetrics) -> bool:
            if is_rounding(metrics, self._scale_for(expected, metrics)):
                return True
            sensible = vanishes(metrics) or is_as_large(tensor, expected.effects[name])
            return sensible and self._is_sensitive(expected, name, metrics)

        metrics = compare(
            name,
            tensor.to(device),
            expected.effects[name].to(device),
            _on(expected.oracle.tensors.get(name), device),
            expected.oracle.note,
            undecided,
            is_explained,
        )
        return with_rounding(metrics, self._scale_for(expected, metrics))

    def _scale_for(self, expected: Expectation, metrics: ErrorMetrics) -> float:
        """The largest RMS of what the call computes from; 0 where no vanishing result asks."""
        if not vanishes(metrics):
            return 0.0
        if self._scale is None:
            arguments = self._subject.arguments(expected.case)
            self._scale = scale_of(self._resident_for(expected.case).module, arguments)
        return self._scale

    def _is_sensitive(self, expected: Expectation, name: str, metrics: ErrorMetrics) -> bool:
        """Whether rounded inputs and weights take the float64 run as far as the reference is."""
        assert expected.oracle is not None
        what = rounded_as_by(expected)
        rounded = self._run_rounded(expected.case, 0, Ties.KEPT, what).tensors.get(name)
        reference, oracle = expected.effects[name], expected.oracle.tensors[name]
        if rounded is None or rounded.shape != reference.shape:
            return False
        device = rounded.device
        lost = compare(
            name, rounded, reference.to(device), oracle.to(device), explained=lambda _: True
        )
        return metrics.reference_rmse <= _SENSITIVE * lost.candidate_rmse

    def _without_kinds(self, expected: Expectation, name: str, tensor: Tensor) -> Tensor:
        """The tensor with the reference's NaN or infinity wherever it has either.

        Of statistics that a module keeps neither is of use. Results are unchanged where PyTorch
        has the same of them for every element, however it adds up: then it is no matter of order.
        """
        case, reference = expected.case, expected.effects[name].to(tensor.device)
        either = ~reference.isfinite() & ~tensor.isfinite()
        if name.startswith("state"):
            return torch.where(either, reference, tensor)
        if expected.flops > _SOON_ON_CPU:
            return tensor
        module, arguments = self._resident_for(case).module, self._subject.arguments(case)
        with self._ledger.spending("oracle on the CPU"):
            other = run_on_cpu(module, arguments, seed=case.seed).tensors.get(name)
        if other is None or other.shape != reference.shape:
            return tensor
        other = other.to(tensor.device)
        differs = reference.isnan() & other.isinf() | reference.isinf() & other.isnan()
        return torch.where(either, reference, tensor) if differs.any() else tensor

    def _undecided_integers(self, expected: Expectation, name: str) -> Tensor | None:
        """Where integers depend on a rounding of the inputs; None where no oracle says."""
        assert expected.oracle is not None
        reference, oracle = expected.effects[name], expected.oracle.tensors.get(name)
        if oracle is None or oracle.shape != reference.shape:
            return None
        undecided = oracle != reference.to(oracle.device)
        for draw in range(_DRAWS):
            rounded = self._run_rounded(expected.case, draw, Ties.BROKEN).tensors.get(name)
            if rounded is not None and rounded.shape == oracle.shape:
                undecided |= rounded != oracle
        return undecided.to(self._subject.device)

    def _run_rounded(
        self, case: Case, draw: int, ties: Ties, what: Rounded = Rounded.GIVEN
    ) -> OracleRun:
        key = (draw, ties, what)
        if key not in self._rounded:
            module, arguments = self._resident_for(case).module, self._subject.arguments(case)
            with self._ledger.spending("oracle on rounded inputs"):
                self._rounded[key] = run_rounded(
                    module, arguments, seed=case.seed, draw=draw, ties=ties, what=what
                )
                self._subject.synchronize()
        return self._rounded[key]

    # --- Results of gigabytes -----------------------------------------------------------------

    def _compare_large(
        self, expected: Expectation, found: Mapping[str, Tensor]
    ) -> tuple[ErrorMetrics, ...]:
        """The oracle on some rows at a time, compared and dropped."""
        module = self._resident_for(expected.case).module
        rows = oracle_by_rows(expected, module, self._subject.arguments(expected.case))
        if rows is None:
            return self._compare_whole(expected, found)
        metrics, flops = rows.compare(expected, found)
        self._terms = terms_of(flops, expected.elements, expected.effects)
        return metrics

    def _compare_whole(
        self, expected: Expectation, found: Mapping[str, Tensor]
    ) -> tuple[ErrorMetrics, ...]:
        """The oracle in one piece; where it does not fit, its note says so."""
        case = expected.case
        module, arguments = self._resident_for(case).module, self._subject.arguments(case)
        with self._ledger.spending("oracle"), counting_products() as flops:
            oracle = run_oracle(module, arguments, seed=case.seed)
            self._subject.synchronize()
        whole = replace(expected, oracle=oracle, flops=flops.get_total_flops())
        self._terms = terms_of(whole.flops, expected.elements, expected.effects)
        return tuple(self._compare_one(whole, name, tensor) for name, tensor in found.items())


def _on(tensor: Tensor | None, device: torch.device) -> Tensor | None:
    return None if tensor is None else tensor.to(device)
