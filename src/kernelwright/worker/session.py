"""The children of one judgement: started together, asked in parallel, replaced when they die."""

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kernelwright import env
from kernelwright.build.emulator.compile import build_shared
from kernelwright.build.emulator.headers import headers_of_candidate
from kernelwright.build.extension import extension_environment, prepare_extension_folder
from kernelwright.build.launches import launches_library
from kernelwright.build.records import Target
from kernelwright.errors import KernelwrightError
from kernelwright.machine import Machine
from kernelwright.problem import Problem
from kernelwright.verify.agreement import Agreement
from kernelwright.verify.cases import Case, Sizes
from kernelwright.verify.checks import COMPARED_WEIGHTS
from kernelwright.verify.observation import (
    DEVICE_LOST,
    Fault,
    FaultKind,
    Observation,
    Refusal,
    RunFacts,
)
from kernelwright.verify.records import RecordError, from_plain, to_plain
from kernelwright.verify.tolerance import ErrorMetrics
from kernelwright.verify.verdict import Check
from kernelwright.verify.verification import BuildFacts
from kernelwright.worker.answers import as_fault, candidate_run, nonsense, readable, trusted
from kernelwright.worker.candidate import CandidateRun
from kernelwright.worker.card_start import starts_of_machine
from kernelwright.worker.child_process import ChildProcess
from kernelwright.worker.client import Answer, Raised, Replied
from kernelwright.worker.handover import Handed, WriteReply, WriteRequest
from kernelwright.worker.ledger import Ledger
from kernelwright.worker.nursery import LOADED_FIRST
from kernelwright.worker.options import Baseline, Evidence, Haste, JudgeOptions, Speed, Watch
from kernelwright.worker.requests import (
    CaseRequest,
    CompareRequest,
    ComparisonReply,
    MachineReply,
    ProbeReply,
    ReferenceRun,
    Role,
    SizesReply,
    SizesRequest,
    StartRequest,
)
from kernelwright.worker.sandbox import Confinement
from kernelwright.worker.sandbox_folders import Quarters, prepare_quarters
from kernelwright.worker.sandbox_report import isolation_check
from kernelwright.worker.sanitized import SanitizedRequest
from kernelwright.worker.sanitizer import on_the_emulator, sanitize
from kernelwright.worker.seats import Footprint
from kernelwright.worker.tensors import TensorHeader
from kernelwright.worker.timer_records import SharedTensor
from kernelwright.worker.timer_words import make_words_folder, words_of

_STRANGE = (Role.CANDIDATE, Role.WITNESS)
"""Roles whose processes run a stranger's code."""
_PROCESSES = (Baseline.COMPILED, Baseline.COMPILED_MAX)
"""Baselines with a process of their own, which has the role of the same name."""
_OF_ALL = {env.COPY_CONNECTIONS.name: "1"}
_OF_ROLE: Mapping[Role, Mapping[str, str]] = {Role.TIMER: {env.CONNECTIONS.name: "1"}}
"""Half the time to make a context is that for queues. Kernels that are timed have all that CUDA
gives; copies between host and card, which no contestant overlaps, have one."""
_ROOM_TO_COMPILE = 2 << 30
"""Bytes of a call up to which it is made once more while others run."""


def watches(options: JudgeOptions) -> bool:
    """Whether a candidate that is right runs once more with its kernels counted and silenced."""
    wanted = options.evidence is Evidence.GATHERED and options.watch is not Watch.NOTHING
    return wanted and not options.cases


