"""One call of a candidate in the process with guard zones: what was written outside of tensors."""

from kernelwright.emulator.findings import FindingKind
from kernelwright.toolchain.guards import Guards, Overrun
from kernelwright.verify.cases import Case
from kernelwright.verify.observation import KernelFinding
from kernelwright.verify.ran import base_name
from kernelwright.worker.process.requests import GuardReply
from kernelwright.worker.roles.candidate import Candidate
from kernelwright.worker.roles.what_ran import CudaKernels

_SOMEBODY = "a kernel of its call"


def look(candidate: Candidate, guards: Guards, kernels: CudaKernels, case: Case) -> GuardReply:
    """Call the candidate; a second time, launch by launch, where somebody has written outside."""
    candidate.call_once(case)
    found = guards.look()
    if found:
        with kernels.blaming(guards):
            candidate.call_once(case)
        named = tuple(it for it in guards.look() if it.kernel)
        found = named or found
    findings = dict.fromkeys(map(_as_finding, found))
    return GuardReply(findings=tuple(findings), looked_at=guards.looked_at)


def _as_finding(overrun: Overrun) -> KernelFinding:
    """In the emulator's words."""
    side = "past the end" if overrun.side == "behind" else "before the beginning"
    kernel = base_name(overrun.kernel) or _SOMEBODY
    message = (
        f"{kernel}: write of {_in_bytes(overrun.count)} at {_in_bytes(overrun.first)} {side} of "
        f"a tensor ({_in_bytes(overrun.size)})"
    )
    return KernelFinding(kind=FindingKind.OUT_OF_BOUNDS, message=message)


def _in_bytes(count: int) -> str:
    return f"{count} byte{'' if count == 1 else 's'}"
