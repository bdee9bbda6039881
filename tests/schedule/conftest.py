"""The plan interpreter of these tests."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def run_plan() -> Callable[..., Any]:
    """`run_plan(plan, module, args)`: what the module returns according to its plan."""
    path = Path(__file__).parent / "plan_interpreter.py"
    spec = importlib.util.spec_from_file_location("plan_interpreter", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.run_plan
