"""Modes that do not import PyTorch's compiler, and that it leaves alone where it is."""

import subprocess
import sys

_ORACLE = """
import sys
import torch
from torch.utils.flop_counter import FlopCounterMode
from kernelwright.problem.modes import ProductCounter
from kernelwright.verify.oracle import _InFloat64, run_oracle

model = torch.nn.Sequential(torch.nn.Conv1d(3, 4, 5), torch.nn.Flatten(), torch.nn.Linear(48, 7))
x = torch.rand(2, 3, 16)
with ProductCounter(display=False) as counted:
    run = run_oracle(model, [x], seed=0)
print(run.note, run.tensors["output"].dtype, "torch._dynamo" in sys.modules)
with FlopCounterMode(display=False) as expected:
    model(x)
print(counted.get_total_flops() == expected.get_total_flops() > 0, "torch._dynamo" in sys.modules)
print(hasattr(_InFloat64.__torch_dispatch__, "__wrapped__"))
again = run_oracle(model, [x], seed=0)
print(hasattr(_InFloat64.__torch_dispatch__, "__wrapped__"))
print(torch.equal(run.tensors["output"], again.tensors["output"]))
"""


def test_an_oracle_imports_no_compiler_and_one_that_is_there_leaves_it_alone() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _ORACLE], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [
        " torch.float64 False",
        "True True",  # PyTorch's own counter has imported the compiler
        "False",
        "True",
        "True",
    ]
