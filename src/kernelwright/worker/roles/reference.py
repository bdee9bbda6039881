"""The trusted child: runs the reference and its float64 oracle, keeps both, compares."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from kernelwright.problem import Problem
from kernelwright.verify.cases import Case, Sizes
from kernelwright.verify.mutants import Mutant, mutants_of, run_mutant
from kernelwright.verify.nesting import named_tensors
from kernelwright.verify.oracle import run_oracle
from kernelwright.verify.tolerance import ErrorMetrics
from kernelwright.worker.card.ledger import Ledger
from kernelwright.worker.process.handover import Handed, MemoryMaker, taken
from kernelwright.worker.process.requests import ReferenceRun
from kernelwright.worker.roles.case_comparison import CaseComparison
from kernelwright.worker.roles.expectation import Expectation, is_comparable
from kernelwright.worker.roles.float64_runs import Float64Runs
from kernelwright.worker.roles.magnitudes import bytes_of, counting_products, terms_of
from kernelwright.worker.roles.subject import Resident, Subject, module_key
from kernelwright.worker.roles.timed import Timed
from kernelwright.worker.roles.weights import load_other

_LARGE = 512 << 20
"""Bytes of arguments and results from which on the oracle is run on some rows at a time."""
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
        self._comparison: CaseComparison | None = None
        self._undecided: tuple[Mutant, ...] | None = None
        self._ledger = Ledger()
        self._flops: dict[Sizes, int] = {}
        """Operations of the oracle, by sizes."""

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
        self._comparison = None
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
        expected = Expectation(
            case=case,
            effects=call.effects,
            oracle=oracle,
            random=call.facts.random,
            elements=elements,
            flops=0 if oracle is None else self._flops[case.sizes],
        )
        self._comparison = CaseComparison(
            expected=expected,
            terms=terms_of(expected.flops, elements, call.effects),
            runs=Float64Runs(self._subject, resident, self._ledger),
            resident=resident,
            subject=self._subject,
        )
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
        comparison = self._comparison_of(case).with_left(tuple(it.name for it in handed))
        alike = [it for it in handed if is_comparable(it, comparison.expected.effects)]
        as_before = comparison.resident.before(kept)
        with taken(self._memory, folder, alike) as found:
            metrics = comparison.errors_of({**as_before, **found})
            self._subject.synchronize()
        self._subject.release()  # once in a case: what is given back has to be taken again
        return metrics

    @torch.no_grad()
    def probe(self, case: Case) -> tuple[str, ...] | None:
        """Run the mutants that no case has refused yet on the latest case; what is left of them.

        None for a case that is too large to be run as often.
        """
        comparison = self._comparison_of(case)
        if comparison.expected.oracle is None:
            return None
        arguments = self._subject.arguments(case)
        if self._undecided is None:
            self._undecided = mutants_of(comparison.resident.module, arguments)
        others = self._subject.arguments(replace(case, seed=case.seed + _ELSEWHERE))
        self._undecided = tuple(
            mutant
            for mutant in self._undecided
            if comparison.accepts(_given(mutant, comparison, arguments, others))
        )
        return tuple(str(mutant) for mutant in self._undecided)

    def take_spent(self) -> Mapping[str, float]:
        """Seconds since the last time by what they went to."""
        return self._ledger.take()

    def forget(self) -> None:
        """Drop results, and their memory."""
        self._comparison = None
        self._subject.release()

    def _comparison_of(self, case: Case) -> CaseComparison:
        if self._comparison is None or self._comparison.expected.case != case:
            raise LookupError(f"the latest case is not {case}")
        return self._comparison

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
    mutant: Mutant,
    comparison: CaseComparison,
    arguments: Sequence[object],
    others: Sequence[object],
) -> Mapping[str, Tensor]:
    """What a mutant gives; empty where it does not run."""
    expected, module = comparison.expected, comparison.resident.module
    outputs = {n: t for n, t in expected.effects.items() if n.startswith("output")}
    torch.manual_seed(expected.case.seed)
    try:
        return run_mutant(mutant, module, arguments, others, outputs, load_other)
    except Exception:  # a module that cannot be copied, or takes other values only
        return {}
