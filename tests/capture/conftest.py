"""The graph interpreter, for every test of this room."""

from collections.abc import Callable
from typing import Any

import pytest

from kernelwright.ir.interpreter import run_graph


@pytest.fixture(scope="session")
def run() -> Callable[..., Any]:
    """`run(graph, module, args, kwargs)`: what the module returns according to its graph."""
    return run_graph
