"""What watches a candidate's kernels while they run: nothing on a GPU, the emulator on a CPU."""

from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from kernelwright.verify.observation import KernelFinding
from kernelwright.worker.roles.what_ran import CudaKernels, EmulatedKernels, OwnKernels

if TYPE_CHECKING:
    from kernelwright.emulator import Finding


class KernelChecks(Protocol):
    """A context in which a candidate is imported, constructed and run."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def take(self) -> tuple[KernelFinding, ...]:
        """What was found since the last call."""
        ...

    def own_kernels(self) -> OwnKernels:
        """The kernels that the candidate brought."""
        ...


class Unwatched:
    """Kernels run as they are."""

    def __init__(self) -> None:
        self._own: CudaKernels | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None

    def take(self) -> tuple[KernelFinding, ...]:
        """Nothing: nobody looks."""
        return ()

    def own_kernels(self) -> OwnKernels:
        """Counted where the process was started with the library that does so."""
        from kernelwright.toolchain.launches import Launches

        if self._own is None:
            self._own = CudaKernels(Launches.of_this_process())
        return self._own


class Emulated:
    """Kernels run on the emulator, threads of a block in the order of `order_seed`."""

    def __init__(self, order_seed: int, threads: int) -> None:
        from kernelwright.emulator import Session

        self._session = Session(order_seed=order_seed, threads=threads)
        self._taken = 0

    def __enter__(self) -> Self:
        self._session.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._session.__exit__(kind, error, trace)

    def take(self) -> tuple[KernelFinding, ...]:
        """The emulator's findings since the last call."""
        new = self._session.findings[self._taken :]
        self._taken += len(new)
        return tuple(_as_kernel_finding(finding) for finding in new)

    def own_kernels(self) -> OwnKernels:
        """All kernels that the emulator runs are the candidate's."""
        return EmulatedKernels(self._session)


def _as_kernel_finding(finding: "Finding") -> KernelFinding:
    place = f"{finding.kernel} at {finding.file}:{finding.line}"
    threads = f"block {finding.block}, thread {finding.thread}"
    other = f" and {finding.other}" if finding.other else ""
    return KernelFinding(
        kind=finding.kind,
        message=f"{place}, {threads}{other}: {finding.message}",
    )
