"""Child of test_families.py: run one emitted file on the emulator over shapes and layouts.

Arguments: problem file, emitted file, dtype, JSON list of sizes. Prints one JSON object.
"""

import importlib.util
import json
import sys
from types import ModuleType

import torch

from kernelwright.emulator import Session

LAYOUTS = {
    "contiguous": lambda tensor: tensor,
    # Neighbours along the last dimension are not neighbours in memory.
    "transposed": lambda tensor: tensor.mT.contiguous().mT if tensor.dim() > 1 else tensor,
    "every other": lambda tensor: torch.stack([tensor, tensor], -1).flatten(-2)[..., ::2],
    # The first element is one element past an aligned address.
    "misaligned": lambda tensor: torch.cat([tensor.new_zeros(1), tensor.reshape(-1)])[1:].view(
        tensor.shape
    ),
}


def load(path: str, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def resize(tensor: torch.Tensor, old: dict[int, int], dtype: torch.dtype) -> torch.Tensor:
    shape = [old.get(size, size) for size in tensor.shape]
    return (torch.rand(shape) - 0.3).to(dtype)


def main() -> None:
    problem, emitted, dtype_name, sizes = sys.argv[1:]
    dtype = getattr(torch, dtype_name)
    worst: dict[str, float] = {}
    with Session(order_seed=1, threads=1) as session, torch.no_grad():
        reference = load(problem, "reference")
        candidate = load(emitted, "candidate").ModelNew()
        for renamed in json.loads(sizes):
            old = {getattr(reference, name): size for name, size in renamed.items()}
            torch.manual_seed(0)
            values = [
                resize(x, old, dtype) if isinstance(x, torch.Tensor) else x
                for x in reference.get_inputs()
            ]
            exact = results_of(reference.Model().double()(*map(widen, values)))
            for layout, arrange in LAYOUTS.items():
                inputs = [arrange(x) if isinstance(x, torch.Tensor) else x for x in values]
                results = results_of(candidate(*inputs))
                key = f"{renamed} {layout}"
                assert [it.shape for it in results] == [it.shape for it in exact], key
                assert {it.dtype for it in results} == {dtype}, key
                worst[key] = max(map(error_of, results, exact))
    print(json.dumps({"worst": worst, "findings": [str(f) for f in session.findings]}))


def results_of(returned: torch.Tensor | tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    return returned if isinstance(returned, tuple) else (returned,)


def error_of(result: torch.Tensor, exact: torch.Tensor) -> float:
    error = (result.double() - exact).abs() / (1 + exact.abs())
    assert not torch.isnan(error).any()
    return error.max().item() if error.numel() else 0.0


def widen(value: object) -> object:
    return value.double() if isinstance(value, torch.Tensor) else value


if __name__ == "__main__":
    main()
