"""The process with guard zones, beside the others: it runs each case that the candidate runs."""

from collections.abc import Callable, Sequence

from kernelwright.errors import KernelwrightError
from kernelwright.verify.cases import Case
from kernelwright.verify.observation import Fault, KernelFinding, RunFacts, status_of
from kernelwright.verify.records import RecordError, from_plain, to_plain
from kernelwright.verify.verdict import Check, Outcome
from kernelwright.worker.process.child_process import ChildProcess
from kernelwright.worker.process.client import Raised, Replied
from kernelwright.worker.process.hanging import Patience
from kernelwright.worker.process.requests import CaseRequest, GuardReply

GUARDS = "guard zones"
"""Name of the check."""
_MOST_FINDINGS = 4


class GuardWatch:
    """Asks the process, and keeps what it found."""

    def __init__(
        self, child: ChildProcess, patience: Callable[[], Patience], seconds: float
    ) -> None:
        """`seconds` is the longest that one case may take."""
        self._child = child
        self._patience = patience
        self._seconds = seconds
        self._asked: CaseRequest | None = None
        self._later: list[CaseRequest] = []
        self._found: dict[KernelFinding, Case] = {}
        self._cases = 0
        self._looked_at = 0
        self._doubt = ""
        self._refused = _NOTHING

    def begin(self, request: CaseRequest) -> None:
        """Let it run a case, if it has started; else that is for `finish`."""
        if self._doubt or self._found:
            return
        if not self._child.has_started():
            self._later.append(request)
            return
        try:
            self._child.post("guard", to_plain(request))
            self._asked = request
        except KernelwrightError as error:
            self._doubt = error.message

    def end(self, candidate: RunFacts | Fault | None) -> None:
        """Wait for what `begin` began; `candidate` is how that went without guards, if known."""
        if self._asked is None:
            return
        request, self._asked = self._asked, None
        answer = self._child.wait(self._seconds, self._patience())
        if not isinstance(answer, Replied):
            # A case that the candidate refuses, or crashes in, says nothing about its process.
            if isinstance(candidate, RunFacts) or not isinstance(answer, Raised):
                self._doubt = answer.message
            self._refused = answer.message
            return
        try:
            reply = from_plain(GuardReply, answer.body)
        except RecordError as error:
            self._doubt = f"it answered nonsense: {error}"
            return
        self._cases += 1
        self._looked_at = reply.looked_at
        self._found |= dict.fromkeys(reply.findings, request.case)

    def finish(self, earlier: Sequence[CaseRequest]) -> None:
        """Run the cases that were there before the process was, and those of `earlier`."""
        later, self._later = [*earlier, *self._later], []
        try:
            if later:
                self._child.ready()
        except KernelwrightError as error:
            self._doubt = error.message
        for request in later:
            self.begin(request)
            self.end(None)

    def checks(self) -> tuple[Check, ...]:
        """One that fails for each finding, or one that says what was looked at."""
        if self._found:
            return tuple(
                Check(
                    name=GUARDS,
                    outcome=Outcome.FAILED,
                    evidence=f"{finding.kind.value}: {finding.message}",
                    status=status_of(finding),
                    case=str(case),
                )
                for finding, case in list(self._found.items())[:_MOST_FINDINGS]
            )
        if self._doubt or not self._cases:
            why = self._doubt or self._refused
            text = f"nobody looked at what is written outside of tensors: {why}"
            return (Check(name=GUARDS, outcome=Outcome.SKIPPED, evidence=text),)
        text = (
            f"nothing was written outside of tensors: {self._looked_at} looks at the zones around "
            f"them, after {self._cases} calls"
        )
        return (Check(name=GUARDS, outcome=Outcome.PASSED, evidence=text),)


_NOTHING = "no case was small enough for one more process"
