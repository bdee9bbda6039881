"""Classes of results, and `self` under another name, in the text of an emitted file."""

from pathlib import Path

from kernelwright.codegen import emit
from kernelwright.compiling import compile_problem
from kernelwright.machine import H200
from kernelwright.problem.loading import parse_problem
from kernelwright.schedule import Library

PROBLEM = '''\
import collections
from typing import NamedTuple
import torch
from torch import nn
class Pair(NamedTuple):
    """What forward returns."""
    first: torch.Tensor
    second: torch.Tensor
class Model(nn.Module):
    def __init__(this):
        super().__init__()
        this.scale = nn.Parameter(torch.rand(4))
    def forward(this, x):
        pair = Pair(x * this.scale, x + torch.tensor([1.5] * 4))
        return collections.OrderedDict(pair=pair, top=torch.max(x, 1))
def get_inputs():
    return [torch.rand(8, 4)]
def get_init_inputs():
    return []
'''


def test_a_file_builds_the_classes_that_forward_returns() -> None:
    problem = parse_problem(Path("/somewhere/paired.py"), PROBLEM)
    compiled = compile_problem(problem, H200, Library.NEVER)
    text = emit(problem, compiled.plan, compiled.rewritten.applied).source
    compile(text, "paired_new.py", "exec")
    assert "class Pair(NamedTuple):" in text
    assert "from collections import OrderedDict" in text
    assert "def forward(self, x):" in text
    assert "\n        this.register_buffer(" in text
    (returned,) = (line for line in text.splitlines() if line.startswith("        return Ordered"))
    assert returned.lstrip().startswith("return OrderedDict({'pair': Pair(")
    assert "'top': torch.return_types.max((" in returned
