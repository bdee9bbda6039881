"""Child of test_recurrent.py: recurrent layers of every config on the emulator, against float64.

Arguments: the configs as text, the cases as JSON, a seed. Prints one JSON object: of each case the
greatest errors of its results, ours and PyTorch's in float32; findings of the emulator.
"""

import ctypes
import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch.utils import cpp_extension

from kernelwright import kernels
from kernelwright.emulator import Session
from kernelwright.program.abi import Missing, pack

SOURCES = (
    "recurrent_launch.cuh",
    "dependent_launch.cuh",
    "bfloat16.cuh",
    "wgmma_narrow_bf16.cuh",
)


def build(configs: str) -> ctypes.CDLL:
    """The entry points of recurrent.cu."""
    text = (Path(__file__).parent / "recurrent.cu").read_text().replace("CONFIGS", configs)
    cpp_extension.load_inline(
        name="recurrent_test",
        cpp_sources="",
        cuda_sources=kernels.inline(*SOURCES) + text,
        functions=None,
        is_python_module=False,
        no_implicit_headers=True,
    )
    path = next(path for path in torch.ops.loaded_libraries if "recurrent_test" in path)
    library = ctypes.CDLL(path)
    library.recurrent_workspace.restype = library.recurrent_launch.restype = ctypes.c_int64
    return library


def module_of(case: dict[str, Any]) -> torch.nn.RNNBase:
    """What PyTorch has, in float32."""
    name, _, rule = case["cell"].partition("_")
    options = {"nonlinearity": rule.lower()} if rule else {}
    return getattr(torch.nn, name)(
        case["inputs"], case["hidden"], case["layers"], bias=case["bias"],
        bidirectional=case["directions"] == 2, **options,
    )  # fmt: skip


def spoil(tensor: torch.Tensor, how: str) -> None:
    """Writes what planes do not carry, or NaN, to one element or to all."""
    flat = tensor.view(-1)
    match how:
        case "nan":
            flat[1] = torch.nan
        case "inf":
            flat[flat.numel() // 2] = -torch.inf
        case "large":
            flat[0] = 5e4
        case "greatest":
            flat[flat.numel() // 2] = 3.4e38
        case "huge":
            tensor *= 1e9
        case "tiny":
            tensor *= 1e-20


def states_of(case: dict[str, Any], batch: int) -> list[torch.Tensor]:
    """The first states: hidden, and cell of an LSTM."""
    count = 2 if case["cell"] == "LSTM" else 1
    shape = (case["layers"] * case["directions"], batch, case["hidden"])
    return [torch.rand(shape) for _ in range(count)]


def reference(module: torch.nn.Module, x: torch.Tensor, states: list[torch.Tensor] | None) -> Any:
    """Results in order: y, last hidden state, last cell; in the type of `x`."""
    module = module.to(x.dtype)
    first = None if states is None else tuple(state.to(x.dtype) for state in states)
    if first is not None and len(first) == 1:
        first = first[0]
    with torch.no_grad():
        y, last = module(x, first)
    return [y, *(last if isinstance(last, tuple) else (last,))]


def run(
    session: Session, library: ctypes.CDLL, case: dict[str, Any], module: torch.nn.Module,
    x: torch.Tensor, states: list[torch.Tensor] | None, exact: list[torch.Tensor],
) -> list[torch.Tensor]:  # fmt: skip
    """Our results."""
    outs = [torch.full(result.shape, torch.nan, dtype=x.dtype) for result in exact]
    if case["batch_first"]:
        outs[0] = outs[0].transpose(0, 1).contiguous().transpose(0, 1)
    first = [*(states or []), None, None][:2] if states else [None, None]
    weights = {name: value.detach().to(x.dtype) for name, value in module.named_parameters()}
    states_in = [Missing(3) if state is None else state for state in first]
    arguments = [case["config"], case["layers"], case["hidden"], x, *states_in, *outs]
    arguments += [Missing(3)] * (3 - len(outs))
    for layer in range(case["layers"]):
        for suffix in ("", "_reverse")[: case["directions"]]:
            for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                weight = weights.get(f"{kind}_l{layer}{suffix}")
                arguments.append(Missing(1) if weight is None else weight)

    def words(address: int) -> bytes:
        return pack(arguments, workspace=address)

    size = library.recurrent_workspace(words(0))
    assert size > 0, (size, case)
    workspace = torch.full((size // 4 + 32,), torch.nan)
    status = library.recurrent_launch(words((workspace.data_ptr() + 127) // 128 * 128))
    assert status == 0, (status, case, [str(finding) for finding in session.findings])
    return outs


def error(result: torch.Tensor, exact: torch.Tensor) -> float:
    """The greatest; NaN must be where it is."""
    result = result.double()
    same = (result == exact) | (result.isnan() & exact.isnan())
    return torch.where(same, 0.0, (result - exact).abs()).max().item()


def main() -> None:
    torch.manual_seed(0)
    errors = []
    with Session(order_seed=int(sys.argv[3]), threads=1, multiprocessors=64) as session:
        library = build(sys.argv[1])
        for case in json.loads(sys.argv[2]):
            dtype = getattr(torch, case["dtype"])
            module = module_of(case).to(dtype)
            x = torch.rand(case["steps"], case["batch"], case["inputs"]).to(dtype)
            states = states_of(case, case["batch"]) if case["states"] else None
            states = states and [state.to(dtype) for state in states]
            if case["spoiled"] == "hidden":
                spoil(states[0], case["how"])
            elif case["spoiled"] == "weights":
                with torch.no_grad():
                    spoil(module.weight_hh_l0, case["how"])
            else:
                spoil(x, case["how"])
            if case["batch_first"]:
                x = x.transpose(0, 1).contiguous().transpose(0, 1)
            usual = reference(module, x, states)
            exact = reference(module, x.double(), states)
            results = run(session, library, case, module, x, states, exact)
            errors.append(
                [
                    (error(ours, best), error(theirs, best))
                    for ours, theirs, best in zip(results, usual, exact, strict=True)
                ]
            )
    findings = [str(finding) for finding in session.findings]
    print(json.dumps({"errors": errors, "findings": findings}))


if __name__ == "__main__":
    main()
