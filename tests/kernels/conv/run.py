"""Child of test_conv.py: convolutions of every config on the emulator, against float64.

Arguments: the configs as text, the cases as JSON, a seed, the types of input and result, how
results are reduced. Prints one JSON object: of each type and case that a config takes the greatest
error over the sum of absolute terms; findings of the emulator.
"""

import ctypes
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils import cpp_extension

from kernelwright import kernels
from kernelwright.emulator import Session
from kernelwright.program.abi import pack

USUAL, TRANSPOSED = 0, 1
_FILES = (
    "conv_launch.cuh", "conv_any.cuh", "conv_epilogue.cuh", "conv_moments_launch.cuh",
    "wgmma_f16.cuh", "half.cuh", "bfloat16.cuh",
)  # fmt: skip
_PROGRAMS: dict[str, tuple[str, Callable[[torch.Tensor], torch.Tensor]]] = {
    "NONE SHARES": ("ChannelShares", lambda x: torch.softmax(x, 1)),
    "NONE LOG_SHARES": ("ChannelLogShares", lambda x: torch.log_softmax(x, 1)),
    "NONE LOG_SUM_EXP": ("LogSumExp", lambda x: torch.logsumexp(x, 1, keepdim=True)),
}
"""Programs over channels, and what they compute."""
_MOMENTS = {"MOMENTS BESIDE": "BESIDE", "MOMENTS ALONE": "ALONE"}
"""Moments of each channel of an image, with the results or in their place."""
_TYPES = {"float": torch.float32, "__half": torch.float16, "__nv_bfloat16": torch.bfloat16}


def epilogue_of(folds: str) -> str:
    """The type, for folds over windows and over channels: `"SUM MAXIMUM"`."""
    if folds == "NONE NONE":
        return "ConvBias"
    if folds in _PROGRAMS:
        return f"ConvRowProgram<{_PROGRAMS[folds][0]}, ConvBias, ConvPlain>"
    if folds in _MOMENTS:
        return f"ConvWithMoments<ConvMoments::{_MOMENTS[folds]}, ConvBias, ConvPlain>"
    windows, channels = (f"ConvFold::{it}" for it in folds.split())
    return f"ConvReducing<{windows}, {channels}, ConvBias, ConvPlain>"


def build(configs: str, element: str, folds: str) -> ctypes.CDLL:
    """The entry points of conv.cu."""
    text = (Path(__file__).parent / "conv.cu").read_text()
    text = text.replace("CONFIGS", configs).replace("ELEMENT", element)
    text = text.replace("EPILOGUE", epilogue_of(folds))
    name = f"conv_test{element.strip('_')}{folds.replace(' ', '').lower()}"
    cpp_extension.load_inline(
        name=name,
        cpp_sources="",
        cuda_sources=kernels.inline(*_FILES) + text,
        functions=None,
        is_python_module=False,
        no_implicit_headers=True,
    )
    library = ctypes.CDLL(
        next(path for path in torch.ops.loaded_libraries if f"{name}." in Path(path).name)
    )
    library.conv_workspace.restype = library.conv_launch.restype = ctypes.c_int64
    return library


def _spread(numbers: list[int]) -> list[int]:
    """W first, three of them."""
    return [*reversed(numbers), *[0] * (3 - len(numbers))]


def arguments_of(config: int, case: dict[str, Any], tensors: list[torch.Tensor]) -> list[Any]:
    """What the launcher takes after the workspace."""
    numbers = [config, TRANSPOSED if case["transposed"] else USUAL, case["groups"]]
    for kind in ("stride", "padding", "dilation"):
        numbers += _spread(case[kind])
    windows = [*reversed(case["window"] or [1] * len(case["in"]))]
    outputs = [*reversed(case.get("outputs") or [1 << 30] * len(windows))]
    rest = [1] * (3 - len(windows))
    return [*numbers, *windows, *rest, *outputs, *rest, *tensors]


