"""What conditions on open sizes cost a trace."""

from types import SimpleNamespace
from typing import Any

import pytest
import sympy

from kernelwright.capture.errors import SymbolicWorkError
from kernelwright.capture.openness import Watch

A, B = sympy.symbols("s0 s1", positive=True, integer=True)
ENV: Any = SimpleNamespace()


def test_a_loop_may_ask_for_any_number_of_bounds() -> None:
    watch = Watch(limit=5)
    for step in range(100):
        watch.ask(ENV, step + 2 < A)
        watch.ask(ENV, sympy.Ge(step + 2, B))
    assert watch.terms == 0 and not watch.is_spent


def test_conditions_on_sums_and_products_count() -> None:
    watch = Watch(limit=9)
    watch.ask(ENV, A * B > 2)
    watch.ask(ENV, A * B > 2)
    assert watch.terms == 5
    with pytest.raises(SymbolicWorkError):
        watch.ask(ENV, A + B > 3)
