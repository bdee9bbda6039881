"""Whether a candidate's own kernels did the work, and what else did.

What ran is told and never condemns: calling a library is honest. A kernel that changes nothing is
not.
"""

from collections.abc import Mapping, Sequence

from kernelwright.verify.ran import Maker, Ran, RanKernel, base_name
from kernelwright.verify.verdict import Check, Outcome, Status

WHAT_RAN = "what ran"
"""Name of the check that lists kernels."""
DECOYS = "decoys"
"""Name of the check that silences the candidate's own kernels."""


NO_OWN_KERNEL = "no kernel of its own ran"
"""What the check of what ran says of such a file."""


def check_what_ran(ran: Ran, source: str) -> Check:
    """The list in words; a warning where the file carries kernels and none of them ran."""
    carries = any(sign in source for sign in ("__global__", "triton.jit"))
    if not ran.kernels:
        text = f"nothing was seen to run on the device{_because(ran)}"
        return Check(name=WHAT_RAN, outcome=Outcome.SKIPPED, evidence=text)
    listed = "; ".join(_words(maker, ran) for maker in Maker if _of(maker, ran))
    if ran.own:
        return Check(
            name=WHAT_RAN, outcome=Outcome.PASSED, evidence=f"{listed}{_share(ran)}{_because(ran)}"
        )
    claim = "the file carries the source of kernels, but " if carries else ""
    return Check(
        name=WHAT_RAN,
        outcome=Outcome.WARNING if carries else Outcome.PASSED,
        evidence=f"{claim}{NO_OWN_KERNEL}; {listed}{_because(ran)}",
    )


def _because(ran: Ran) -> str:
    return f" ({ran.note})" if ran.note else ""


def _share(ran: Ran) -> str:
    share = ran.own_share
    return "" if share is None else f"; {share:.0%} of the time is in its own kernels"


def _of(maker: Maker, ran: Ran) -> Sequence[RanKernel]:
    return [kernel for kernel in ran.kernels if kernel.maker is maker]


_LISTED = 6
"""Kernels of one maker that the text names; the JSON has all."""


def _words(maker: Maker, ran: Ran) -> str:
    kernels = _of(maker, ran)
    names = [
        f"{kernel.name}{f' x{kernel.calls}' if kernel.calls > 1 else ''}"
        f"{'' if kernel.milliseconds is None else f' {kernel.milliseconds:.4f} ms'}"
        for kernel in kernels[:_LISTED]
    ]
    more = f" and {len(kernels) - _LISTED} more" if len(kernels) > _LISTED else ""
    return f"{maker.value}: {', '.join(names)}{more}"


def check_decoys(
    silenced: Mapping[str, int], survivors: Sequence[str], cases: Sequence[str], doubt: str = ""
) -> Check:
    """Whether the result is right without the candidate's own kernels.

    `silenced` are the launches that did nothing, by kernel; `survivors` those of `cases` whose
    result was as right as with them. `doubt` says why the silence was not complete.
    """
    names = ", ".join(sorted({base_name(name) for name in silenced}))
    if doubt:
        return Check(name=DECOYS, outcome=Outcome.SKIPPED, evidence=doubt)
    if not silenced:
        text = "no kernel of its own was launched: there is none to silence"
        return Check(name=DECOYS, outcome=Outcome.SKIPPED, evidence=text)
    if survivors and len(survivors) == len(cases):
        return Check(
            name=DECOYS,
            outcome=Outcome.FAILED,
            evidence=f"its kernels ({names}) are decoys: the result is right without them, on "
            + "; ".join(survivors),
            status=Status.CHEATING,
            case=survivors[0],
        )
    return Check(
        name=DECOYS,
        outcome=Outcome.PASSED,
        evidence=f"without its own kernels ({names}) the result is another",
    )
