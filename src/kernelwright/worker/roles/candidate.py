"""The child that imports and runs a candidate: whatever it does, it does here."""

import importlib.util
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor, nn

from kernelwright.errors import KernelwrightError
from kernelwright.problem import Problem
from kernelwright.verify.cases import Case
from kernelwright.verify.distributions import change_few
from kernelwright.verify.findings import MODEL, MODEL_NEW
from kernelwright.verify.fingerprint import fingerprint, fingerprints, tells_apart
from kernelwright.verify.nesting import map_tensors, named_tensors
from kernelwright.verify.observation import (
    LATER_RESULT,
    NEXT_RESULT,
    Fault,
    FaultKind,
    KernelFinding,
    Links,
    RunFacts,
    StateFacts,
)
from kernelwright.verify.ran import Ran
from kernelwright.verify.verification import BuildFacts
from kernelwright.worker.process.handover import (
    Handed,
    MemoryMaker,
    Outbox,
    WriteReply,
    WriteRequest,
)
from kernelwright.worker.roles.kernel_checks import KernelChecks
from kernelwright.worker.roles.settings import changes, snapshot
from kernelwright.worker.roles.subject import (
    Call,
    Resident,
    Subject,
    module_key,
    overlap,
    span,
)
from kernelwright.worker.roles.threads import ThreadWatch
from kernelwright.worker.roles.timed import Timed