class ChildSession:
    """Runs reference and candidate in processes of their own; the Session that `verify` asks.

    A context: leaving it ends every child. Those that know the problem alone start with it; nothing
    is asked before a candidate is admitted.
    """

    candidate: ChildProcess

    def __init__(
        self, problem: Problem, target: Target, options: JudgeOptions, folder: Path
    ) -> None:
        self._options = options
        self.problem = problem
        self._candidate_path = Path()
        self._target = target
        self._folder = folder
        self._emulated = target is Target.CPU and options.watch is Watch.EMULATOR
        self._stack = ExitStack()
        self._environment = extension_environment(problem.source.encode())
        self._exchange = folder / "exchange"
        self._exchange.mkdir()
        self._words = make_words_folder(folder)
        self._stack.callback(shutil.rmtree, self._words, ignore_errors=True)
        self._prelaunched: dict[Role, ChildProcess] = {}
        self._children: list[ChildProcess] = []
        self._dismissed: list[ChildProcess] = []
        self.using_card: Callable[[], AbstractContextManager[None]] = nullcontext
        """Around whatever is asked that uses the card, and not around the rest."""
        self.agreement = Agreement()
        self.ledger = Ledger()
        self.reference = self.child(Role.REFERENCE)
        self.timer = self.child(Role.TIMER)
        self._own_sizes: Sizes = ()
        self.footprint = Footprint(bytes=0, largest=0, memory=0)
        """Of a call at the sizes under judgement, once those are known."""
        self._machine: Machine | None = None
        self._sizes_seen: set[Sizes] = set()
        self._looks_for_sizes = False
        self._times_soon = False
        self._compiles = False
        self._builds = False
        self._runs = 0

    def __enter__(self) -> Self:
        self.reference.launch()
        if self._options.haste is Haste.AT_ONCE:
            self._launch_who_times()
        return self

    def admit(self, candidate_path: Path) -> None:
        """Start the process of the candidate, whose file is there now; `build` is what reads it."""
        self._candidate_path = candidate_path.resolve()
        self.candidate = self.child(Role.CANDIDATE)
        self.candidate.launch()
        if self._options.cases:
            self.launch_the_rest()
        elif self._options.haste is Haste.WATCHED_FIRST:
            self._launch_who_is_watched()

    def launch_the_rest(self) -> None:
        """Those that a candidate which is right will need, once.

        PyTorch takes seconds to start: all at once rather than each when it is its turn.
        """
        self._launch_who_times()
        self._launch_who_is_watched()

    def _launch_who_is_watched(self) -> None:
        watched = self._target is Target.CUDA and watches(self._options)
        if watched and Role.WITNESS not in self._prelaunched:
            self.prelaunch((Role.WITNESS,))

    def _launch_who_times(self) -> None:
        timed = self._target is Target.CUDA and self._options.speed is Speed.MEASURED
        if timed and not self._times_soon:
            self._times_soon = True
            self.timer.launch()
            self.prelaunch(Role(it.value) for it in self._options.baselines if it in _PROCESSES)

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

    def see_them_compile(self) -> None:
        """Wait for what `compile_early` has begun."""
        if child := self._prelaunched.get(Role.COMPILED):
            child.finish()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for child in self._children:
            child.dismiss()  # all at once: a process that has a card takes a while to end
        self._stack.close()

    def prelaunch(self, roles: Iterable[Role]) -> None:
        """Start children that `child` gives out later; what fails now will fail then as well."""
        for role in roles:
            with suppress(KernelwrightError):  # no compiler for what counts kernels
                child = self.child(role)
                child.launch()
                self._prelaunched[role] = child

    def child(self, role: Role, order_seed: int = 0) -> ChildProcess:
        """A further child, launched only where `prelaunch` did so; it ends with the session."""
        if not order_seed and role in self._prelaunched:
            return self._prelaunched.pop(role)
        child = self.spawn(self._start(role, order_seed))
        self._stack.callback(child.close)
        self._children.append(child)
        return child

    def _start(self, role: Role, order_seed: int = 0) -> StartRequest:
        emulate = self._emulated and role in _STRANGE
        cuda = self._target is Target.CUDA or emulate
        return StartRequest(
            role=role,
            problem_path=str(self.problem.path),
            problem_source=self.problem.source,
            candidate_path=str(self._candidate_path) if role in _STRANGE else "",
            folder=str(self._exchange),
            device=f"cuda:{self._options.device_index}" if cuda else "cpu",
            emulate=emulate,
            order_seed=order_seed,
            threads=env.usable_cores(),
            starts=starts_of_machine() if cuda and not emulate else (),
        )

    def spawn(self, start: StartRequest) -> ChildProcess:
        """The process behind a child."""
        seconds = self._options.timeouts.start
        if start.role not in _STRANGE:
            environment = {**_OF_ALL, **self._environment, **_OF_ROLE.get(start.role, {})}
            return ChildProcess(start, environment, Confinement(), seconds, self.ledger)
        if start.emulate:
            build_shared(headers_of_candidate(self._candidate_path.read_text(errors="replace")))
        quarters = self._quarters()
        environment = {**_OF_ALL, **quarters.environment}
        if start.role is Role.WITNESS:
            environment[LOADED_FIRST] = str(launches_library())
        return ChildProcess(start, environment, quarters.confinement, seconds, self.ledger)

    def _quarters(self) -> Quarters:
        return prepare_quarters(
            prepare_extension_folder(self._candidate_path),
            self._folder / "candidate",
            (self._exchange, self.words(Role.CANDIDATE)),
            self._options.processes,
        )

    def sanitize(self) -> tuple[Check, ...]:
        """What compute-sanitizer says of one call at small sizes; the emulator, where that runs."""
        if self._target is Target.CPU:
            return (on_the_emulator(),)
        request = SizesRequest(
            bytes=self._options.variant_bytes, flops=self._options.variant_flops, shrink=True
        )
        answer = self.reference.ask("sizes", to_plain(request), self._options.timeouts.build)
        quarters = self._quarters()
        sanitized = SanitizedRequest(
            start=self._start(Role.WITNESS),
            case=Case(sizes=trusted(SizesReply, answer).own),
            confinement=quarters.confinement,
        )
        with self.using_card():
            return sanitize(sanitized, quarters.environment, self._options.timeouts.run)

    @contextmanager
    def witness(self) -> Iterator[ChildProcess]:
        """A child in which the candidate's own kernels can be counted and silenced."""
        if self._emulated:
            yield self.candidate
            return
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

    def source(self) -> str:
        """The candidate's text."""
        return self._candidate_path.read_text(encoding="utf-8")

    def words(self, role: Role) -> Path:
        """The file of words that a child shares with the timer."""
        return words_of(self._words, role.name.lower())

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
        self._own_sizes = sizes.own
        self.footprint = Footprint(bytes=sizes.bytes, largest=sizes.largest, memory=sizes.memory)
        return sizes

    def begin_build(self) -> None:
        """Let the candidate do what `build` waits for."""
        self.candidate.post("build", to_plain(CaseRequest(case=Case(sizes=self._own_sizes))))
        self._builds = True

    def build(self) -> BuildFacts:
        """Import the candidate and construct its module at the sizes under judgement."""
        if not self._builds:
            self.begin_build()
        self._builds = False
        match self.candidate.wait(self._options.timeouts.build):
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
        child = self._prelaunched.get(Role.COMPILED)
        if child is not None and child.has_started():  # nobody waits for it on a card that is taken
            self.compile_early(
                self.footprint.bytes + self.footprint.largest, self._room_to_compile(case)
            )
        reference, candidate = self.call(case, self.candidate)
        expected = self._reference_run(case, reference)
        found = candidate_run(candidate)
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
        )
        if isinstance(expected, Refusal):
            return observation
        observation = self._compared(observation, found)
        is_first_case = len(self._sizes_seen) == 1 and first
        return self._reordered(observation) if is_first_case else observation

    def call(self, case: Case, child: ChildProcess) -> tuple[Answer, Answer]:
        """What the reference and `child` answer to a case, which they run at the same time.

        Their modules are made before they use the card: that takes seconds of the CPU where there
        are many weights.
        """
        request, seconds = to_plain(CaseRequest(case=case)), self._options.timeouts.run
        self.reference.post("make", request)
        made = child.ask("make", request, seconds)
        self.reference.wait(seconds)
        with self.using_card():
            self.reference.post("run", request)
            if not isinstance(made, Replied):
                return self.reference.wait(seconds), made
            child.post("run", request)
            return self.reference.wait(seconds), child.wait(seconds)

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
            request = to_plain(CaseRequest(case=observation.case))
            found = candidate_run(child.ask("run", request, self._options.timeouts.run))
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
        """The same with what lies on the device written by its owner, if that does so."""
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


def _kept(observation: Observation) -> tuple[str, ...]:
    """State that the reference's call changed and the candidate's did not."""
    match observation.reference, observation.candidate:
        case RunFacts(changed=expected), RunFacts(changed=found):
            return tuple(it for it in expected if it.startswith("state.") and it not in found)
    return ()


def _merged(first: tuple[Any, ...], second: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(dict.fromkeys((*first, *second)))
