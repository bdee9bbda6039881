"""`--sanitize`: compute-sanitizer's four tools around one call of the candidate, at small sizes.

What it finds in the candidate's own kernels are checks like the emulator's. Where there is no such
tool, or the machine does not let it look, the checks say so.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from kernelwright.build.toolchain import cuda_home, find_nvcc
from kernelwright.verify.cases import Case
from kernelwright.verify.observation import status_of
from kernelwright.verify.records import to_plain
from kernelwright.verify.sanitizer_report import Tool, read_report, was_refused
from kernelwright.verify.verdict import Check, Outcome
from kernelwright.worker.sanitized import SanitizedRequest

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


def find_sanitizer() -> Path | None:
    """compute-sanitizer from PATH, or beside nvcc."""
    found = shutil.which(_PROGRAM)
    if found is not None:
        return Path(found)
    nvcc = find_nvcc()
    home = cuda_home(nvcc) if nvcc else None
    beside = home / "bin" / _PROGRAM if home else None
    return beside if beside is not None and beside.is_file() else None


def on_the_emulator() -> Check:
    """What stands in for the sanitizers where there is no GPU."""
    return Check(
        name=SANITIZERS,
        outcome=Outcome.PASSED,
        evidence="there is no GPU: the emulator looked at every access, barrier and race instead",
    )


def sanitize(
    request: SanitizedRequest, environment: Mapping[str, str], seconds: float
) -> tuple[Check, ...]:
    """One check for each tool, or for each of its findings; they run side by side.

    `environment` is the candidate's, `seconds` the longest that all may take together.
    """
    program = find_sanitizer()
    if program is None:
        text = f"{_PROGRAM} is neither on PATH nor beside nvcc: install the CUDA toolkit's"
        return (Check(name=SANITIZERS, outcome=Outcome.SKIPPED, evidence=text),)
    with tempfile.TemporaryDirectory(prefix="kernelwright-") as folder, ExitStack() as stack:
        runs = [_start(program, tool, request, environment, Path(folder)) for tool in Tool]
        for run in runs:
            stack.callback(_end, run.process)
        return tuple(check for run in runs for check in _checks(run, request.case, seconds))


def _start(
    program: Path,
    tool: Tool,
    request: SanitizedRequest,
    environment: Mapping[str, str],
    folder: Path,
) -> _Run:
    log = folder / f"{tool.value}.log"
    command = [str(program), "--tool", tool.value, "--print-limit", _PRINTED]
    command += ["--log-file", str(log), sys.executable, "-P", "-m", "kernelwright.worker.sanitized"]
    with (folder / f"{tool.value}.out").open("wb") as output:
        process = subprocess.Popen(
            [*command, json.dumps(to_plain(request))],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            # Every tensor in an allocation of its own, so that its end is seen.
            env={**environment, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"},
            start_new_session=True,
        )
    return _Run(tool=tool, process=process, log=log)


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _checks(run: _Run, case: Case, seconds: float) -> tuple[Check, ...]:
    try:
        run.process.wait(seconds)
    except subprocess.TimeoutExpired:
        return (_skipped(run.tool, f"it was not done in {seconds:g} s", case),)
    text = run.log.read_text(errors="replace") if run.log.is_file() else ""
    refusal = was_refused(text)
    if refusal:
        return (_skipped(run.tool, refusal, case),)
    found = tuple(
        Check(
            name=SANITIZERS,
            outcome=Outcome.FAILED,
            evidence=finding.message,
            status=status_of(finding),
            case=str(case),
        )
        for finding in read_report(run.tool, text)
    )
    if found:
        return found
    text = f"{run.tool.value} found nothing in its kernels"
    return (Check(name=SANITIZERS, outcome=Outcome.PASSED, evidence=text, case=str(case)),)


def _skipped(tool: Tool, why: str, case: Case) -> Check:
    text = f"{tool.value} could not look: {why}"
    return Check(name=SANITIZERS, outcome=Outcome.SKIPPED, evidence=text, case=str(case))
