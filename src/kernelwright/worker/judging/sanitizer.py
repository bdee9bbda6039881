"""compute-sanitizer's tools around calls of the candidate, at small sizes, beside everything else.

memcheck by default, for a file with kernels of its own; all four by `--sanitize`. What they find in
the candidate's own kernels are checks like the emulator's. Where a tool cannot look, they say so.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from kernelwright.toolchain.compilers import cuda_home, find_nvcc
from kernelwright.verify.cases import Case
from kernelwright.verify.observation import status_of
from kernelwright.verify.records import to_plain
from kernelwright.verify.sanitizer_report import Tool, read_report, was_refused
from kernelwright.verify.verdict import Check, Outcome
from kernelwright.worker.judging.signs import may_bring_kernels, may_capture_graphs
from kernelwright.worker.options import Sanitizers
from kernelwright.worker.process.requests import StartRequest
from kernelwright.worker.roles.sanitized import SanitizedCases, SanitizedRequest
from kernelwright.worker.sandbox.folders import Quarters

SANITIZERS = "sanitizers"
"""Name of the checks."""
_PROGRAM = "compute-sanitizer"
_PRINTED = "20"
"""Reports of one tool, at most."""


@dataclass(slots=True)
class _Run:
    """One tool at work."""

    tool: Tool
    process: subprocess.Popen[bytes]
    log: Path
    output: Path
    """What the process prints."""


def find_sanitizer() -> Path | None:
    """compute-sanitizer from PATH, or beside nvcc."""
    found = shutil.which(_PROGRAM)
    if found is not None:
        return Path(found)
    nvcc = find_nvcc()
    home = cuda_home(nvcc) if nvcc else None
    beside = home / "bin" / _PROGRAM if home else None
    return beside if beside is not None and beside.is_file() else None


def tools_for(asked: Sanitizers, candidate: Path) -> tuple[Tool, ...]:
    """The tools that are to run a candidate."""
    match asked:
        case Sanitizers.ALL:
            return tuple(Tool)
        # Every tensor is an allocation of its own under a tool, and freed as such: no graph's is.
        case Sanitizers.MEMCHECK if may_bring_kernels(candidate):
            return () if may_capture_graphs(candidate) else (Tool.MEMCHECK,)
    return ()


def on_the_emulator() -> Check:
    """What stands in for the sanitizers where there is no GPU."""
    return Check(
        name=SANITIZERS,
        outcome=Outcome.PASSED,
        evidence="there is no GPU: the emulator looked at every access, barrier and race instead",
    )


def without_a_tool() -> Check:
    """That somebody asked for tools which are not installed."""
    text = f"{_PROGRAM} is neither on PATH nor beside nvcc: install the CUDA toolkit's"
    return Check(name=SANITIZERS, outcome=Outcome.SKIPPED, evidence=text)


class Sanitizing:
    """The tools at work, each around a process that waits for what to run; a context.

    Importing PyTorch under a tool takes seconds, in which nobody needs the card.
    """

    def __init__(
        self, program: Path, tools: Sequence[Tool], start: StartRequest, quarters: Quarters
    ) -> None:
        self._stack = ExitStack()
        self._folder = Path(
            self._stack.enter_context(tempfile.TemporaryDirectory(prefix="kernelwright-"))
        )
        self._candidate = Path(start.candidate_path)
        # Entered first, left last: its thread ends once the processes have.
        self._beside = self._stack.enter_context(ThreadPoolExecutor(max_workers=1))
        self._checks: Future[tuple[Check, ...]] | None = None
        request = SanitizedRequest(
            start=start,
            cases=str(self._folder / _CASES),
            confinement=quarters.confinement,
            judge=os.getpid(),
        )
        self._runs = [
            _start(program, tool, request, quarters.environment, self._folder) for tool in tools
        ]
        for run in self._runs:
            self._stack.callback(_end, run.process)

    def close(self) -> None:
        """End all processes."""
        self._stack.close()

    def begin(
        self,
        cases: tuple[Case, ...],
        using_card: Callable[[], AbstractContextManager[None]],
        seconds: float,
    ) -> None:
        """Let the candidate run on `cases`, for `seconds` at most; once."""
        if self._checks is None:
            self._checks = self._beside.submit(self._work, cases, using_card, seconds)

    def checks(self) -> tuple[Check, ...]:
        """Those of each tool, once they are done; none where nothing was begun."""
        return () if self._checks is None else self._checks.result()

    def _work(
        self,
        cases: tuple[Case, ...],
        using_card: Callable[[], AbstractContextManager[None]],
        seconds: float,
    ) -> tuple[Check, ...]:
        with using_card():
            unfinished = self._folder / "unfinished"
            unfinished.write_text(json.dumps(to_plain(SanitizedCases(cases=cases))))
            unfinished.rename(self._folder / _CASES)
            deadline = time.monotonic() + seconds
            case = "; ".join(map(str, cases))
            text = self._candidate.read_text(errors="replace")
            found = [_checks(run, case, text, deadline, seconds) for run in self._runs]
        return tuple(check for checks in found for check in checks)


_CASES = "cases.json"


def _start(
    program: Path,
    tool: Tool,
    request: SanitizedRequest,
    environment: Mapping[str, str],
    folder: Path,
) -> _Run:
    log, output = folder / f"{tool.value}.log", folder / f"{tool.value}.out"
    command = [str(program), "--tool", tool.value, "--print-limit", _PRINTED]
    command += [
        "--log-file",
        str(log),
        sys.executable,
        "-P",
        "-m",
        "kernelwright.worker.roles.sanitized",
    ]
    with output.open("wb") as printed:
        process = subprocess.Popen(
            [*command, json.dumps(to_plain(request))],
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=subprocess.STDOUT,
            # Every tensor in an allocation of its own, so that its end is seen.
            env={**environment, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"},
            start_new_session=True,
        )
    return _Run(tool=tool, process=process, log=log, output=output)


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _checks(
    run: _Run, case: str, source: str, deadline: float, seconds: float
) -> tuple[Check, ...]:
    try:
        code = run.process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return (_skipped(run.tool, f"it was not done in {seconds:g} s"),)
    text = run.log.read_text(errors="replace") if run.log.is_file() else ""
    refusal = was_refused(text)
    if refusal:
        return (_skipped(run.tool, refusal),)
    found = tuple(
        Check(
            name=SANITIZERS,
            outcome=Outcome.FAILED,
            evidence=f"{finding.kind.value}: {finding.message}",
            status=status_of(finding),
        )
        for finding in read_report(run.tool, text, source)
    )
    if found:
        return found
    if code != 0:
        lines = run.output.read_text(errors="replace").strip().splitlines()
        return (_skipped(run.tool, f"no call came back: {lines[-1] if lines else code}"),)
    text = f"{run.tool.value} found nothing in its kernels, on {case}"
    return (Check(name=SANITIZERS, outcome=Outcome.PASSED, evidence=text),)


def _skipped(tool: Tool, why: str) -> Check:
    text = f"{tool.value} could not look: {why}"
    return Check(name=SANITIZERS, outcome=Outcome.SKIPPED, evidence=text)
