"""Child of test_random_graphs.py: run an emitted file on the emulator against float64.

Arguments: problem file, emitted file. Prints one JSON object.
"""

import importlib.util
import json
import sys
from types import ModuleType

import torch

from kernelwright.emulator import Session


def load(path: str, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def distance(got: torch.Tensor, want: torch.Tensor) -> float:
    """The largest error, of the whole tensor's size."""
    assert got.dtype == torch.float32 and got.shape == want.shape
    scale = 1 + want.abs().max()
    return float(((got.double() - want).abs() / scale).nan_to_num(nan=torch.inf).max())


def main() -> None:
    problem, emitted = sys.argv[1:]
    with Session(order_seed=1, threads=1) as session, torch.no_grad():
        reference, candidate = load(problem, "reference"), load(emitted, "candidate")
        torch.manual_seed(0)
        inputs = reference.get_inputs()
        exact = reference.Model().double()(*(x.double() for x in inputs))
        result = candidate.ModelNew()(*inputs)
        worst = [
            max(distance(got, want) for got, want in zip(mine, theirs, strict=True))
            for mine, theirs in zip(result, exact, strict=True)
        ]
    print(json.dumps({"worst": worst, "findings": [str(f) for f in session.findings]}))


if __name__ == "__main__":
    main()
