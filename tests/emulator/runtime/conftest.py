"""The runtime, and two units of kernels in the form that the translator writes."""

import ctypes
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelwright.emulator.compile import Part, Unit, compile_unit, load_runtime
from kernelwright.emulator.headers import Headers

_UNITS = Path(__file__).parent / "units"
_DEFAULTS = {"order_seed": 0, "threads": 1, "stall_limit": 2.0, "time_limit": 0.0}


class Device:
    """The emulated device: launches functions of one unit on tensors it knows."""

    def __init__(self, unit: str) -> None:
        self.runtime = load_runtime()
        self.lines = (_UNITS / f"{unit}.cpp").read_text().splitlines()
        text = "\n".join(self.lines)
        part = Part(file=f"{unit}.cpp", text=text, source=text)
        self._library = ctypes.CDLL(
            str(compile_unit(Unit(name=f"runtime_{unit}", parts=(part,), headers=Headers.CUDA)))
        )
        self._known: list[torch.Tensor] = []

    def configure(self, **settings: float) -> None:
        self.runtime.kwemu_configure(json.dumps(settings).encode())

    def reset(self) -> None:
        for tensor in self._known:
            self.runtime.kwemu_unregister(tensor.data_ptr())
        self._known.clear()
        self.runtime.kwemu_clear()
        self.configure(**_DEFAULTS)

    def know(self, tensor: torch.Tensor) -> torch.Tensor:
        """Registers a tensor's memory."""
        name = f"argument {len(self._known)}".encode()
        self.runtime.kwemu_register(tensor.data_ptr(), tensor.nbytes, name)
        self._known.append(tensor)
        return tensor

    def poisoned(self, count: int) -> torch.Tensor:
        """A float tensor that holds the allocator's pattern."""
        return self.know(torch.full((count,), 0x7FF97FF9, dtype=torch.int32).view(torch.float32))

    def run(self, function: str, *arguments: torch.Tensor | int) -> int:
        values: list[Any] = [
            ctypes.c_void_p(a.data_ptr()) if isinstance(a, torch.Tensor) else a for a in arguments
        ]
        return int(getattr(self._library, function)(*values))

    def function(self, name: str) -> Any:
        return getattr(self._library, name)

    def findings(self) -> list[dict[str, Any]]:
        size = self.runtime.kwemu_findings(None, 0)
        buffer = ctypes.create_string_buffer(size)
        self.runtime.kwemu_findings(buffer, size)
        found: list[dict[str, Any]] = json.loads(buffer.value)
        return found

    def the_finding(self) -> dict[str, Any]:
        """The one finding there is."""
        (finding,) = self.findings()
        return finding

    def line(self, mark: str) -> int:
        """The line that ends in `// MARK <mark>`."""
        (number,) = (n for n, text in enumerate(self.lines, 1) if text.endswith(f"// MARK {mark}"))
        return number


@pytest.fixture(scope="session")
def _faults() -> Device:
    return Device("faults")


@pytest.fixture(scope="session")
def _values() -> Device:
    return Device("values")


@pytest.fixture
def faults(_faults: Device) -> Iterator[Device]:
    _faults.reset()
    yield _faults
    _faults.reset()


@pytest.fixture
def values(_values: Device) -> Iterator[Device]:
    _values.reset()
    yield _values
    _values.reset()
