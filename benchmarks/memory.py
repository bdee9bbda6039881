"""Peak memory of a call, ours against eager's: planned on the CPU for a folder of problems.

    python benchmarks/memory.py KernelBench/level1 KernelBench/level3 --seconds 3000 \\
        --journal memory.jsonl --output benchmarks/results/memory_planned.json

Eager's peak is that of its forward on tensors of the meta device: bytes of storages that are alive
at a time, beyond arguments, parameters and buffers. Ours is that of the program: results, arenas
of segments at the captured sizes, and what library calls give, each until its last reader. Neither
has workspaces of kernels and of libraries, nor the rounding of PyTorch's allocator. On a card
benchmarks/host.py records the peaks that the allocator counts.
"""

import argparse
import gc
import json
import time
import weakref
from pathlib import Path
from typing import Any

import torch
from provenance import provenance
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from kernelwright.compiling import compile_problem
from kernelwright.machine import H200
from kernelwright.problem import load_problem
from kernelwright.problem.execution import execute
from kernelwright.program import peak_bytes, program_of


class Allocations(TorchDispatchMode):
    """The most bytes of new storages that are alive at a time."""

    def __init__(self) -> None:
        super().__init__()
        self._known: set[int] = set()
        self._alive = 0
        self.peak = 0

    def know(self, tensors: list[Any]) -> None:
        """What is there before is not counted."""
        self._known.update(it.untyped_storage()._cdata for it in tensors if isinstance(it, Tensor))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for value in tree_leaves(result):
            if isinstance(value, Tensor):
                self._add(value.untyped_storage())
        return result

    def _add(self, storage: torch.UntypedStorage) -> None:
        place, size = storage._cdata, storage.nbytes()
        if place in self._known:
            return
        self._known.add(place)
        self._alive += size
        self.peak = max(self.peak, self._alive)
        weakref.finalize(storage, self._free, place, size)

    def _free(self, place: int, size: int) -> None:
        self._known.discard(place)
        self._alive -= size


def eager_peak(path: Path) -> int:
    """Bytes that eager's forward allocates beyond what is there before it."""
    space = execute(load_problem(path)).namespace
    with torch.no_grad():
        module = _on_meta(space).eval()
        inputs = tree_map_only(Tensor, lambda it: it.to("meta"), tuple(space.get_inputs()))
        with Allocations() as seen:
            seen.know([*module.parameters(), *module.buffers(), *tree_leaves(inputs)])
            module(*inputs)
    gc.collect()
    return seen.peak


def _on_meta(space: Any) -> nn.Module:
    try:
        with torch.device("meta"):
            return space.Model(*space.get_init_inputs())
    except RuntimeError:  # The constructor reads values.
        return space.Model(*space.get_init_inputs()).to("meta")


def main() -> None:
    """Plan what the journal does not have; write all of it after each problem."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--seconds", type=float, default=600.0, help="begin none after so many")
    parser.add_argument("--journal", type=Path, default=Path("memory.jsonl"), help="continued")
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    began = time.monotonic()
    lines = options.journal.read_text().splitlines() if options.journal.exists() else []
    rows = {row["problem"]: row for row in map(json.loads, lines)}
    for path in [it for folder in options.folders for it in sorted(folder.glob("*.py"))]:
        name = f"{path.parent.name}/{path.stem}"
        if name in rows or path.stem.startswith("_"):
            continue
        if time.monotonic() - began > options.seconds:
            break
        rows[name] = row = {"problem": name, **_row(path)}
        print(row, flush=True)
        with options.journal.open("a") as file:
            file.write(json.dumps(row) + "\n")
        report = {"provenance": provenance(), "rows": list(rows.values())}
        options.output.write_text(json.dumps(report, indent=1) + "\n")


def _row(path: Path) -> dict[str, Any]:
    try:
        eager = eager_peak(path)
        program = program_of(compile_problem(load_problem(path), H200).plan)
        ours = peak_bytes(program)
    except Exception as error:  # The next problem goes on; the row says what happened.
        return {"error": f"{type(error).__name__}: {error}"[:300]}
    return {"eager": eager, "ours": ours, "ratio": round(ours / max(1, eager), 3)}


if __name__ == "__main__":
    main()
