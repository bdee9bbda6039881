"""The cost of a call, from shapes alone."""

import subprocess
import sys
from pathlib import Path

_SWISH = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(x)


def get_inputs():
    return [torch.rand(32, 48)]


def get_init_inputs():
    return []
"""
_ASKING = """
import sys
from pathlib import Path

import torch

from kernelwright.problem import load_problem
from kernelwright.problem.cost import measure

cost = measure(load_problem(Path(sys.argv[1])))
print(cost.bytes, cost.flops, [it for it in ("torch._dynamo", "sympy") if it in sys.modules])
print(torch.compile(lambda x: x * 2, backend="eager")(torch.ones(2)).tolist())
"""


def test_no_compiler_is_imported_for_shapes(tmp_path: Path) -> None:
    """It takes a second and more, in each judgement anew; who compiles then gets the real one."""
    problem = tmp_path / "swish.py"
    problem.write_text(_SWISH)
    command = [sys.executable, "-c", _ASKING, str(problem)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    # An input and a result; the elements of two operators.
    assert done.stdout.splitlines() == [f"{2 * 4 * 32 * 48} {2 * 32 * 48} []", "[2.0, 2.0]"]