_MODULE_NAME = "kernelwright_candidate"
_KEPT = 8
"""Results that are kept to the end."""
_MOST_KEPT = 1 << 30
"""Bytes of arguments, and of results, that are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateRun:
    """Reply to "run"."""

    facts: RunFacts | Fault
    state: StateFacts | None
    files: tuple[Handed, ...]
    """The tensors of the first run."""
    repeat_files: tuple[Handed, ...] | None
    """Those of the second run; None if it was bit for bit the same."""
    findings: tuple[KernelFinding, ...]


class Candidate:
    """A candidate file, imported and run under the watch of `checks`."""

    def __init__(
        self,
        problem: Problem,
        path: Path,
        device: torch.device,
        checks: KernelChecks,
        memory: MemoryMaker | None = None,
    ) -> None:
        """`memory` makes that of the device; None where results are handed over in files."""
        self._subject = Subject(problem, device)
        self._path = path
        self._checks = checks
        self._module: ModuleType | None = None
        self._resident: tuple[Case, Resident] | None = None
        self._buffers = ArgumentBuffers()
        self._keepsakes = Keepsakes()
        self._settings = snapshot()
        self._threads = ThreadWatch(path)
        self._outbox = Outbox(memory)
        self._largest_result = 0

    def build(self, case: Case) -> BuildFacts:
        """Import the file and construct `ModelNew` for the case's sizes."""
        start = time.perf_counter()
        fault = None
        kind = FaultKind.BUILD
        try:
            self._imported()
            kind = FaultKind.REFUSED
            self._resident_for(case)
            self._subject.synchronize()
        except (Exception, SystemExit) as error:
            fault = describe_error(error, self._path, kind)
        return BuildFacts(seconds=time.perf_counter() - start, fault=fault)

    def link(self, links: Links | None) -> None:
        """From now on these stand for the reference's parameters and buffers."""
        self._subject.links = links

    def make(self, case: Case) -> None:
        """Construct the module that `run` will need, if it is another, without the device."""
        if self._resident is None or self._resident[0] != module_key(case):
            self._subject.make(case, self._construct)

    def run(self, case: Case, folder: Path) -> CandidateRun:
        """Run `case` twice, write what it gave into `folder`, and say what else it did."""
        with torch.no_grad():
            found = self._run(case, folder)
        if isinstance(found.facts, Fault):
            return found
        changed = changes(self._settings, snapshot())
        return replace(found, facts=replace(found.facts, settings=changed))

    def _run(self, case: Case, folder: Path) -> CandidateRun:
        try:
            resident = self._resident_for(case)
            if case.seed % 2:
                self._call_beforehand(resident, case)
            # Old addresses with new values first, then new addresses with the same values: what
            # was remembered by its address or by its values shows either way.
            first = self._call(resident, self._buffers.filled(self._subject.arguments(case)), case)
            if not first.facts.aliases:
                self._buffers.spoil()
            second = self._call(resident, self._subject.arguments(case), case)
            overwritten = self._keepsakes.overwritten()
        except (Exception, SystemExit) as error:
            return self._failed(error)
        replayed = self._keepsakes.replayed(first) + self._keepsakes.replayed(second)
        facts = replace(
            _with_shared_results(first, second, overwritten),
            replayed=tuple(dict.fromkeys(replayed)),
            threads=tuple(dict.fromkeys(first.facts.threads + second.facts.threads)),
        )
        self._keepsakes.keep(first)
        same = _marks(first) == _marks(second)
        repeated = None if same else self._outbox.hand_over(folder, "second", second.effects)
        del second
        self._subject.release()
        return CandidateRun(
            facts=facts,
            state=resident.facts,
            files=self._outbox.hand_over(folder, "first", first.effects),
            repeat_files=repeated,
            findings=self._checks.take(),
        )

    def write(self, request: WriteRequest, folder: Path) -> WriteReply:
        """Results of the latest run once more, in files of `folder`."""
        return self._outbox.write(folder, request)

    @torch.no_grad()
    def trace(self, case: Case) -> Ran:
        """What one call runs on the device."""
        resident = self._resident_for(case)
        arguments = self._subject.arguments(case)
        return self._checks.own_kernels().trace(lambda: resident.module(*arguments))

    @torch.no_grad()
    def call_once(self, case: Case) -> None:
        """One call, of which nothing is looked at."""
        self._resident_for(case).module(*self._subject.arguments(case))
        self._subject.synchronize()

    def timed(self) -> Timed:
        """The timing of the module; each case makes it as `run` does."""
        return Timed(self._subject, lambda case: self._resident_for(case).module)

    def _call_beforehand(self, resident: Resident, case: Case) -> None:
        """Call it on nearly the same arguments: what it remembers of them is wrong for the case.

        In some cases only, so that the number of calls is odd in some and even in others.
        """
        with suppress(Exception):  # nobody asked it to take these
            nearly = self._subject.arguments(case)
            for number, (_, tensor) in enumerate(named_tensors(nearly, "input")):
                change_few(tensor, seed=case.seed + number)
            self._keepsakes.replayed(self._call(resident, self._buffers.filled(nearly), case))

    def _call(self, resident: Resident, arguments: Sequence[object], case: Case) -> Call:
        inputs = named_tensors(arguments, "input")
        # Memory as new as a large result's comes from the driver, as zeros: they may be right.
        most = max((_bytes(tensor) for _, tensor in inputs), default=0)
        self._subject.poison(max(most, self._largest_result))
        call = resident.call(self._subject, arguments, case)
        self._largest_result = max(map(_bytes, call.effects.values()), default=0)
        return replace(call, facts=replace(call.facts, threads=self._threads.alive()))

    def _failed(self, error: BaseException) -> CandidateRun:
        leaves = isinstance(error, SystemExit)  # no way to refuse anything
        kind = FaultKind.REFUSED if self._well() and not leaves else _kind_of_loss(error)
        return CandidateRun(
            facts=describe_error(error, self._path, kind),
            state=None,
            files=(),
            repeat_files=None,
            findings=self._checks.take(),
        )

    def _well(self) -> bool:
        """Whether the device still answers: after an illegal address no CUDA call succeeds."""
        try:
            self._subject.synchronize()
        except Exception:  # a CUDA error, or what the emulator says of an abandoned launch
            return False
        return True

    def _resident_for(self, case: Case) -> Resident:
        self._outbox.clear()  # a new run: nobody reads results of the one before
        key = module_key(case)
        if self._resident is None or self._resident[0] != key:
            self._resident = None
            self._resident = key, self._subject.construct(case, self._construct)
        return self._resident[1]

    def _construct(self, args: tuple[object, ...], keywords: Mapping[str, object]) -> nn.Module:
        imported = self._imported()
        make = getattr(imported, MODEL_NEW, None) or getattr(imported, MODEL)
        module: nn.Module = make(*args, **keywords)
        return module

    def _imported(self) -> ModuleType:
        if self._module is None:
            spec = importlib.util.spec_from_file_location(_MODULE_NAME, self._path)
            if spec is None or spec.loader is None:
                raise ImportError(f"{self._path} is not a Python file")
            module = importlib.util.module_from_spec(spec)
            sys.modules[_MODULE_NAME] = module
            spec.loader.exec_module(module)
            self._module = module
        return self._module


def describe_error(error: BaseException, path: Path, kind: FaultKind) -> Fault:
    """What a candidate's exception says, with the line of its own file that it passed last."""
    if isinstance(error, torch.OutOfMemoryError):
        kind = FaultKind.OUT_OF_MEMORY
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(path)]
    location = f"{path}:{lines[-1]}" if lines else None
    if isinstance(error, KernelwrightError):
        return Fault(kind=kind, message=error.message, location=error.location or location)
    text = str(error).strip()
    message = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return Fault(kind=kind, message=message, location=location)


