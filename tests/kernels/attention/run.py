"""Child of test_attention.py: attention of every config on the emulator, against float64.

Arguments: the configs as text, the cases as JSON, a seed. Prints one JSON object: of each case the
greatest error, ours and PyTorch's, and how often each kernel was launched; findings of the
emulator.
"""

import ctypes
import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils import cpp_extension

from kernelwright import kernels
from kernelwright.emulator import Session
from kernelwright.program.abi import Missing, pack


def build(configs: str) -> ctypes.CDLL:
    """The entry points of attention.cu."""
    text = (Path(__file__).parent / "attention.cu").read_text().replace("CONFIGS", configs)
    cpp_extension.load_inline(
        name="attention_test",
        cpp_sources="",
        cuda_sources=kernels.inline("attention_few_launch.cuh") + text,
        functions=None,
        is_python_module=False,
        no_implicit_headers=True,
    )
    path = next(path for path in torch.ops.loaded_libraries if "attention_test" in path)
    library = ctypes.CDLL(path)
    library.attention_workspace.restype = library.attention_launch.restype = ctypes.c_int64
    return library


def operands_of(case: dict[str, Any]) -> list[torch.Tensor]:
    """q, k and v of a case: positive numbers, in any order of dimensions."""
    dtype = getattr(torch, case["dtype"])
    shapes = (
        (case["batch"], case["heads"], case["rows"], case["depth"]),
        (case["batch"], case["kv_heads"], case["keys"], case["depth"]),
        (case["batch"], case["kv_heads"], case["keys"], case["width"]),
    )
    found = []
    for shape in shapes:
        batch, heads, rows, columns = shape
        if case["laid_out"] == "heads inside":
            tensor = torch.rand(batch, rows, heads, columns).to(dtype).transpose(1, 2)
        elif case["laid_out"] == "expanded":
            tensor = torch.rand(1, *shape[1:]).to(dtype).expand(shape)
        elif case["laid_out"] == "odd":
            tensor = torch.rand(batch, heads, columns, rows + 1).to(dtype)[..., 1:].mT
        else:
            tensor = torch.rand(shape).to(dtype)
        found.append(tensor)
    return found


def spoil(case: dict[str, Any], operands: list[torch.Tensor]) -> None:
    """Writes what planes do not carry, or NaN, or what makes rows that one key has."""
    q, k, v = operands
    match case["how"]:
        case "nan":
            v[0, 0, 0, 0] = torch.nan
        case "nan in q":
            q[0, 0, case["rows"] // 2] = torch.nan
        case "inf":
            v[0, 0, 0, 0] = torch.inf
        case "large":
            v[0, 0, 0, 0] = 3e30
        case "graded":
            v[..., 0] *= 1e-12
            k[0, 0, 0] *= 1e-9
        case "graded and nan":
            v[-1, :, :, 0] *= 1e-12
            k[-1, 0, 0] *= 1e-9
            v[0, 0, 0, 0] = torch.nan
        case "tiny":
            v *= 1e-30
        case "dominant":
            k[:, :, case["keys"] // 2] *= 40
        case "signed":
            for tensor in operands:
                tensor -= 0.5


def mask_of(case: dict[str, Any]) -> torch.Tensor | None:
    """A mask that leaves row 1 nothing where it has rows."""
    kind = case["mask"]
    if not kind:
        return None
    heads = case["heads"] if "heads" in kind else 1
    rows = 1 if "same" in kind else case["rows"]
    batch = case["batch"] // 2 if "in turns" in kind else 1
    keep = torch.rand(batch, heads, rows, case["keys"]) < 0.7
    if "empty" in kind:
        keep[:, :, min(1, rows - 1)] = False
    else:
        keep[..., 0] = True
    if "keep" in kind:
        return keep
    dtype = getattr(torch, case["dtype"])
    # What people write for -inf: a row of nothing else has equal shares.
    never = torch.finfo(dtype).min if "least" in kind else -torch.inf
    return torch.rand(keep.shape).to(dtype).masked_fill(~keep, never)


def reference(
    case: dict[str, Any], operands: list[torch.Tensor], mask: torch.Tensor | None
) -> torch.Tensor:
    """What it means; in the type of the operands."""
    q, k, v = operands
    group = case["heads"] // case["kv_heads"]
    k, v = (it.repeat_interleave(group, 1) for it in (k, v))
    scale = case["scale"] or case["depth"] ** -0.5
    scores = q @ k.mT * scale
    if case["causal"]:
        mask_causal = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        scores = scores.masked_fill(~mask_causal, -torch.inf)
    if mask is not None:
        mask = mask.repeat(case["batch"] // mask.shape[0], 1, 1, 1)
        scores = (
            scores.masked_fill(~mask, -torch.inf) if mask.dtype is torch.bool else scores + mask
        )
    if case["weighing"] == "RELU":
        return F.relu(scores) @ v
    shares = F.softmax(scores, -1)
    if case["empty_is_zero"]:
        shares = shares.masked_fill((scores == -torch.inf).all(-1, keepdim=True), 0)
    return shares @ v


def run(library: ctypes.CDLL, session: Session, case: dict[str, Any],
        operands: list[torch.Tensor], mask: torch.Tensor | None) -> torch.Tensor:  # fmt: skip
    """Our result."""
    shape = (case["batch"], case["heads"], case["rows"], case["width"])
    result = torch.full(shape, 77.0).to(operands[0].dtype)
    if case["laid_out"] == "heads inside":
        result = result.transpose(1, 2).contiguous().transpose(1, 2)
    mask_or_none = Missing(4) if mask is None else mask
    arguments = [case["config"], *operands, mask_or_none, result, float(case["scale"])]

    def words(address: int) -> bytes:
        return pack(arguments, workspace=address)

    size = library.attention_workspace(words(0))
    assert size >= 0, (size, case)
    workspace = torch.full((size // 4 + 32,), torch.nan)
    status = library.attention_launch(words((workspace.data_ptr() + 127) // 128 * 128))
    assert status == 0, (status, case, [str(finding) for finding in session.findings])
    return result


def error(result: torch.Tensor, exact: torch.Tensor) -> float:
    """The greatest; NaN must be where it is."""
    result = result.double()
    same = (result == exact) | (result.isnan() & exact.isnan())
    return torch.where(same, 0.0, (result - exact).abs()).max().item()


def main() -> None:
    torch.manual_seed(0)
    errors, launches = [], []
    with Session(order_seed=int(sys.argv[3]), threads=1, multiprocessors=8) as session:
        library = build(sys.argv[1])
        for case in json.loads(sys.argv[2]):
            operands = operands_of(case)
            spoil(case, operands)
            mask = mask_of(case)
            exact = reference(case, [it.double() for it in operands], mask)
            usual = reference(case, operands, mask)
            ours = run(library, session, case, operands, mask)
            launches.append(session.take_launches())
            size = exact[exact.isfinite()].abs().max().item() if exact.isfinite().any() else 1.0
            errors.append([error(it, exact) / max(size, 1e-30) for it in (ours, usual)])
    findings = [str(finding) for finding in session.findings]
    print(json.dumps({"errors": errors, "launches": launches, "findings": findings}))


if __name__ == "__main__":
    main()
