"""What the children of one judgement are asked, in parallel where that can be."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernelwright.errors import KernelwrightError
from kernelwright.machine import Machine
from kernelwright.problem import Problem
from kernelwright.toolchain.records import Target
from kernelwright.verify.agreement import Agreement
from kernelwright.verify.cases import Case, Sizes, Weights
from kernelwright.verify.observation import (
    DEVICE_LOST,
    Fault,
    FaultKind,
    Links,
    Observation,
    Refusal,
    RunFacts,
)
from kernelwright.verify.records import RecordError, from_plain, to_plain
from kernelwright.verify.state import COMPARED_WEIGHTS, link_state
from kernelwright.verify.tolerance import ErrorMetrics
from kernelwright.verify.verdict import Check
from kernelwright.verify.verification import BuildFacts
from kernelwright.worker.answers import (
    as_fault,
    candidate_run,
    nonsense,
    readable,
    seconds_of_call,
    trusted,
)
from kernelwright.worker.candidate import CandidateRun
from kernelwright.worker.child_process import ChildProcess
from kernelwright.worker.children import Children
from kernelwright.worker.client import Answer, Raised, Replied
from kernelwright.worker.handover import Handed, WriteReply, WriteRequest
from kernelwright.worker.hanging import Patience, patience_for
from kernelwright.worker.lease import open_lease
from kernelwright.worker.options import JudgeOptions, Sanitizers
from kernelwright.worker.requests import (
    LARGE,
    CaseRequest,
    CompareRequest,
    ComparisonReply,
    MachineReply,
    ProbeReply,
    ReferenceRun,
    Role,
    SizesReply,
    SizesRequest,
)
from kernelwright.worker.sandbox_report import isolation_check
from kernelwright.worker.sanitizer import find_sanitizer, on_the_emulator, without_a_tool
from kernelwright.worker.seats import Footprint
from kernelwright.worker.tensors import TensorHeader
from kernelwright.worker.timer_records import SharedTensor

_SMALL = 64 << 20
"""Bytes of a call up to which it is made under compute-sanitizer as it is."""
_ROOM_TO_COMPILE = 2 << 30
"""Bytes of a call up to which it is made once more while others run."""


class ChildSession(Children):
    """Asks reference and candidate, in processes of their own; the Session that `verify` asks.

    Nothing is asked before a candidate is admitted.
    """

    def __init__(
        self, problem: Problem, target: Target, options: JudgeOptions, folder: Path
    ) -> None:
        super().__init__(problem, target, options, folder)
        self.using_card: Callable[[], AbstractContextManager[None]] = nullcontext
        """Around whatever is asked that uses the card, and not around the rest."""
        self.agreement = Agreement()
        self.footprint = Footprint(bytes=0, largest=0, memory=0)
        """Footprint of a call at the sizes under judgement, once those are known."""
        self._machine: Machine | None = None
        self._own_sizes: Sizes = ()
        self._sizes: SizesReply | None = None
        self._sizes_seen: set[Sizes] = set()
        self._looks_for_sizes = False
        self._compiles = False
        self._builds = False
        self._runs = 0
        self._longest = 0.0
        """Seconds of the reference's calls at the sizes under judgement."""
        self._unguarded: list[CaseRequest] = []
        """What the candidate ran before there was a process with guards."""
        self._links: Links | None = None

    def machine(self) -> Machine:
        """The card, by the reference's process, which has it anyway."""
        if self._machine is None:
            answer = self.reference.ask("machine", {}, self._options.timeouts.run)
            self._machine = trusted(MachineReply, answer).machine
        return self._machine

    def give_back(self) -> None:
        """Let all that have started keep no memory for later: somebody found too little."""
        children = [self.reference, self.candidate]
        if (child := self._prelaunched.get(Role.COMPILED)) and child.has_started():
            children.append(child)
        for child in children:
            with suppress(KernelwrightError):  # whoever needs it will say so
                child.ask("give back", {}, self._options.timeouts.run)

    def compile_early(self, size: int, most: int) -> None:
        """Let torch.compile work meanwhile, if a call takes no more than `most` bytes."""
        child = self._prelaunched.get(Role.COMPILED)
        if child is None or self._compiles or size > most:
            return
        self._compiles = True
        request = to_plain(CaseRequest(case=Case()))
        with suppress(KernelwrightError):  # it is asked again when it is to be timed
            child.begin("compile", request, self._options.timeouts.compile)

    def _room_to_compile(self, case: Case) -> int:
        """Bytes of a call that may be made beside `case`.

        All that it has where only smaller ones are left: its share of the memory lies idle then.
        """
        went_on = case.sizes != self._own_sizes and case.sizes in self._sizes_seen
        return self.footprint.memory if went_on else _ROOM_TO_COMPILE

    def see_them_compile(self) -> None:
        """Wait for what `compile_early` has begun."""
        if child := self._prelaunched.get(Role.COMPILED):
            child.finish()

    def _sanitize_beside(self) -> None:
        """Let the tools run the candidate, which is built, at small sizes."""
        if self.sanitizing is None or self._sizes is None:
            return
        small = (*self._sizes.ragged[:1], *self._sizes.others[:1])
        cases = [Case(sizes=sizes) for sizes in dict.fromkeys(small)]
        if self.footprint.bytes <= _SMALL or not cases:
            cases.append(Case(sizes=self._own_sizes))
        timeouts, every = self._options.timeouts, self._options.sanitizers is Sanitizers.ALL
        seconds = timeouts.run if every else timeouts.memcheck
        self.sanitizing.begin(tuple(cases), self._sharing, seconds)

    @contextmanager
    def _sharing(self) -> Iterator[None]:
        """The card, shared by a lease of its own: other threads have theirs."""
        with open_lease(self._options.device_index) as lease, lease.shared():
            yield

    def sanitized(self) -> tuple[Check, ...]:
        """What compute-sanitizer's tools say; the emulator in place of all, where that runs."""
        if self._options.sanitizers is Sanitizers.ALL and self._target is Target.CPU:
            return (on_the_emulator(),)
        if self.sanitizing is None:
            asked = self._options.sanitizers is Sanitizers.ALL
            return (without_a_tool(),) if asked and find_sanitizer() is None else ()
        self.see_sanitized()
        return self.sanitizing.checks()

    def see_sanitized(self) -> None:
        """Wait until compute-sanitizer's tools are done: before anybody is timed."""
        if self.sanitizing is not None:
            with self.ledger.spending("compute-sanitizer"):
                self.sanitizing.checks()

    def isolation(self) -> Check:
        """Which protections the candidate's process was under."""
        return isolation_check(self.candidate.started)

    def look_for_sizes(self) -> None:
        """Let the reference find what `sizes` gives, if it does not do so already."""
        if self._looks_for_sizes:
            return
        request = SizesRequest(
            bytes=self._options.variant_bytes,
            flops=self._options.variant_flops,
            shrink=self._target is Target.CPU,
        )
        self.reference.post("sizes", to_plain(request))
        self._looks_for_sizes = True

    def sizes(self) -> SizesReply:
        """Sizes under judgement and further ones; remembers the former."""
        self.look_for_sizes()
        self._looks_for_sizes = False
        sizes = trusted(SizesReply, self.reference.wait(self._options.timeouts.build))
        self._own_sizes, self._sizes = sizes.own, sizes
        self.footprint = Footprint(bytes=sizes.bytes, largest=sizes.largest, memory=sizes.memory)
        return sizes

    def begin_build(self) -> None:
        """Let the candidate do what `build` waits for, if it does not do so already."""
        if self._builds:
            return
        self.candidate.post("build", to_plain(CaseRequest(case=Case(sizes=self._own_sizes))))
        self._builds = True

    def build(self) -> BuildFacts:
        """Import the candidate and construct its module at the sizes under judgement."""
        if not self._builds:
            self.begin_build()
        self._builds = False
        patience = self.patience(self.candidate)
        match self.candidate.wait(self._options.timeouts.build, patience):
            case Replied(body=body):
                try:
                    facts = from_plain(BuildFacts, body)
                except RecordError as error:
                    facts = BuildFacts(seconds=0.0, fault=nonsense(error))
            case failed:
                facts = BuildFacts(seconds=0.0, fault=as_fault(failed, FaultKind.BUILD))
        return replace(facts, fault=readable(facts.fault, self._candidate_path))

    def run(self, case: Case) -> Observation:
        """Run both on `case` at the same time, then compare."""
        self._runs += 1
        if self._runs == 2:  # a second case is asked where the first was right
            self.launch_the_rest()
        self._sanitize_beside()
        child = self._prelaunched.get(Role.COMPILED)
        if child is not None and child.has_started():  # nobody waits for it on a card that is taken
            self.compile_early(
                self.footprint.bytes + self.footprint.largest, self._room_to_compile(case)
            )
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

    def _is_large(self, case: Case) -> bool:
        """Whether a case takes gigabytes: no process runs it that need not."""
        return self.footprint.bytes > LARGE and case.sizes == self._own_sizes

    def guarded(self) -> tuple[Check, ...]:
        """What the guards have seen in all cases, those included that it was not there for."""
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
        )

    def call(self, case: Case, child: ChildProcess) -> tuple[Answer, Answer]:
        """What the reference and `child` answer to a case, which they run at the same time.

        Their modules are made before they use the card: that takes seconds of the CPU where there
        are many weights.
        """
        asked = CaseRequest(case=case, links=self._links)
        guarded = child is self.candidate and not self._is_large(case)
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
        if not self._emulated or not isinstance(observation.candidate, RunFacts):
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
        """Errors of what `owner` handed over or `kept`, after the reference ran `case`; files go.

        The owner stands still meanwhile: what is compared is what it had when it answered.
        """
        answer = self._ask_to_compare(case, handed, owner, kept)
        if isinstance(answer, Raised) and any(isinstance(it, SharedTensor) for it in handed):
            # Processes that do not see each other's memory, for example in containers.
            handed = self._in_files(handed, owner)
            answer = self._ask_to_compare(case, handed, owner, kept)
        for it in handed:
            if isinstance(it, TensorHeader):
                (self._exchange / Path(it.file).name).unlink(missing_ok=True)
        reply = trusted(ComparisonReply, answer)
        self.ledger.include("reference: compare", reply.spent)
        return reply.metrics

    def _ask_to_compare(
        self, case: Case, handed: tuple[Handed, ...], owner: ChildProcess, kept: tuple[str, ...]
    ) -> Answer:
        request = to_plain(CompareRequest(case=case, files=handed, kept=kept))
        owner.freeze()
        try:
            with self.using_card():
                return self.reference.ask("compare", request, self._options.timeouts.run)
        finally:
            owner.thaw()

    def _in_files(self, handed: tuple[Handed, ...], owner: ChildProcess) -> tuple[Handed, ...]:
        """What was handed, with what lies on the device written by its owner, if that does so."""
        shared = tuple(it for it in handed if isinstance(it, SharedTensor))
        request = to_plain(WriteRequest(shared=shared))
        answer = owner.ask("write", request, self._options.timeouts.run)
        written: tuple[TensorHeader, ...] = ()
        if isinstance(answer, Replied):
            with suppress(RecordError):
                written = from_plain(WriteReply, answer.body).files
        return (*(it for it in handed if isinstance(it, TensorHeader)), *written)

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
