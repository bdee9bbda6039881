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
ALGEBRA = "sympy"
"""The package of what these are computed with."""


class _StandIn(ModuleType):
    """A module that has little of what the real one has."""


def _dismiss(*names: str) -> None:
    """Let the real modules be imported by whoever asks from now on."""
    for name in names:
        if isinstance(sys.modules.get(name), _StandIn):
            del sys.modules[name]


@contextmanager
def stand_ins() -> Iterator[None]:
    """They leave no trace; a module that is there already, or that another thread may ask for, is
    the real one.
    """
    if threading.active_count() > 1:
        yield
        return
    with _compiler(), _algebra(), _symbols():
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

    stand_in = _StandIn(COMPILER)
    vars(stand_in)["disable"] = disable
    sys.modules[COMPILER] = stand_in
    try:
        yield
    finally:
        _dismiss(COMPILER)
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
    stand_in = _StandIn(SYMBOLS)

    def real(name: str) -> Any:
        if name.startswith("__"):  # the import of any name asks for these
            raise AttributeError(name)
        _dismiss(SYMBOLS, ALGEBRA)
        return getattr(importlib.import_module(SYMBOLS), name)

    def asking(name: str, plain: Callable[..., int]) -> Callable[..., int]:
        def answer(*values: Any, **named: Any) -> int:
            known = not named and _are_plain(values)
            given: int = plain(*values) if known else real(name)(*values, **named)
            return given

        return answer  # which a module that is imported meanwhile may keep

    vars(stand_in).update({name: asking(name, plain) for name, plain in _PLAIN.items()})
    vars(stand_in)["__getattr__"] = real
    sys.modules[SYMBOLS] = stand_in
    try:
        yield
    finally:
        _dismiss(SYMBOLS)


@contextmanager
def _algebra() -> Iterator[None]:
    """For one function, which asks of every number whether it is an expression; until anybody asks
    for more: then the real one takes over.
    """
    if ALGEBRA in sys.modules:
        yield
        return
    stand_in = _StandIn(ALGEBRA)

    def known(name: str) -> Any:
        stands_in = sys.modules.get(ALGEBRA) is stand_in
        asker = sys._getframe(1).f_globals.get("__name__")
        if stands_in and (asker, name) == _ASKS_FOR_EXPRESSIONS:
            return _Nothing
        _dismiss(ALGEBRA)
        return getattr(importlib.import_module(ALGEBRA), name)

    vars(stand_in)["__getattr__"] = known
    sys.modules[ALGEBRA] = stand_in
    try:
        yield
    finally:
        _dismiss(ALGEBRA)


_ASKS_FOR_EXPRESSIONS = ("torch._prims_common", "Basic")


class _Nothing:
    """The class of expressions, where there are none."""


def _are_plain(values: Any) -> bool:
    return all(
        _are_plain(it) if isinstance(it, tuple | list) else type(it) in (bool, int) for it in values
    )


def _itself(value: int) -> int:
    return value


def _equal(first: Any, second: Any) -> bool:
    if isinstance(first, tuple | list) and isinstance(second, tuple | list):
        return len(first) == len(second) and all(map(_equal, first, second))
    return bool(first == second)


_PLAIN: Mapping[str, Callable[..., int]] = {
    "expect_true": _itself,
    "guard_or_false": _itself,
    "guard_or_true": _itself,
    "guard_size_oblivious": _itself,
    "statically_known_true": _itself,
    "sym_and": lambda *values: all(values),
    "sym_or": lambda *values: any(values),
    "sym_eq": _equal,
    "is_nested_int": lambda value: False,
    "has_hint": lambda value: True,
    "has_guarding_hint": lambda value: True,
    "size_hint": _itself,
    "guarding_hint_or_throw": _itself,
}
"""What the functions of that name give for plain numbers and tuples of them."""
