"""Host time of a call: on the CPU that of Python alone; on a card ours, eager and torch.compile.

    python benchmarks/host.py --output benchmarks/results/host_python.json
    python benchmarks/host.py --card --seconds 140 --output benchmarks/results/host_h200.json \\
        --problems KernelBench/level3 --journal host.jsonl

Without a card the emitted forward runs on CPU tensors, its launchers replaced by one that does
nothing: the time in which Python checks arguments, allocates, packs words and calls. Microseconds
of wall time, the least of many calls. On a card: see host_card.py.
"""

import argparse
import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import host_card
import torch
from provenance import provenance
from torch import Tensor, nn

from kernelwright.capture import capture_module
from kernelwright.codegen import candidate, emit_module
from kernelwright.ir.plan import Launch, Plan
from kernelwright.ir.program import Program
from kernelwright.machine import H200
from kernelwright.program import program_of
from kernelwright.program.updates import in_place, views_of
from kernelwright.schedule import Library, plan_graph

_CALLS = 400


class Perceptron(nn.Module):
    """Linear layers with batch norm and ReLU."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(layers))
        self.norms = nn.ModuleList(nn.BatchNorm1d(16) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = torch.relu(norm(layer(x)))
        return x


class Attention(nn.Module):
    """Blocks of attention written by hand, with a gated feed-forward part."""

    def __init__(self, blocks: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(16) for _ in range(blocks))
        self.mixed = nn.ModuleList(nn.Linear(16, 48) for _ in range(blocks))
        self.up = nn.ModuleList(nn.Linear(16, 64) for _ in range(blocks))
        self.down = nn.ModuleList(nn.Linear(32, 16) for _ in range(blocks))

    def forward(self, x: Tensor) -> Tensor:
        parts = zip(self.norms, self.mixed, self.up, self.down, strict=True)
        for norm, mixed, up, down in parts:
            q, k, v = mixed(norm(x)).chunk(3, -1)
            x = x + torch.softmax(q @ k.transpose(-1, -2) / 4, -1) @ v
            gate, value = up(x).chunk(2, -1)
            x = x + down(torch.nn.functional.silu(gate) * value)
        return x


_CASES: dict[str, tuple[nn.Module, Tensor]] = {
    "perceptron, 1 layer": (Perceptron(1), torch.rand(6, 16)),
    "perceptron, 8 layers": (Perceptron(8), torch.rand(6, 16)),
    "perceptron, 50 layers": (Perceptron(50), torch.rand(6, 16)),
    "attention, 4 blocks": (Attention(4), torch.rand(2, 6, 16)),
    "attention, 24 blocks": (Attention(24), torch.rand(2, 6, 16)),
}


def main() -> None:
    """Measure all cases and write one JSON file."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--card", action="store_true", help="measure calls on the card")
    parser.add_argument("--seconds", type=float, default=140.0, help="begin no case after so many")
    parser.add_argument("--problems", type=Path, help="a folder of problems, measured after ours")
    parser.add_argument("--journal", type=Path, default=Path("host.jsonl"), help="continued")
    arguments = parser.parse_args()
    if arguments.card:
        host_card.run(arguments, _CASES)
        return
    torch.set_num_threads(1)
    rows = []
    for name, (module, x) in _CASES.items():
        rows.append({"case": name, **_measured(module.eval(), x)})
        print(rows[-1], flush=True)
    report = {"provenance": provenance(), "calls": _CALLS, "rows": rows}
    arguments.output.write_text(json.dumps(report, indent=1) + "\n")


def _measured(module: nn.Module, x: Tensor) -> dict[str, Any]:
    plan = plan_graph(capture_module(module, (x,)), H200, Library.NEVER).plan
    return {
        "launches": sum(isinstance(step, Launch) for step in plan.steps),
        "segments": len(program_of(plan).segments),
        "microseconds, one call a launch": _microseconds(plan, module, x, _one_by_one),
        "microseconds, segments": _microseconds(plan, module, x, program_of),
    }


def _one_by_one(plan: Plan) -> Program:
    """The program in which every launch is a call of its own."""
    written = in_place(plan)
    dropped = views_of(plan, written)
    parts = tuple(it for it in plan.steps if it.result not in dropped)
    return Program(plan=plan, parts=parts, in_place=written)


def _microseconds(plan: Plan, module: nn.Module, x: Tensor, programmed: Any) -> float:
    with mock.patch.object(candidate, "program_of", programmed):
        text = emit_module("Timed", "self, x", plan).source
    space: dict[str, Any] = {"__name__": "timed"}
    exec(compile(text.replace("value.is_cuda", "value.is_cpu"), "timed", "exec"), space)
    space["_library"] = lambda: _Library()
    stream = SimpleNamespace(cuda_stream=0)
    least = float("inf")
    with torch.no_grad(), mock.patch.object(torch.cuda, "current_stream", lambda device: stream):
        for _ in range(_CALLS):
            start = time.perf_counter_ns()
            space["ModelNew"].forward(module, x)
            least = min(least, time.perf_counter_ns() - start)
    return round(least / 1e3, 1)


class _Library:
    """Entry points that do nothing: a launch succeeds, a workspace has a kilobyte."""

    def __getattr__(self, name: str) -> Any:
        return (lambda words: 1024) if name.startswith("workspace_") else (lambda words: 0)


if __name__ == "__main__":
    main()
