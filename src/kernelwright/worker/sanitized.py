"""Entry of the process under compute-sanitizer: one call of a candidate, then the end.

    compute-sanitizer --tool memcheck python -P -m kernelwright.worker.sanitized REQUEST

REQUEST is JSON of a `SanitizedRequest`. The process ends with 0 if the call came back.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from kernelwright.verify.cases import Case
from kernelwright.verify.records import from_plain
from kernelwright.worker.requests import StartRequest
from kernelwright.worker.sandbox import Confinement, confine


@dataclass(frozen=True, slots=True, kw_only=True)
class SanitizedRequest:
    """Which candidate to run, on what, and within which limits."""

    start: StartRequest
    case: Case
    confinement: Confinement


def main(arguments: list[str]) -> None:
    """Run the candidate once, within its confinement."""
    request = from_plain(SanitizedRequest, json.loads(arguments[0]))
    confine(request.confinement)
    import torch

    from kernelwright.problem.loading import parse_problem
    from kernelwright.worker.candidate import Candidate
    from kernelwright.worker.kernel_checks import Unwatched

    start = request.start
    device = torch.device(start.device)
    problem = parse_problem(Path(start.problem_path), start.problem_source)
    candidate = Candidate(problem, Path(start.candidate_path), device, Unwatched())
    candidate.call_once(request.case)


if __name__ == "__main__":
    main(sys.argv[1:])
