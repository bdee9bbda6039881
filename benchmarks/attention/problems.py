"""Times KernelBench's problems with attention: ours beside eager PyTorch, torch.compile, the floor.

    python benchmarks/attention/problems.py --emit KERNELBENCH --folder FILES
    python benchmarks/attention/problems.py --folder FILES --build
    python benchmarks/attention/problems.py --folder FILES --seconds 70 --output FILE.json

The first call needs no GPU: it writes the problems, and what they become. The second one needs
nvcc; without it, the third one compiles, too. That one needs a GPU and torch, and no kernelwright.
It is the benchmark of convolutions with other problems: see there for journals and processes.
"""

import argparse
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "convolutions"))
from emitted_files import build_library
from emitting import emit_one
from problems import run_all, summary

PROBLEMS = (
    "level3/31", "level3/43", "level3/44", "level3/50", "level1/97", "level3/28", "level3/32",
    "level3/30",
)  # fmt: skip
"""Those that tell most first; those that torch.compile takes longest for last."""


def emit_all(root: Path, folder: Path) -> None:
    """What each problem below the root becomes."""
    for name in PROBLEMS:
        level, number = name.split("/")
        (path,) = (root / level).glob(f"{number}_*.py")
        print(emit_one(path, folder), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--emit", type=Path, help="folder of the levels")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--build", action="store_true", help="compile alone")
    parser.add_argument("--output", type=Path, default=Path("attention_problems.json"))
    parser.add_argument("--seconds", type=float, default=70.0, help="it stops after these")
    parser.add_argument("--processes", type=int, default=0, help="at the same time")
    parser.add_argument("--compiles", type=int, default=1, help="0: without torch.compile")
    parser.add_argument("--kernels", type=int, default=1, help="0: without times of kernels")
    options = parser.parse_args()
    options.processes = options.processes or min(12, os.cpu_count() or 1)
    options.folder = options.folder.resolve()
    if options.emit:
        emit_all(options.emit, options.folder)
        return
    folders = [options.folder / name.replace("/", "_") for name in PROBLEMS]
    folders = [it for it in folders if (it / "facts.json").exists()]
    if options.build:
        with ThreadPoolExecutor(options.processes) as pool:
            print(*pool.map(build_library, folders), sep="\n")
        return
    print(json.dumps(summary(run_all(folders, options)), indent=1))


if __name__ == "__main__":
    main()
