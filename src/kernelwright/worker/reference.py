"""The trusted child: runs the reference and its float64 oracle, keeps both, compares."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from kernelwright.problem import Problem
from kernelwright.verify.cases import Case
from kernelwright.verify.compare import compare
from kernelwright.verify.observation import RunFacts, StateFacts
from kernelwright.verify.oracle import OracleRun, run_oracle
from kernelwright.verify.tolerance import ErrorMetrics
from kernelwright.worker.subject import Resident, Subject, module_key
from kernelwright.worker.tensors import TensorHeader, read_tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceRun:
    """Reply to "run"."""

    facts: RunFacts
    state: StateFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class _Expectation:
    """What the latest case should give."""

    case: Case
    effects: Mapping[str, Tensor]
    oracle: OracleRun


class Reference:
    """The problem's own module. Holds the results of one case at a time."""

    def __init__(self, problem: Problem, device: torch.device) -> None:
        self._subject = Subject(problem, device)
        self._resident: tuple[Case, Resident] | None = None
        self._expectation: _Expectation | None = None

    @torch.no_grad()
    def run(self, case: Case) -> ReferenceRun:
        """Run the reference and the oracle on `case`."""
        self._expectation = None
        resident = self._resident_for(case)
        arguments = self._subject.arguments(case)
        call = resident.call(self._subject, arguments, case)
        if any(name.startswith("input") for name in call.facts.changed):
            arguments = self._subject.arguments(case)
        oracle = run_oracle(resident.module, arguments, seed=case.seed)
        self._expectation = _Expectation(case=case, effects=call.effects, oracle=oracle)
        self._subject.release()
        return ReferenceRun(facts=call.facts, state=resident.facts)

    def compare(
        self, case: Case, folder: Path, headers: tuple[TensorHeader, ...]
    ) -> tuple[ErrorMetrics, ...]:
        """Errors of the candidate's tensors in `folder`; those of another form are left out."""
        expected = self._expectation
        if expected is None or expected.case != case:
            raise LookupError(f"the latest case is not {case}")
        return tuple(
            self._compare_one(header, folder, expected)
            for header in headers
            if _comparable(header, expected.effects)
        )

    def forget(self) -> None:
        """Drop module and results, and their memory."""
        self._resident = self._expectation = None
        self._subject.release()

    def _resident_for(self, case: Case) -> Resident:
        key = module_key(case)
        if self._resident is None or self._resident[0] != key:
            self._resident = None
            make = self._subject.definition(case.sizes).build
            self._resident = key, self._subject.construct(case, make)
        return self._resident[1]

    def _compare_one(
        self, header: TensorHeader, folder: Path, expected: _Expectation
    ) -> ErrorMetrics:
        device = self._subject.device
        return compare(
            header.name,
            read_tensor(folder, header).to(device),
            expected.effects[header.name].to(device),
            _on(expected.oracle.tensors.get(header.name), device),
            expected.oracle.note,
        )


def _comparable(header: TensorHeader, effects: Mapping[str, Tensor]) -> bool:
    tensor = effects.get(header.name)
    if tensor is None:
        return False
    return header.dtype == str(tensor.dtype) and header.shape == tuple(tensor.shape)


def _on(tensor: Tensor | None, device: torch.device) -> Tensor | None:
    return None if tensor is None else tensor.to(device)
