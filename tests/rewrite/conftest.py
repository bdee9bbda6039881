"""The graph interpreter of the capture room's tests."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def run() -> Callable[..., Any]:
    """`run(graph, module, args, kwargs)`: what the module returns according to its graph."""
    path = Path(__file__).parents[1] / "capture" / "interpreter.py"
    spec = importlib.util.spec_from_file_location("graph_interpreter", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.run
