"""Stand-ins for modules of PyTorch that are imported for a word where shapes are plain numbers.

    with stand_ins():
        torch.randn(4096, 4096, device="meta")

What computes shapes in Python asks PyTorch's compiler to leave it alone, and imports it for that:
one to five seconds. It asks whether a condition of symbolic sizes holds, and imports sympy for
that: half a second. Where there is no compiler, and no size is a symbol, both answers are known.
"""

import importlib
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch

from kernelwright.problem.modes import COMPILER

SYMBOLS = "torch.fx.experimental.symbolic_shapes"
"""The module of symbolic sizes."""


@contextmanager
def stand_ins() -> Iterator[None]:
    """They leave no trace; a module that is there already, or that another thread may ask for, is
    the real one.
    """
    if threading.active_count() > 1:
        yield
        return
    with _compiler(), _symbols():
        yield


@contextmanager
def _compiler() -> Iterator[None]:
    if COMPILER in sys.modules:
        yield
        return
    asked: list[Any] = []

    def disable(function: Any, *_: Any, **__: Any) -> Any:
        asked.append(function)
        return function

    stand_in = ModuleType(COMPILER)
    vars(stand_in)["disable"] = disable
    sys.modules[COMPILER] = stand_in
    try:
        yield
    finally:
        if sys.modules.get(COMPILER) is stand_in:
            del sys.modules[COMPILER]
        if vars(torch).get("_dynamo") is stand_in:
            delattr(torch, "_dynamo")
        for function in asked:
            # What is remembered of the answer, in every release that has this question.
            vars(function).pop("__dynamo_disable", None)


@contextmanager
def _symbols() -> Iterator[None]:
    """Until something is asked that plain numbers do not answer: then the real one takes over."""
    if SYMBOLS in sys.modules:
        yield
        return
    stand_in = ModuleType(SYMBOLS)

    def real(name: str) -> Any:
        if name.startswith("__"):  # the import of any name asks for these
            raise AttributeError(name)
        if sys.modules.get(SYMBOLS) is stand_in:
            del sys.modules[SYMBOLS]
        return getattr(importlib.import_module(SYMBOLS), name)

    def asking(name: str, plain: Callable[..., bool]) -> Callable[..., bool]:
        def answer(*values: Any, **named: Any) -> bool:
            known = not named and _are_plain(values)
            given: bool = plain(*values) if known else real(name)(*values, **named)
            return given

        return answer  # which a module that is imported meanwhile may keep

    vars(stand_in).update({name: asking(name, plain) for name, plain in _PLAIN.items()})
    vars(stand_in)["__getattr__"] = real
    sys.modules[SYMBOLS] = stand_in
    try:
        yield
    finally:
        if sys.modules.get(SYMBOLS) is stand_in:
            del sys.modules[SYMBOLS]


def _are_plain(values: Any) -> bool:
    return all(
        _are_plain(it) if isinstance(it, tuple | list) else type(it) in (bool, int) for it in values
    )


def _itself(value: bool) -> bool:  # noqa: FBT001 - the signature of PyTorch's
    return value


def _equal(first: Any, second: Any) -> bool:
    if isinstance(first, tuple | list) and isinstance(second, tuple | list):
        return len(first) == len(second) and all(map(_equal, first, second))
    return bool(first == second)


_PLAIN: Mapping[str, Callable[..., bool]] = {
    "expect_true": _itself,
    "guard_or_false": _itself,
    "guard_or_true": _itself,
    "guard_size_oblivious": _itself,
    "statically_known_true": _itself,
    "sym_and": lambda *values: all(values),
    "sym_or": lambda *values: any(values),
    "sym_eq": _equal,
    "is_nested_int": lambda value: False,
}
"""What the functions of that name give for plain numbers and tuples of them."""
