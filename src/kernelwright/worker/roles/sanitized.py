"""Entry of the process under compute-sanitizer: calls of a candidate, then the end.

    compute-sanitizer --tool memcheck python -P -m kernelwright.worker.roles.sanitized REQUEST

REQUEST is JSON of a `SanitizedRequest`. The process imports what it needs, waits for the file with
the cases, and ends with 0 if one of the calls came back.
"""

import json
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

from kernelwright.verify.cases import Case
from kernelwright.verify.records import from_plain
from kernelwright.worker.process.requests import StartRequest
from kernelwright.worker.sandbox.confining import Confinement, confine

_POLL = 0.02
_PATIENCE = 600.0
"""Seconds after which nobody sends any cases."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SanitizedRequest:
    """Which candidate to run, and within which limits."""

    start: StartRequest
    cases: str
    """File that holds a `SanitizedCases` once the candidate is to run."""
    confinement: Confinement
    judge: int
    """Process that writes the file; where it ends before that, this one does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SanitizedCases:
    """What to call the candidate on, once each."""

    cases: tuple[Case, ...]


def main(arguments: list[str]) -> None:
    """Run the candidate within its confinement."""
    request = from_plain(SanitizedRequest, json.loads(arguments[0]))
    confine(request.confinement)
    import torch

    from kernelwright.problem.loading import parse_problem
    from kernelwright.worker.roles.candidate import Candidate
    from kernelwright.worker.roles.kernel_checks import Unwatched

    start = request.start
    cases = _wait_for(Path(request.cases), Path(f"/proc/{request.judge}"))
    device = torch.device(start.device)
    problem = parse_problem(Path(start.problem_path), start.problem_source)
    candidate = Candidate(problem, Path(start.candidate_path), device, Unwatched())
    came_back = 0
    for case in cases.cases:
        try:
            candidate.call_once(case)
            came_back += 1
        except Exception:
            traceback.print_exc()
    sys.exit(0 if came_back else 1)


def _wait_for(file: Path, judge: Path) -> SanitizedCases:
    deadline = time.monotonic() + _PATIENCE
    while not file.is_file():
        if time.monotonic() > deadline or not judge.exists():
            sys.exit("nobody sent any cases")
        time.sleep(_POLL)
    return from_plain(SanitizedCases, json.loads(file.read_text()))


if __name__ == "__main__":
    main(sys.argv[1:])
