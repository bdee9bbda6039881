"""What ran on the device in one call of a candidate, and whether its own kernels did the work.

Facts come from room worker: a profiler's list on a GPU, the emulator's own count without one.
What ran is told and never condemns: calling a library is honest. A kernel that changes nothing is
not.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from kernelwright.verify.verdict import Check, Outcome, Status

WHAT_RAN = "what ran"
"""Name of the check that lists kernels."""
DECOYS = "decoys"
"""Name of the check that silences the candidate's own kernels."""


class Maker(Enum):
    """Who wrote a kernel."""

    OWN = "its own"
    ATEN = "ATen"
    CUBLAS = "cuBLAS"
    CUDNN = "cuDNN"
    COMPILER = "torch.compile"
    MEMORY = "copies and fills"
    LIBRARY = "another library"


_SIGNS: tuple[tuple[str, Maker], ...] = (
    ("memcpy", Maker.MEMORY),
    ("memset", Maker.MEMORY),
    ("at::", Maker.ATEN),
    ("aten.", Maker.ATEN),
    ("pytorch_flash", Maker.ATEN),
    ("fmha", Maker.ATEN),
    ("triton_", Maker.COMPILER),
    ("cudnn", Maker.CUDNN),
    ("fprop", Maker.CUDNN),
    ("convolve", Maker.CUDNN),
    ("nchwtonhwc", Maker.CUDNN),
    ("nhwctonchw", Maker.CUDNN),
    ("cublas", Maker.CUBLAS),
    ("nvjet", Maker.CUBLAS),
    ("xmma", Maker.CUBLAS),
    ("cutlass", Maker.CUBLAS),
    ("gemm", Maker.CUBLAS),
    ("gemv", Maker.CUBLAS),
    ("splitkreduce", Maker.CUBLAS),
)
"""Parts of the names that libraries give their kernels, in lower case, the first that fits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RanKernel:
    """One kernel of one call."""

    name: str
    maker: Maker
    calls: int
    milliseconds: float | None
    """On the device, all calls together; None on the emulator, which has no times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """Everything that one call ran on the device, what took longest first."""

    kernels: tuple[RanKernel, ...]
    note: str = ""
    """What is not known, and why."""

    @property
    def own(self) -> tuple[RanKernel, ...]:
        """The kernels that the candidate brought."""
        return tuple(kernel for kernel in self.kernels if kernel.maker is Maker.OWN)

    @property
    def own_share(self) -> float | None:
        """Their share of the device's time; None without times."""
        if any(kernel.milliseconds is None for kernel in self.kernels):
            return None
        whole = sum(kernel.milliseconds or 0.0 for kernel in self.kernels)
        return sum(kernel.milliseconds or 0.0 for kernel in self.own) / whole if whole else None


def base_name(name: str) -> str:
    """The bare name of a kernel: "void ns::scale<float>(float*)" is "scale"."""
    plain = name.replace("(anonymous namespace)::", "").removeprefix("void ")
    for end in "<(":
        plain = plain.partition(end)[0]
    return plain.rpartition("::")[2].strip()


def list_kernels(
    seen: Iterable[tuple[str, float | None]], own_names: Iterable[str], note: str = ""
) -> Ran:
    """Launches by name with their milliseconds, summed up; `own_names` are the candidate's."""
    own = {base_name(name) for name in own_names}
    calls: dict[str, int] = {}
    times: dict[str, float | None] = {}
    for name, milliseconds in seen:
        calls[name] = calls.get(name, 0) + 1
        before = times.get(name, 0.0)
        times[name] = None if milliseconds is None or before is None else before + milliseconds
    kernels = [
        RanKernel(
            name=base_name(name) or name,
            maker=Maker.OWN if base_name(name) in own else _maker_of(name),
            calls=count,
            milliseconds=times[name],
        )
        for name, count in calls.items()
    ]
    kernels.sort(key=lambda kernel: -(kernel.milliseconds or 0.0))
    return Ran(kernels=tuple(kernels), note=note)


def _maker_of(name: str) -> Maker:
    small = name.lower()
    return next((maker for sign, maker in _SIGNS if sign in small), Maker.LIBRARY)


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
        evidence=f"{claim}no kernel of its own ran; {listed}{_because(ran)}",
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
