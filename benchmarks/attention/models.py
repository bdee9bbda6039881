"""Times transformers in float32 and bfloat16: ours beside eager PyTorch, torch.compile, the floor.

    python benchmarks/attention/models.py --emit --folder FILES
    python benchmarks/attention/models.py --folder FILES --build
    python benchmarks/attention/models.py --folder FILES --seconds 58 --output FILE.json

The first call needs no GPU: it writes each model of `models` in both types as a problem, and what
it becomes. The second one needs nvcc; without it, the third one compiles, too. That one needs a GPU
and torch, and no kernelwright. Journals and processes are those of the benchmark of convolutions.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "convolutions"))
from emitted_files import build_library
from emitting import emit_one
from problems import run_all, summary

MODELS = Path(__file__).resolve().with_suffix("")
DTYPES = ("float32", "bfloat16")
BATCHES = (1, 16)
"""Texts of a decode step, which is timed in bfloat16 alone."""
_LINE = "DTYPE = torch.float32"
"""The line of each model that says its type."""
_BATCH = "BATCH = 1"
"""The line of a decode step that says how many texts it has."""


def emit_all(folder: Path) -> None:
    """What each model becomes in each type."""
    for dtype in DTYPES:
        sources = folder / "sources" / dtype
        sources.mkdir(parents=True, exist_ok=True)
        for path in sorted(MODELS.glob("*.py")):
            text = path.read_text()
            assert text.count(_LINE) == 1, f"{path.name} has not one line that says its type"
            text = text.replace(_LINE, f"DTYPE = torch.{dtype}")
            for name, variant in _variants(path.stem, text, dtype):
                source = sources / f"{name}.py"
                source.write_text(variant)
                print(emit_one(source, folder), flush=True)


def _variants(stem: str, text: str, dtype: str) -> Iterator[tuple[str, str]]:
    """A model by itself, or a decode step for each batch."""
    if _BATCH not in text.splitlines():
        yield stem, text
    elif dtype == "bfloat16":
        for batch in BATCHES:
            yield f"{stem}{batch}", text.replace(_BATCH, f"BATCH = {batch}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--emit", action="store_true", help="write the files alone")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--build", action="store_true", help="compile alone")
    parser.add_argument("--output", type=Path, default=Path("attention_models.json"))
    parser.add_argument("--seconds", type=float, default=58.0, help="it stops after these")
    parser.add_argument("--processes", type=int, default=0, help="at the same time")
    parser.add_argument("--compiles", type=int, default=1, help="0: without torch.compile")
    parser.add_argument("--kernels", type=int, default=1, help="0: without times of kernels")
    options = parser.parse_args()
    options.processes = options.processes or min(12, os.cpu_count() or 1)
    options.folder = options.folder.resolve()
    if options.emit:
        emit_all(options.folder)
        return
    folders = sorted(path.parent for path in options.folder.glob("*/facts.json"))
    if options.build:
        with ThreadPoolExecutor(options.processes) as pool:
            print(*pool.map(build_library, folders), sep="\n")
        return
    print(json.dumps(summary(run_all(folders, options)), indent=1))


if __name__ == "__main__":
    main()
