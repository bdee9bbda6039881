"""What ran on the device in one call of a candidate: each kernel, who made it, and its time.

Facts come from room worker: a profiler's list on a GPU, the emulator's own count without one.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum


class Maker(Enum):
    """Who wrote a kernel."""

    OWN = "its own"
    ATEN = "ATen"
    CUBLAS = "cuBLAS"
    CUDNN = "cuDNN"
    COMPILER = "torch.compile"
    MEMORY = "copies and fills"
    LIBRARY = "PyTorch or another library"


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
            maker=Maker.OWN if base_name(name) in own else maker_of(name),
            calls=count,
            milliseconds=times[name],
        )
        for name, count in calls.items()
    ]
    kernels.sort(key=lambda kernel: -(kernel.milliseconds or 0.0))
    return Ran(kernels=tuple(kernels), note=note)


def maker_of(name: str) -> Maker:
    """The library that names its kernels so; LIBRARY for any other name."""
    small = name.lower()
    return next((maker for sign, maker in _SIGNS if sign in small), Maker.LIBRARY)
