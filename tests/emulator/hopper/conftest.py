"""Kernels of compute capability 9.0 in files, built with the kernels' own headers beside them."""

import ctypes
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.utils.cpp_extension

from kernelwright import kernels
from kernelwright.emulator import Session

_UNITS = Path(__file__).parent / "units"


class Unit:
    """A file of kernels on the emulated device, for as long as a session lasts."""

    def __init__(self, name: str, session: Session, macros: Mapping[str, object]) -> None:
        self.session = session
        self.path = _UNITS / f"{name}.cu"
        variant = "_".join(["hopper", name, *(str(value) for value in macros.values())])
        library = torch.utils.cpp_extension.load(
            variant,
            [str(self.path)],
            extra_include_paths=[str(folder) for folder in kernels.folders()],
            extra_cuda_cflags=[f"-D{macro}={value}" for macro, value in macros.items()],
            is_python_module=False,
        )
        self._library = ctypes.CDLL(library)

    def run(self, function: str, *arguments: Any) -> int:
        """Call a function of the file; tensors as addresses, lists of numbers as C arrays."""
        result = getattr(self._library, function)
        result.restype = ctypes.c_int64 if function == "workspace" else ctypes.c_int
        return int(result(*map(_value, arguments)))


def _value(argument: Any) -> Any:
    match argument:
        case torch.Tensor():
            return ctypes.c_void_p(argument.data_ptr())
        case list():
            return (ctypes.c_int * len(argument))(*argument)
        case _:
            return argument


@pytest.fixture
def build() -> Iterator[Callable[..., Unit]]:
    """Builds a unit in a session of its own: build("primitives", order_seed=1)."""
    sessions: list[Session] = []

    def start(name: str, order_seed: int = 0, **macros: object) -> Unit:
        sessions.append(Session(order_seed=order_seed, threads=1, multiprocessors=4))
        return Unit(name, sessions[-1].__enter__(), macros)

    yield start
    for session in reversed(sessions):
        session.__exit__(None, None, None)
