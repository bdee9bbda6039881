"""A block of Python in which PyTorch extensions run on the emulator.

    with Session(order_seed=0, threads=2) as session:
        module = import_file(candidate)
        out = module.ModelNew()(torch.rand(64, device="cuda"))
    for finding in session.findings:
        print(finding.location, finding.kind.value, finding.message)

In the block `load_inline` and `load` build for the host, torch.cuda pretends one H200, and CPU
tensors come from an allocator that fills new memory with a NaN and surrounds it, so that kernels
can be watched. One session at a time, in a process that does nothing else with CUDA.
"""

import gc
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from enum import Enum
from types import FunctionType, TracebackType
from typing import Any, Self
from unittest.mock import patch

import torch
import torch.utils.cpp_extension

from kernelwright.emulator import extension
from kernelwright.emulator.compile import load_allocator, load_runtime
from kernelwright.emulator.device import MULTIPROCESSORS, is_cuda, pretended_cuda
from kernelwright.emulator.errors import fault_of
from kernelwright.emulator.findings import Finding, read_findings, read_launches


class Kernels(Enum):
    """What a launch does."""

    RUN = "run"
    SILENT = "silent"
    """Nothing, and succeeds: what kernels should have written keeps its old contents."""


_FOREIGN_MEMORY = (
    *((torch, name) for name in ("from_numpy", "frombuffer", "from_file", "from_dlpack")),
    *((torch, name) for name in ("as_tensor", "asarray")),
    *((torch.UntypedStorage, name) for name in ("from_buffer", "from_file", "share_memory_")),
)
"""Whose functions make tensors and storages of memory that somebody else allocated."""


class Session:
    """The emulated device, from `__enter__` to `__exit__`; a session is entered once."""

    def __init__(
        self,
        *,
        order_seed: int = 0,
        threads: int = 2,
        time_limit_seconds: float = 0.0,
        multiprocessors: int = MULTIPROCESSORS,
    ) -> None:
        """A session that runs threads and blocks in the order of `order_seed` (0: as numbered).

        `threads` are threads of the host; a launch that takes more than `time_limit_seconds` is
        abandoned as a deadlock (0: no limit). Kernels that ask for the number of `multiprocessors`
        are told this one: with few of them blocks have much to do one after another.
        """
        self._multiprocessors = multiprocessors
        self._settings = {
            "order_seed": order_seed,
            "threads": threads,
            "time_limit": time_limit_seconds,
            "multiprocessors": multiprocessors,
            "silent": False,
        }
        self._stack = ExitStack()
        self._closed_with: tuple[Finding, ...] | None = None

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What was found so far, oldest first; later calls only add to the end."""
        return read_findings(load_runtime()) if self._closed_with is None else self._closed_with

    @property
    def launches(self) -> int:
        """Launches of kernels in this process so far."""
        return int(load_runtime().kwemu_launch_count())

    def switch(self, kernels: Kernels) -> None:
        """What launches do from now on; running until the first call."""
        setting = {"silent": kernels is Kernels.SILENT}
        load_runtime().kwemu_configure(json.dumps(setting).encode())

    def take_launches(self) -> dict[str, int]:
        """Launches since the last call, by the name of the kernel."""
        runtime = load_runtime()
        launches = read_launches(runtime)
        runtime.kwemu_forget_launches()
        return launches

    def __enter__(self) -> Self:
        runtime, allocator = load_runtime(), load_allocator()
        runtime.kwemu_clear()
        runtime.kwemu_forget_launches()
        runtime.kwemu_configure(json.dumps(self._settings).encode())
        with ExitStack() as stack:
            allocator.kwemu_install_torch_allocator()
            stack.callback(allocator.kwemu_remove_torch_allocator)
            stack.enter_context(_known_memory(allocator.kwemu_torch_allocator()))
            stack.enter_context(pretended_cuda(_synchronize, self._multiprocessors))
            stack.enter_context(_replaced_extensions())
            stack.enter_context(_without_tf32())
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closed_with = self.findings
        self._stack.close()


def _synchronize(_device: object = None) -> None:
    """Wait for nothing; raises EmulatorFault if a launch was abandoned, as CUDA would."""
    fault = fault_of(load_runtime())
    if fault is not None:
        raise fault


@contextmanager
def _without_tf32() -> Iterator[None]:
    """A file that asks whether its reference may round to TF32 hears no: on the CPU none does."""
    now = torch.backends.cudnn
    # The flags one by one can be locked; in a block they never are.
    with now.flags(
        enabled=now.enabled,
        benchmark=now.benchmark,
        deterministic=now.deterministic,
        allow_tf32=False,
    ):
        yield


@contextmanager
def _replaced_extensions() -> Iterator[None]:
    """`load_inline` and `load` are the emulator's, also where somebody has imported them."""
    library = torch.utils.cpp_extension
    ours: dict[object, object] = {
        library.load_inline: extension.load_inline,
        library.load: extension.load,
    }
    with ExitStack() as stack:
        for module in list(sys.modules.values()):
            for name, value in list(getattr(module, "__dict__", {}).items()):
                if type(value) is FunctionType and value in ours:
                    stack.enter_context(patch.object(module, name, ours[value]))
        yield


@contextmanager
def _known_memory(allocator: int) -> Iterator[None]:
    """Tensors from before the session, and those made of foreign memory, may be touched too.

    New storages get theirs from `allocator`, the address of the checked one.
    """
    runtime = load_runtime()
    known: set[int] = set()
    new_storage = _new_storage(allocator)

    def adopt(made: torch.Tensor | torch.UntypedStorage) -> None:
        storage = made.untyped_storage() if isinstance(made, torch.Tensor) else made
        place = storage.data_ptr()
        if place:
            known.add(place)
            runtime.kwemu_register(place, storage.nbytes(), b"tensor")

    def adopting(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            made = function(*args, **kwargs)
            adopt(made)
            return made

        return call

    for candidate in gc.get_objects():
        if type(candidate) in (torch.Tensor, torch.nn.Parameter) and _lies_in_memory(candidate):
            adopt(candidate)
    with ExitStack() as stack:
        for owner, name in _FOREIGN_MEMORY:
            replacement = adopting(getattr(owner, name))
            stack.enter_context(patch.object(owner, name, replacement))
        stack.enter_context(patch.object(torch.UntypedStorage, "__new__", new_storage))
        try:
            yield
        finally:
            for place in known:
                runtime.kwemu_unregister(place)


def _new_storage(allocator: int) -> Callable[..., Any]:
    """UntypedStorage(bytes), as in every deep copy, with memory from `allocator` (an address).

    PyTorch's own asks the allocator that it was born with, which nobody can replace.
    """
    made_by_torch: Callable[..., Any] = torch._C.StorageBase.__new__

    def new(kind: type[Any], *args: Any, device: Any = "cpu", **kwargs: Any) -> Any:
        if kwargs or not (device is None or is_cuda(device) or torch.device(device).type == "cpu"):
            return made_by_torch(kind, *args, device=device, **kwargs)
        return made_by_torch(kind, *args, allocator=allocator)

    return new


def _lies_in_memory(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "cpu" and tensor.layout is torch.strided
