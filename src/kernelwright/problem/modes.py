"""Modes of PyTorch's dispatcher that do not import its compiler.

PyTorch tells its compiler to leave every mode alone, and imports it for that when the mode meets
its first operator: one to two seconds of a core. A process without a compiler needs nobody told.
"""

import inspect
import sys
from typing import Any, Self

from torch._compile import _disable_dynamo
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode, _FlopCounterMode

COMPILER = "torch._dynamo"
"""The compiler's module."""
_ENTRY = "__torch_dispatch__"
_told: set[type] = set()
"""Classes that a compiler which is there leaves alone."""


class Mode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A mode that a compiler leaves alone if it is there when the mode is made."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        _tell_of(type(self))

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """What PyTorch asks when the class is made: whether to tell its compiler of it."""
        return False


class _Products(_FlopCounterMode):  # type: ignore[no-untyped-call]
    """PyTorch's own mode without what imports the compiler."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    __torch_dispatch__ = inspect.unwrap(_FlopCounterMode.__torch_dispatch__)


class ProductCounter(FlopCounterMode):
    """Counts multiply-adds, twice each, as PyTorch does."""

    def __enter__(self) -> Self:
        super().__enter__()  # type: ignore[no-untyped-call]
        _tell_of(_Products)
        self.mode.__class__ = _Products
        return self


def _tell_of(mode: type) -> None:
    """Let a compiler that is there leave a class alone, and those that it inherits from."""
    if COMPILER not in sys.modules:
        return
    for each in mode.__mro__:
        own: Any = vars(each).get(_ENTRY)
        if own is not None and each not in _told and not each.__module__.startswith("torch."):
            _told.add(each)
            setattr(each, _ENTRY, _disable_dynamo(own, recursive=True))
