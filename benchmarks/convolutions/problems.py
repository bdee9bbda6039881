"""Times emitted files whose convolutions are ours beside eager PyTorch, and their errors.

    python benchmarks/convolutions/problems.py --emit KERNELBENCH/level1 ... --folder FILES
    python benchmarks/convolutions/problems.py --folder FILES [--output FILE.json]

The first call needs no GPU: it writes the problems, and what they become. The second one builds all
with nvcc, 16 at a time, and times each as soon as it is built. Errors against float64 are those of
the first image at the captured sizes, where the result of an image depends on no other.
"""

import argparse
import importlib.util
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.utils.cpp_extension

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from provenance import provenance


def emit_all(folders: list[Path], target: Path) -> None:
    """Every problem that has a convolution of ours, and its file."""
    from kernelwright.machine import H200
    from kernelwright.pipeline import compile_problem, write_candidate
    from kernelwright.problem import load_problem

    for path in sorted(path for folder in folders for path in folder.glob("*.py")):
        if "nn.Conv" not in (text := path.read_text()):
            continue
        compiled = compile_problem(load_problem(path), H200)
        own = [kernel for kernel in compiled.plan.kernels if kernel.family == "conv"]
        print(path.stem, [kernel.name for kernel in own], flush=True)
        if own:
            folder = target / f"{path.parent.name}_{path.stem.split('_')[0]}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "problem.py").write_text(text)
            candidate = write_candidate(compiled, folder / "emitted.py")
            (folder / "kernels.cu").write_text(candidate.cuda_source)
            facts = [f"{kernel.config}; {kernel.anchor}" for kernel in own]
            (folder / "facts.json").write_text(json.dumps(facts))


def build(folder: Path) -> Path:
    """The library of a file."""
    library = folder / "kernels.so"
    command = ["nvcc", "-std=c++17", "-O3", "-gencode=arch=compute_90a,code=sm_90a"]
    command += [
        "--expt-relaxed-constexpr",
        "-Xcompiler",
        "-fPIC",
        "-shared",
        "-o",
        str(library),
        str(folder / "kernels.cu"),
    ]
    subprocess.run(command, check=True, capture_output=True)
    return library


def load(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def with_library(path: Path, library: Path) -> ModuleType:
    """The emitted file, which finds its kernels built."""

    def load_inline(*, name: str, **others: Any) -> None:
        built = library.with_name(f"{name}.so")
        library.rename(built)
        torch.ops.load_library(str(built))

    original = torch.utils.cpp_extension.load_inline
    torch.utils.cpp_extension.load_inline = load_inline
    try:
        return load(path, f"emitted_{path.parent.name}")
    finally:
        torch.utils.cpp_extension.load_inline = original


def timed(function: Callable[[], object], budget_ms: float = 150.0) -> float:
    """Milliseconds, median of as many calls as the budget has room for."""
    function()
    times: list[float] = []
    while len(times) < 3 or (sum(times) < budget_ms and len(times) < 30):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        function()
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop))
    return statistics.median(times)


def kernel_times(function: Callable[[], object]) -> dict[str, float]:
    """Milliseconds of each kernel of one call."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        function()
        torch.cuda.synchronize()
    times = {
        it.key.split("::")[-1].split("(")[0]: it.device_time_total / 1e3
        for it in profile.key_averages()
    }
    return {name: ms for name, ms in times.items() if ms > 0}


def rms_error(result: torch.Tensor, exact: torch.Tensor) -> float:
    return ((result.double() - exact).norm() / exact.norm()).item()


def measure(folder: Path, library: Path) -> dict[str, Any]:
    """One problem's record."""
    record: dict[str, Any] = {"problem": folder.name}
    record["kernels"] = json.loads((folder / "facts.json").read_text())
    problem = load(folder / "problem.py", f"problem_{folder.name}")
    emitted = with_library(folder / "emitted.py", library)
    torch.manual_seed(0)
    with torch.device("cuda"):
        inputs = problem.get_inputs()
        own = problem.Model(*problem.get_init_inputs())
        new = emitted.ModelNew(*problem.get_init_inputs())
    new.load_state_dict(own.state_dict())
    with torch.no_grad():
        expected, found = own(*inputs), new(*inputs)
        record["difference"] = (
            rms_error(found, expected.double()) if found.numel() < 2**28 else None
        )
        exact = own.double()(*(it[:1].double() for it in inputs))
        own.float()
        record["errors"] = {
            "eager": rms_error(expected[:1], exact),
            "ours": rms_error(found[:1], exact),
        }
        del expected, found
        record["eager_ms"] = timed(lambda: own(*inputs))
        record["ours_ms"] = timed(lambda: new(*inputs))
        record["kernels_ms"] = kernel_times(lambda: new(*inputs))
    return record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--emit", nargs="*", type=Path)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--seconds", type=float, default=1e9, help="no new problem after these")
    options = parser.parse_args()
    if options.emit:
        emit_all(options.emit, options.folder)
        return
    began = time.monotonic()
    records = []
    with ThreadPoolExecutor(16) as pool:
        building: dict[Path, Future[Path]] = {
            folder: pool.submit(build, folder) for folder in sorted(options.folder.iterdir())
        }
        while building and time.monotonic() - began < options.seconds:
            ready = next((it for it, job in building.items() if job.done()), None)
            if ready is None:
                time.sleep(0.05)
                continue
            try:
                record = measure(ready, building.pop(ready).result())
            except Exception as error:
                record = {"problem": ready.name, "failed": repr(error)[:2000]}
            torch.cuda.empty_cache()
            records.append(record)
            print(json.dumps(record)[:900], flush=True)
            if options.output:
                content = {"provenance": provenance(), "records": records}
                options.output.write_text(json.dumps(content, indent=1) + "\n")
        pool.shutdown(cancel_futures=True)


if __name__ == "__main__":
    main()
