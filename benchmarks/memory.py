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
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from kernelwright.ir.plan import Launch, Reinterpret, Room, Take
from kernelwright.ir.program import Part, Program, Segment, part_reads, types_of
from kernelwright.ir.types import TensorType
from kernelwright.machine import H200
from kernelwright.pipeline import compile_problem
from kernelwright.problem import load_problem
from kernelwright.problem.execution import execute
from kernelwright.program import arena_bytes, program_of


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
    with torch.device("meta"), torch.no_grad():
        module = space.Model(*space.get_init_inputs()).eval()
        inputs = tree_map_only(Tensor, lambda it: it.to("meta"), tuple(space.get_inputs()))
        with Allocations() as seen:
            seen.know([*module.parameters(), *module.buffers(), *tree_leaves(inputs)])
            module(*inputs)
    gc.collect()
    return seen.peak


def our_peak(program: Program) -> int:
    """Bytes that the program allocates at the captured sizes."""
    last = _last_readers(program)
    sizes: dict[str, int] = {}
    alive: dict[str, int] = {}
    peak = 0
    for at, part in enumerate(program.parts):
        arena = arena_bytes(part) if isinstance(part, Segment) else 0
        for name, size in _new(program, part):
            if name not in sizes and name not in program.in_place:
                sizes[name] = alive[name] = size
        peak = max(peak, sum(alive.values()) + arena)
        for name in [it for it in alive if last.get(it, -1) <= at]:
            del alive[name]
    return peak


def _last_readers(program: Program) -> dict[str, int]:
    """The last part that reads each value or a view of it."""
    roots: dict[str, str] = {}
    last: dict[str, int] = {}
    for at, part in enumerate(program.parts):
        within = part.within if isinstance(part, Room) else None
        source = part.input if isinstance(part, Reinterpret | Take) else within and within.whole
        if source is not None:
            roots[part.result] = roots.get(source, source)
        for name in part_reads(part):
            last[roots.get(name, name)] = at
    kept = [*program.plan.graph.results, *(it.value for it in program.plan.graph.updates)]
    for name in kept:
        last[roots.get(name, name)] = len(program.parts)
    return last


def _new(program: Program, part: Part) -> list[tuple[str, int]]:
    """Values that get memory of their own at a part, with their bytes."""
    match part:
        case Segment(results=results):
            types = types_of(part)
            return [(name, types[name].bytes_hint) for name in results]
        case Launch(results=results, kernel=kernel):
            return [(n, it.bytes_hint) for n, it in zip(results, kernel.outputs, strict=True)]
        case Room(result=result, type=kind, within=None):
            return [(result, kind.bytes_hint)]
        case Room() | Reinterpret() | Take():
            return []
    kind = program.plan.graph[part.result].type
    parts = kind if isinstance(kind, tuple) else (kind,)
    return [(part.result, sum(it.bytes_hint for it in parts if isinstance(it, TensorType)))]


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
        ours = our_peak(program)
    except Exception as error:  # The next problem goes on; the row says what happened.
        return {"error": f"{type(error).__name__}: {error}"[:300]}
    return {"eager": eager, "ours": ours, "ratio": round(ours / max(1, eager), 3)}


if __name__ == "__main__":
    main()