def reference(case: dict[str, Any], *tensors: torch.Tensor) -> torch.Tensor:
    """In the tensors' own type."""
    data, filter_, bias = tensors
    keywords = {name: case[name] for name in ("stride", "padding", "dilation", "groups")}
    rank = data.dim() - 2
    if case["transposed"]:
        keywords["output_padding"] = case["output_padding"]
        name = f"conv_transpose{rank}d"
    else:
        name = f"conv{rank}d"
    return getattr(torch.nn.functional, name)(data, filter_, bias, **keywords)


def reduced(values: torch.Tensor, folds: str, window: list[int], is_whole: bool) -> torch.Tensor:
    """Over windows, all of which are whole or the last ones parts, then over channels."""
    functions = {"MAXIMUM": torch.amax, "MINIMUM": torch.amin, "SUM": torch.sum}
    neutral = {"MAXIMUM": -torch.inf, "MINIMUM": torch.inf, "SUM": 0.0}
    of_windows, of_channels = folds.split()
    if of_windows != "NONE":
        sizes = list(zip(values.shape[2:], window, strict=True))
        widths = [-(extent % size) if is_whole else -extent % size for extent, size in sizes]
        padding = [number for width in reversed(widths) for number in (0, width)]
        values = torch.nn.functional.pad(values, padding, value=neutral[of_windows])
        for at, size in enumerate(window):
            values = functions[of_windows](values.unflatten(2 + at, (-1, size)), 3 + at)
    if of_channels != "NONE":
        values = functions[of_channels](values, 1, keepdim=True)
    return values


