"""The child that imports and runs a candidate: whatever it does, it does here."""

import importlib.util
import sys
import time
import traceback
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

import torch

from kernelwright.errors import KernelwrightError
from kernelwright.problem import Problem
from kernelwright.verify.cases import Case, Sizes
from kernelwright.verify.fingerprint import fingerprint
from kernelwright.verify.observation import (
    Fault,
    FaultKind,
    KernelFinding,
    RunFacts,
    StateFacts,
)
from kernelwright.verify.verification import BuildFacts
from kernelwright.worker.kernel_checks import KernelChecks
from kernelwright.worker.subject import Call, Resident, Subject
from kernelwright.worker.tensors import TensorHeader, write_tensor
from kernelwright.worker.timed import Timed

_MODULE_NAME = "kernelwright_candidate"


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateRun:
    """Reply to "run"."""

    facts: RunFacts | Fault
    state: StateFacts | None
    files: tuple[TensorHeader, ...]
    """The tensors of the first run."""
    repeat_files: tuple[TensorHeader, ...] | None
    """Those of the second run; None if it was bit for bit the same."""
    findings: tuple[KernelFinding, ...]


class Candidate:
    """A candidate file, imported and run under the watch of `checks`."""

    def __init__(
        self, problem: Problem, path: Path, device: torch.device, checks: KernelChecks
    ) -> None:
        self._subject = Subject(problem, device)
        self._path = path
        self._checks = checks
        self._module: ModuleType | None = None
        self._resident: tuple[Sizes, Resident] | None = None

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

    @torch.no_grad()
    def run(self, case: Case, folder: Path) -> CandidateRun:
        """Run `case` twice; write what it gave into `folder`."""
        try:
            resident = self._resident_for(case)
            first, second = self._call(resident, case), self._call(resident, case)
        except (Exception, SystemExit) as error:
            return self._failed(error)
        facts = _with_shared_results(first, second)
        self._subject.release()
        same = _marks(first) == _marks(second)
        return CandidateRun(
            facts=facts,
            state=resident.facts,
            files=_write(folder, "first", first),
            repeat_files=None if same else _write(folder, "second", second),
            findings=self._checks.take(),
        )

    def timed(self) -> Timed:
        """The timing of the module; each case makes it as `run` does."""
        return Timed(self._subject, lambda case: self._resident_for(case).module)

    def _call(self, resident: Resident, case: Case) -> Call:
        return resident.call(self._subject, self._subject.arguments(case), case)

    def _failed(self, error: BaseException) -> CandidateRun:
        kind = FaultKind.REFUSED if self._well() else FaultKind.CRASH
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
        if self._resident is None or self._resident[0] != case.sizes:
            self._resident = None
            model_class = self._imported().ModelNew
            args, kwargs = self._subject.init_inputs(case)
            model = model_class(*args, **kwargs)
            self._resident = case.sizes, Resident(model, self._subject.device)
        return self._resident[1]

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
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(path)]
    location = f"{path}:{lines[-1]}" if lines else None
    if isinstance(error, KernelwrightError):
        return Fault(kind=kind, message=error.message, location=error.location or location)
    text = str(error).strip()
    message = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return Fault(kind=kind, message=message, location=location)


def _with_shared_results(first: Call, second: Call) -> RunFacts:
    """The facts of the first run; results that the second run wrote into count as aliases."""
    shared = tuple(
        (name, "the result of the next call")
        for name, tensor in first.effects.items()
        if name.startswith("output") and name in second.effects and _share(tensor, second, name)
    )
    return replace(first.facts, aliases=first.facts.aliases + shared)


def _share(tensor: torch.Tensor, second: Call, name: str) -> bool:
    place = tensor.untyped_storage().data_ptr()
    return place != 0 and place == second.effects[name].untyped_storage().data_ptr()


def _marks(call: Call) -> list[tuple[str, str]]:
    return [(name, fingerprint(tensor)) for name, tensor in call.effects.items()]


def _write(folder: Path, prefix: str, call: Call) -> tuple[TensorHeader, ...]:
    return tuple(
        write_tensor(folder, f"{prefix}-{number}.bin", name, tensor)
        for number, (name, tensor) in enumerate(call.effects.items())
    )
