"""Libraries of kernels that a benchmark calls by itself, compiled once each."""

import subprocess
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

_KERNELS = Path(__file__).resolve().parents[1] / "src" / "kernelwright" / "kernels"
_NVCC = ("nvcc", "-std=c++17", "-O3", "-gencode=arch=compute_90a,code=sm_90a")
T = TypeVar("T")


def built(text: str, target: Path) -> Path:
    """The library at `target`; nvcc compiles the text unless it is there."""
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    source = target.with_suffix(".cu")
    source.write_text(text)
    includes = (f"-I{folder}" for folder in _KERNELS.glob("*/"))
    command = [*_NVCC, "-Xcompiler", "-fPIC", "-shared", *includes]
    subprocess.run([*command, "-o", str(target), str(source)], check=True)
    return target


def side_by_side(build: Callable[[T], object], things: Iterable[T], jobs: int) -> None:
    """Build each, `jobs` at a time."""
    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(build, things))
