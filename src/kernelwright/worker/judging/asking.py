"""What the children of one judgement are asked before and after the cases."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path

from kernelwright.errors import KernelwrightError
from kernelwright.machine import Machine
from kernelwright.problem import Problem
from kernelwright.toolchain.records import Target
from kernelwright.verify.cases import Case, Sizes
from kernelwright.verify.observation import FaultKind
from kernelwright.verify.records import RecordError, from_plain, to_plain
from kernelwright.verify.verdict import Check
from kernelwright.verify.verification import BuildFacts
from kernelwright.worker.card.lease import open_lease
from kernelwright.worker.card.seats import Footprint
from kernelwright.worker.judging.answers import as_fault, nonsense, readable, trusted
from kernelwright.worker.judging.children import Children
from kernelwright.worker.judging.sanitizer import find_sanitizer, on_the_emulator, without_a_tool
from kernelwright.worker.options import JudgeOptions, Sanitizers
from kernelwright.worker.process.child_process import ChildProcess
from kernelwright.worker.process.client import Replied
from kernelwright.worker.process.early_compile import ROOM_TO_COMPILE, EarlyCompile
from kernelwright.worker.process.requests import (
    LARGE,
    CaseRequest,
    MachineReply,
    Role,
    SizesReply,
    SizesRequest,
)
from kernelwright.worker.sandbox.report import isolation_check

_SMALL = 64 << 20
"""Bytes of a call up to which it is made under compute-sanitizer as it is."""


class Asking(Children):
    """Children that are asked for the card, for sizes, to build, and what was seen of them."""

    def __init__(
        self, problem: Problem, target: Target, options: JudgeOptions, folder: Path
    ) -> None:
        super().__init__(problem, target, options, folder)
        self.using_card: Callable[[], AbstractContextManager[None]] = nullcontext
        """Around whatever is asked that uses the card, and not around the rest."""
        self.footprint = Footprint(bytes=0, largest=0, memory=0)
        """Footprint of a call at the sizes under judgement, once those are known."""
        self.compiling = EarlyCompile(
            lambda: self._prelaunched.get(Role.COMPILED), options.timeouts.compile
        )
        self._machine: Machine | None = None
        self._own_sizes: Sizes = ()
        self._sizes: SizesReply | None = None
        self._looks_for_sizes = False
        self._builds = False
        self._dismissed: list[ChildProcess] = []

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

    def compile_unasked(self) -> None:
        """Let torch.compile begin when its process, yet to be launched, has started."""
        self.compiling.by_itself = self._compiles_up_to = ROOM_TO_COMPILE

    def sanitize_beside(self) -> None:
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
        patience = replace(self.patience(self.candidate), compiling=0.0)  # to build is what it does
        match self.candidate.wait(self._options.timeouts.build, patience):
            case Replied(body=body):
                try:
                    facts = from_plain(BuildFacts, body)
                except RecordError as error:
                    facts = BuildFacts(seconds=0.0, fault=nonsense(error))
            case failed:
                facts = BuildFacts(seconds=0.0, fault=as_fault(failed, FaultKind.BUILD))
        return replace(facts, fault=readable(facts.fault, self._candidate_path))

    @contextmanager
    def witness(self) -> Iterator[ChildProcess]:
        """A child in which the candidate's own kernels can be counted and silenced."""
        if self._spawner.emulated:
            yield self.candidate
            return
        self.see_watched_launched()
        child = self.child(Role.WITNESS)
        try:
            yield child
        finally:
            child.dismiss()
            self._dismissed.append(child)

    def see_them_end(self) -> None:
        """Wait for processes that were told to end: before anybody is timed."""
        while self._dismissed:
            self._dismissed.pop().close()

    def is_large(self, case: Case) -> bool:
        """Whether a case takes gigabytes: no process runs it that need not."""
        return self.footprint.bytes > LARGE and case.sizes == self._own_sizes
