"""Inside a candidate's child: what one call runs on the device, and silence for its own kernels."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, Protocol

import torch

from kernelwright.problem.modes import Mode
from kernelwright.verify.ran import Ran, list_kernels

if TYPE_CHECKING:
    from kernelwright.emulator import Session
    from kernelwright.toolchain.guards import Guards
    from kernelwright.toolchain.launches import Launches


_ON_DEVICE = "DeviceType.CUDA"
"""How the profiler's events name a GPU."""


_ACTIVITIES = (torch.profiler.ProfilerActivity.CUDA,)


def start_profiler(device: torch.device) -> None:
    """Use the profiler once: its first start takes seconds, in which nobody needs the device."""
    with suppress(RuntimeError, AssertionError), torch.profiler.profile(activities=_ACTIVITIES):
        torch.zeros(1, device=device)
        torch.cuda.synchronize(device)


class OwnKernels(Protocol):
    """The kernels that a candidate brought: counted, silenced, listed."""

    def silence(self) -> None:
        """Their launches do nothing from now on."""
        ...

    def unsilence(self) -> None:
        """They run again."""
        ...

    def take(self) -> dict[str, int]:
        """Launches of theirs since the last call, by name."""
        ...

    def trace(self, call: Callable[[], object]) -> Ran:
        """Everything that `call` runs on the device."""
        ...


class EmulatedKernels:
    """Those that the emulator runs; what PyTorch does beside them are operators of ATen."""

    def __init__(self, session: "Session") -> None:
        self._session = session

    def silence(self) -> None:
        """Launches do nothing, and succeed."""
        from kernelwright.emulator.session import Kernels

        self._session.switch(Kernels.SILENT)

    def unsilence(self) -> None:
        """Launches run."""
        from kernelwright.emulator.session import Kernels

        self._session.switch(Kernels.RUN)

    def take(self) -> dict[str, int]:
        """Launches since the last call, by name."""
        return self._session.take_launches()

    def trace(self, call: Callable[[], object]) -> Ran:
        """Launches, and operators that do work."""
        self.take()
        with _Operators() as operators:
            call()
        own = self.take()
        seen = [name for name, count in own.items() for _ in range(count)]
        return list_kernels(
            [(name, None) for name in (*seen, *operators.names)],
            own,
            "on the emulator: operators of PyTorch in place of its kernels, and no times",
        )


class _Operators(Mode):  # type: ignore[no-untyped-call]
    """Names of the operators that compute something."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        del types
        name = func.overloadpacket.__name__
        if not func.is_view and not name.startswith(("empty", "new_empty", "detach")):
            self.names.append(f"aten.{name}")
        return func(*args, **(kwargs or {}))


class CudaKernels:
    """Those that a GPU runs: launches from strangers' libraries, and Triton's."""

    def __init__(self, launches: "Launches | None") -> None:
        self._launches = launches
        self._triton = _TritonLaunches()

    def silence(self) -> None:
        """Launches do nothing, and succeed."""
        if self._launches is not None:
            self._launches.silence()
        self._triton.silence()

    def unsilence(self) -> None:
        """Launches run."""
        if self._launches is not None:
            self._launches.unsilence()
        self._triton.unsilence()

    def take(self) -> dict[str, int]:
        """Launches since the last call, by name."""
        counted = {} if self._launches is None else self._launches.take()
        return {**counted, **self._triton.take()}

    @contextmanager
    def blaming(self, guards: "Guards") -> Iterator[None]:
        """Let `guards` look after each launch in the block."""
        self._triton.tell(guards.blame)
        with nullcontext() if self._launches is None else guards.blaming(self._launches):
            yield
        self._triton.tell(None)

    def trace(self, call: Callable[[], object]) -> Ran:
        """What the profiler saw on the device during the second of two calls."""
        call()
        torch.cuda.synchronize()
        self.take()
        with torch.profiler.profile(activities=_ACTIVITIES) as profile:
            call()
            torch.cuda.synchronize()
        own = self.take()
        kernels = [
            (event.name, event.device_time_total * 1e-3)
            for event in profile.events() or ()
            if str(event.device_type) == _ON_DEVICE
        ]
        return list_kernels(kernels, own, "" if kernels else "the profiler gave no kernels")


class _TritonLaunches:
    """Launches of functions under triton.jit, once Triton has been imported."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._is_watching = False
        self._is_silent = False
        self._hearer: Callable[[str], None] | None = None

    def tell(self, hearer: Callable[[str], None] | None) -> None:
        """After each launch, call this with the kernel's name."""
        self._hearer = hearer
        self._watch()

    def silence(self) -> None:
        """Kernels are compiled and not launched."""
        self._is_silent = True
        self._watch()

    def unsilence(self) -> None:
        """Kernels are launched."""
        self._is_silent = False
        self._watch()

    def take(self) -> dict[str, int]:
        """Launches since the last call, by name."""
        self._watch()
        counts, self._counts = self._counts, {}
        return counts

    def _watch(self) -> None:
        module: Any = sys.modules.get("triton.runtime.jit")
        if self._is_watching or module is None:
            return
        original = module.JITFunction.run

        def run(function: Any, *args: Any, warmup: bool = False, **kwargs: Any) -> object:
            if not warmup:
                name = function.fn.__name__
                self._counts[name] = self._counts.get(name, 0) + 1
            result = original(function, *args, warmup=warmup or self._is_silent, **kwargs)
            if self._hearer is not None and not warmup:
                self._hearer(function.fn.__name__)
            return result

        module.JITFunction.run = run
        self._is_watching = True
