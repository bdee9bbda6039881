"""The cases of one judgement: reference and candidate run each in parallel where that can be."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernelwright.problem import Problem
from kernelwright.toolchain.records import Target
from kernelwright.verify.agreement import Agreement
from kernelwright.verify.cases import Case, Sizes, Weights
from kernelwright.verify.observation import (
    DEVICE_LOST,
    Fault,
    Links,
    Observation,
    Refusal,
    RunFacts,
)
from kernelwright.verify.records import to_plain
from kernelwright.verify.state import COMPARED_WEIGHTS, link_state
from kernelwright.verify.tolerance import ErrorMetrics
from kernelwright.verify.verdict import Check
from kernelwright.worker.judging.answers import candidate_run, seconds_of_call, trusted
from kernelwright.worker.judging.asking import Asking
from kernelwright.worker.judging.comparing import Comparing
from kernelwright.worker.options import JudgeOptions
from kernelwright.worker.process.child_process import ChildProcess
from kernelwright.worker.process.client import Answer, Replied
from kernelwright.worker.process.handover import Handed
from kernelwright.worker.process.hanging import Patience, patience_for
from kernelwright.worker.process.requests import CaseRequest, ProbeReply, ReferenceRun, Role
from kernelwright.worker.roles.candidate import CandidateRun


class ChildSession(Asking):
    """Asks reference and candidate, in processes of their own; the Session that `verify` asks.

    Nothing is asked before a candidate is admitted.
    """

    def __init__(
        self, problem: Problem, target: Target, options: JudgeOptions, folder: Path
    ) -> None:
        super().__init__(problem, target, options, folder)
        self.agreement = Agreement()
        self._sizes_seen: set[Sizes] = set()
        self._runs = 0
        self._longest = 0.0
        """Seconds of the reference's calls at the sizes under judgement."""
        self._unguarded: list[CaseRequest] = []
        """What the candidate ran before there was a process with guards."""
        self._links: Links | None = None

    def run(self, case: Case) -> Observation:
        """Run both on `case` at the same time, then compare."""
        self._runs += 1
        if self._runs == 2:  # a second case is asked where the first was right
            self.launch_the_rest()
        self.sanitize_beside()
        self.compiling.begin_beside(case, self.footprint, self._own_sizes, self._sizes_seen)
        if self._runs == 1 and case.weights is not Weights.MADE:
            self._both_linked(Case(sizes=case.sizes))  # nothing else shows what stands for what
        expected, found = self._both_linked(case)
        if isinstance(found.facts, Fault) and found.facts.kind in DEVICE_LOST:
            self.candidate.close()  # a device that is lost stays lost for this process
        first = case.sizes not in self._sizes_seen
        self._sizes_seen.add(case.sizes)
        observation = Observation(
            case=case,
            reference=expected if isinstance(expected, Refusal) else expected.facts,
            candidate=found.facts,
            reference_state=expected.state if isinstance(expected, ReferenceRun) else None,
            candidate_state=found.state if first or case.weights in COMPARED_WEIGHTS else None,
            comparisons=(),
            repeats=None,
            findings=found.findings,
            links=self._links,
        )
        if isinstance(expected, Refusal):
            return observation
        observation = self._compared(observation, found)
        is_first_case = len(self._sizes_seen) == 1 and first
        return self._reordered(observation) if is_first_case else observation

    def _both_linked(self, case: Case) -> tuple[ReferenceRun | Refusal, CandidateRun]:
        """The runs of both, where it is known what stands for the reference's state.

        That is put back after a call, so who learns it here runs once more.
        """
        expected, found = self._both(case)
        if (links := _links_between(case, expected, found)) is None or self._links is not None:
            return expected, found
        self._links = links
        return self._both(case)

    def _both(self, case: Case) -> tuple[ReferenceRun | Refusal, CandidateRun]:
        reference, candidate = self.call(case, self.candidate)
        return self._reference_run(case, reference), candidate_run(candidate)

    def guarded(self) -> tuple[Check, ...]:
        """What the guards have seen in all cases, those included that it was not there for."""
        self.see_watched_launched()
        if self.guard is None:
            return ()
        with self.using_card():
            self.guard.finish(self._unguarded)
        return self.guard.checks()

    def patience_with_calls(self, calls: int, besides: float) -> Patience:
        """How long the candidate may take for calls at its own sizes, and `besides` for the rest.

        As in a case: it is measured by the reference's call, the longest that was seen.
        """
        return patience_for(
            least=self._options.timeouts.hang,
            call=self._longest,
            calls=calls,
            beside=besides,
            compiles=lambda: self._has_compilers(self.candidate),
            compiling=self._options.timeouts.build,
        )

    def call(self, case: Case, child: ChildProcess) -> tuple[Answer, Answer]:
        """What the reference and `child` answer to a case, which they run at the same time.

        Their modules are made before they use the card: that takes seconds of the CPU where there
        are many weights.
        """
        asked = CaseRequest(case=case, links=self._links)
        guarded = child is self.candidate and not self.is_large(case)
        guard = self.guard if guarded else None
        request = to_plain(asked)
        seconds, began = self._options.timeouts.run, time.monotonic()
        self.reference.post("make", request)
        child.post("make", request)
        self.reference.wait(seconds)
        made = child.wait(seconds, self.patience(child, beside=time.monotonic() - began))
        with self.using_card():
            began = time.monotonic()
            self.reference.post("run", request)
            if not isinstance(made, Replied):
                return self.reference.wait(seconds), made
            child.post("run", request)
            if guard is not None:
                guard.begin(asked)
            elif guarded:
                self._unguarded.append(asked)
            expected = self.reference.wait(seconds)
            if case.sizes == self._own_sizes:
                self._longest = max(self._longest, seconds_of_call(expected) or 0.0)
            beside = time.monotonic() - began
            found = child.wait(seconds, self.patience(child, expected, beside=beside))
            if guard is not None:
                guard.end(candidate_run(found).facts)
            return expected, found

    def probe(self, case: Case) -> tuple[str, ...] | None:
        """Wrong answers that neither this case, the latest one, nor one before it refuses.

        None where the case is too large for trying any.
        """
        request = to_plain(CaseRequest(case=case))
        with self.using_card():
            answer = self.reference.ask("probe", request, self._options.timeouts.run)
        reply = trusted(ProbeReply, answer)
        self.ledger.include("reference: probe", reply.spent)
        return reply.undecided

    def _compared(self, observation: Observation, found: CandidateRun) -> Observation:
        repeats = observation.repeats
        if found.repeat_files is not None:
            repeats = self.compare(observation.case, found.repeat_files, self.candidate)
        kept = _kept(observation)
        comparisons = self.compare(observation.case, found.files, self.candidate, kept)
        for seen in (comparisons, repeats or ()):
            self.agreement.learn(observation.case.distribution, seen)
        return replace(observation, comparisons=comparisons, repeats=repeats)

    def _reordered(self, observation: Observation) -> Observation:
        """The case once more for every other order of threads that the emulator can take."""
        if not self._spawner.emulated or not isinstance(observation.candidate, RunFacts):
            return observation
        marks = [facts.fingerprint for facts in observation.candidate.outputs]
        for order_seed in range(1, self._options.order_seeds):
            child = self.child(Role.CANDIDATE, order_seed)
            request = to_plain(CaseRequest(case=observation.case, links=self._links))
            answer = child.ask("run", request, self._options.timeouts.run, self.patience(child))
            found = candidate_run(answer)
            observation = replace(
                observation, findings=_merged(observation.findings, found.findings)
            )
            if isinstance(found.facts, Fault):
                return replace(observation, candidate=found.facts)
            if marks != [facts.fingerprint for facts in found.facts.outputs]:
                repeats = self.compare(observation.case, found.files, child)
                return replace(observation, repeats=repeats)
            child.close()
        return observation

    def compare(
        self,
        case: Case,
        handed: tuple[Handed, ...],
        owner: ChildProcess,
        kept: tuple[str, ...] = (),
    ) -> tuple[ErrorMetrics, ...]:
        """Errors of what `owner` handed over or `kept`, after the reference ran `case`."""
        comparing = Comparing(
            reference=self.reference,
            exchange=self._spawner.exchange,
            using_card=self.using_card,
            seconds=self._options.timeouts.run,
            ledger=self.ledger,
        )
        return comparing.errors_of(case, handed, owner, kept)

    def _reference_run(self, case: Case, answer: Answer) -> ReferenceRun | Refusal:
        own = case == Case(seed=case.seed, sizes=case.sizes)
        if isinstance(answer, Replied) or own:
            run = trusted(ReferenceRun, answer)
            self.ledger.include("reference: run", run.spent)
            return run
        if _CUDA_ERROR in answer.message:
            # PyTorch's own kernels fault, too: on memory that is not aligned, for one.
            self.reference.close()
        return Refusal(message=answer.message)


_CUDA_ERROR = "CUDA error"
"""What PyTorch says when a kernel has faulted: the process is of no more use."""


def _links_between(
    case: Case, expected: ReferenceRun | Refusal, found: CandidateRun
) -> Links | None:
    """What stands for the reference's tensors, where not all have its names and values."""
    if case.weights is not Weights.MADE or found.state is None or isinstance(expected, Refusal):
        return None
    sides = (expected.state, found.state)
    marks = [[(it.name, it.fingerprint) for it in side.tensors] for side in sides]
    return None if marks[0] == marks[1] else link_state(*sides)


def _kept(observation: Observation) -> tuple[str, ...]:
    """State that the reference's call changed and the candidate's did not."""
    match observation.reference, observation.candidate:
        case RunFacts(changed=expected), RunFacts(changed=found):
            return tuple(it for it in expected if it.startswith("state.") and it not in found)
    return ()


def _merged(first: tuple[Any, ...], second: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(dict.fromkeys((*first, *second)))