class ArgumentBuffers:
    """Arguments of the latest call, to be filled again: the addresses stay, the values change."""

    def __init__(self) -> None:
        self._latest: list[object] = []

    def spoil(self) -> None:
        """Make the tensors of the latest call useless, for whoever still reads them."""
        for _, tensor in named_tensors(self._latest, "input"):
            old = tensor.data
            if old.is_floating_point():
                old.fill_(float("nan"))
            else:
                old.zero_()

    def filled(self, arguments: list[object]) -> list[object]:
        """`arguments`, in the tensors of the call before where these have the same form."""
        before = [tensor for _, tensor in named_tensors(self._latest, "input")]
        now = [tensor for _, tensor in named_tensors(arguments, "input")]
        if not now or [*map(_form, before)] != [*map(_form, now)]:
            self._latest = arguments if sum(map(_bytes, now)) <= _MOST_KEPT else []
            return arguments
        for old, new in zip(before, now, strict=True):
            # Without its version counter: as far as the tensor knows, nothing has changed.
            old.data.copy_(new)
        tensors = iter(before)
        return [map_tensors(value, lambda _: next(tensors)) for value in arguments]


class Keepsakes:
    """Results of earlier calls, kept to see whether a later one writes into them."""

    def __init__(self) -> None:
        self._kept: list[tuple[str, Tensor, str]] = []
        self._seen: dict[tuple[str, str], str] = {}

    def keep(self, call: Call) -> None:
        """Remember the results of a call, while there are few and small."""
        shared = {name for name, _ in call.facts.aliases}
        for name, tensor in call.effects.items():
            own = name.startswith("output") and name not in shared
            if own and _bytes(tensor) * _KEPT <= _MOST_KEPT and len(self._kept) < _KEPT:
                self._kept.append((name, tensor, fingerprint(tensor)))

    def replayed(self, call: Call) -> tuple[str, ...]:
        """Names of the results that an earlier call gave for other inputs; remembers this one.

        Only of those that would have differed: NaN throughout and constants say nothing.
        """
        inputs = " ".join(facts.fingerprint for facts in call.facts.inputs)
        results = [(facts.name, facts.fingerprint) for facts in call.facts.outputs]
        again = [result[0] for result in results if self._seen.get(result, inputs) != inputs]
        self._seen |= dict.fromkeys(results, inputs)
        # A tensor of another class, which is not among the effects, is not looked into.
        return tuple(n for n in again if n in call.effects and tells_apart(call.effects[n]))

    def overwritten(self) -> tuple[str, ...]:
        """Names of results that are no longer what they were."""
        now = fingerprints([tensor for _, tensor, _ in self._kept])
        return tuple(
            name for (name, _, mark), new in zip(self._kept, now, strict=True) if new != mark
        )


_BAD_ACCESSES = ("illegal memory access", "misaligned address", "invalid address space")
"""In CUDA's words."""


def _kind_of_loss(error: BaseException) -> FaultKind:
    """Why the process is of no more use."""
    bad = any(words in str(error) for words in _BAD_ACCESSES)
    return FaultKind.BAD_ACCESS if bad else FaultKind.CRASH


def _with_shared_results(first: Call, second: Call, overwritten: tuple[str, ...]) -> RunFacts:
    """The facts of the first run; results that a later run wrote into count as aliases."""
    shared = {
        (name, NEXT_RESULT)
        for name, tensor in first.effects.items()
        if name.startswith("output")
        and name in second.effects
        and overlap(span(tensor), span(second.effects[name]))
    }
    later = {(name, LATER_RESULT) for name in overwritten}
    aliases = first.facts.aliases + tuple(sorted(shared or later))
    return replace(first.facts, aliases=aliases)


def _form(tensor: Tensor) -> tuple[object, ...]:
    """What two tensors have in common when one can be filled in place of the other."""
    # An expanded tensor cannot be written to: it has the form of no other.
    same = id(tensor) if 0 in tensor.stride() else 0
    offset = tensor.storage_offset()
    return tensor.dtype, tensor.device, tensor.shape, tensor.stride(), offset, same


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _marks(call: Call) -> list[tuple[str, str]]:
    marks = fingerprints(list(call.effects.values()))
    return list(zip(call.effects, marks, strict=True))