def draw(case: dict[str, Any], dtype: torch.dtype) -> list[torch.Tensor]:
    """Input and filter of the type, and a bias, which is float32."""
    channels, out_channels, groups = case["channels"], case["out_channels"], case["groups"]
    outer = (
        (channels, out_channels // groups)
        if case["transposed"]
        else (out_channels, channels // groups)
    )
    data = torch.rand(case["images"], channels, *case["in"]) - 0.3
    filter_ = torch.rand(*outer, *case["kernel"]) - 0.3
    match case.get("values"):
        case "special":
            data.view(-1)[7] = torch.inf
            filter_.view(-1)[3] = torch.nan
        case "wide":
            data[0] *= 1e-7
        case "faint":  # nothing of it is left in one set
            data[0] *= 1e-10
        case "columns":  # as after a softmax of a few large numbers
            data[..., 0] *= 1e-5
            data[:, 1] *= 1e-6
        case "outlier":  # which a sample misses
            data[..., 1] *= 1e-5
            data.view(-1)[5] = 1e6
        case "sparse":  # which a sample misses as well
            data *= 0
            data[0, 3, 4, 5] = 1e-9
            filter_ *= 1e10
        case "dead":
            filter_[:, 1] *= 1e-10
            data[:, 0] *= 1e-9
        case "apart":  # too far for two sets; the outputs of the small ones are apart
            data[0] *= 1e-24
        case "beside":  # the same, but each lies beside others
            data[:, ::8] *= 1e-20
        case "peaked":  # beside other channels of the pixel
            data[:, :8] *= 1e-20
        case "group":  # and all of its group
            data[:, : channels // groups] *= 1e-20
        case "alone":  # and the filter leaves these out
            data[:, ::8] *= 1e-20
            filter_[0, 1:] = 0
        case "spared":  # beside more channels of the pixel than the filter has small elements
            data[:, ::8], filter_.view(-1)[3] = data[:, ::8] * 1e-20, 1e-9
        case "single":  # beside one, which such an element may meet
            data[:, 1:], filter_.view(-1)[0] = data[:, 1:] * 1e-20, 1e-9
        case "infinite":  # and wide
            data[0] *= 1e-10
            data.view(-1)[-7] = torch.inf
        case "huge":
            data *= 1e30
            filter_ *= 1e-20
    if case.get("channels_last"):
        data = data.movedim(1, -1).contiguous().movedim(-1, 1)
    return [data.to(dtype), filter_.to(dtype), torch.rand(out_channels)]


def launch(library: ctypes.CDLL, arguments: list[Any], address: int) -> int:
    """Status of the launch."""
    return int(library.conv_launch(pack(arguments, workspace=address)))


def run(
    library: ctypes.CDLL, config: int, case: dict[str, Any], shape: torch.Size,
    inputs: list[torch.Tensor],
) -> list[torch.Tensor] | None:  # fmt: skip
    """The result, means and spreads, or None where the config does not take the call."""
    out = torch.full(shape, torch.nan, dtype=inputs[0].dtype)
    if case.get("channels_last"):
        out = out.movedim(1, -1).contiguous().movedim(-1, 1)
    moments = [torch.full(shape[:2], torch.nan) for _ in range(2)]
    arguments = arguments_of(config, case, [out, *inputs, *moments])
    size = library.conv_workspace(pack(arguments))
    if size < 0:
        return None
    workspace = torch.full((size // 4 + 256,), torch.nan)
    status = launch(library, arguments, (workspace.data_ptr() + 1023) // 1024 * 1024)
    assert status == 0, f"CUDA error {status} of config {config}, {case}"
    return [out, *moments]


def error(out: torch.Tensor, exact: torch.Tensor, size: torch.Tensor) -> float:
    """The greatest, over the sum of absolute terms; NaN and infinities must be where they are."""
    same = (out.double() == exact) | (out.isnan() & exact.isnan())
    distance = torch.where(same, 0.0, (out.double() - exact).abs() / size)
    distance = distance.nan_to_num(nan=torch.inf)  # only one of both is NaN or infinite
    return distance.max().item() if distance.numel() else 0.0


def measure(
    library: ctypes.CDLL, configs: str, case: dict[str, Any], dtype: torch.dtype, folds: str
) -> list[float | None]:
    """Errors of a case, by config, and of the kernel of any sizes where results are reduced."""
    inputs = draw(case, dtype)
    doubles = [tensor.double() for tensor in inputs]
    exact = reference(case, *doubles)
    size = reference(case, *(tensor.abs() for tensor in doubles))
    numbers = list(range(configs.count("ConvConfig")))
    if folds in _MOMENTS:
        return [
            _moments_error(run(library, config, case, exact.shape, inputs), exact, size, folds)
            for config in (*numbers, -1)
        ]
    if folds != "NONE NONE":
        window = case["window"] or [1] * len(case["in"])
        case["outputs"] = list(exact.shape[2:])
        if folds in _PROGRAMS:
            exact = _PROGRAMS[folds][1](exact)
            size = size.amax(1, keepdim=True).clamp(min=1).expand_as(exact)
        else:
            exact, size = (reduced(it, folds, window, case["is_whole"]) for it in (exact, size))
        if "MINIMUM" in folds:
            size = torch.full_like(size, size.max().item())
        numbers.append(-1)
    found = [run(library, config, case, exact.shape, inputs) for config in numbers]
    return [None if them is None else error(them[0], exact, size) for them in found]


def _moments_error(
    found: list[torch.Tensor] | None, exact: torch.Tensor, size: torch.Tensor, folds: str
) -> float | None:
    """The greatest of the results, where there are some, of the means, and of deviations."""
    if found is None:
        return None
    out, means, spreads = found
    assert bool(out.isnan().all()) == (folds == "MOMENTS ALONE")
    maps = exact.flatten(2)
    sizes = size.flatten(2).amax(2)
    spread = maps.var(2, correction=0) * maps.shape[2]
    errors = [error(means, maps.mean(2), sizes), error(spreads, spread, maps.shape[2] * sizes**2)]
    return max(errors if folds == "MOMENTS ALONE" else [*errors, error(out, exact, size)])


def main() -> None:
    configs, cases = sys.argv[1], json.loads(sys.argv[2])
    torch.manual_seed(0)
    errors: list[list[float | None]] = []
    folds = sys.argv[5].split(",")
    with Session(order_seed=int(sys.argv[3]), threads=1, multiprocessors=4) as session:
        for element in sys.argv[4].split(","):
            for fold in folds:
                library = build(configs, element, fold)
                errors += [
                    measure(library, configs, case, _TYPES[element], fold)
                    for case in cases
                    if fold in (case["folds"] or folds)
                ]
    findings = [str(finding) for finding in session.findings]
    print(json.dumps({"errors": errors, "findings": findings}))


if __name__ == "__main__":
    main()
