"""A made-up run: as large as the whole of KernelBench, and no number in it was ever measured."""

import json
import math
import random
from pathlib import Path
from typing import Any

from kernelwright.bench.measurement import Series, Speedup
from kernelwright.bench.statistics import Interval
from kernelwright.machine import H200
from kernelwright.report.row import Ending, LeftCall, Row, Trouble
from kernelwright.suite.journal import VERSION, Event, Journal
from kernelwright.suite.run import PROBLEMS
from kernelwright.verify.records import to_plain

BASELINES = ("eager", "torch.compile")
LEVELS = {"level1": 100, "level2": 100, "level3": 50}
OPERATORS = ("linear", "relu", "div", "softmax", "conv2d", "max_pool2d", "mul", "add", "layer_norm")
FAMILIES = {
    "linear": "gemm",
    "conv2d": "conv",
    "max_pool2d": "pooling",
    "softmax": "rows",
    "layer_norm": "rows",
    "relu": "pointwise",
    "div": "pointwise",
    "mul": "pointwise",
    "add": "pointwise",
}
LIBRARY_KERNEL = (
    "sm90_xmma_fprop_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize64x192x32_warpgroupsize"
)
FACTS = {
    "date": "2000-01-01T00:00:00+00:00",
    "command": "a made-up run: nothing was measured",
    "version": "0",
    "commit": "synthetic",
    "torch": "0.0",
    "cuda": "0.0",
    "driver": "0",
    "cards": ["NVIDIA H200"] * 4,
    "gpus": 4,
}


def write_run(folder: Path, *, seed: int = 0, levels: dict[str, int] | None = None) -> Path:
    """A run of invented problems in `folder`."""
    dice = random.Random(seed)
    settings = {"effort": "quick", "target": "cuda"}
    with Journal(folder) as journal:
        facts = {**FACTS, "date": f"2000-01-0{1 + seed % 9}T00:00:00+00:00"}
        journal.append(Event.RUN, version=VERSION, settings=settings, provenance=facts)
        for level, count in (levels or LEVELS).items():
            for number in range(1, count + 1):
                names = random.Random(f"{level} {number}").choices(OPERATORS, k=3)
                row = make_row(dice, f"{level}/{number}_{'_'.join(names)}", level, tuple(names))
                journal.append(Event.DONE, row=row.to_json())
                place = folder / PROBLEMS / f"{row.problem}.json"
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(json.dumps(make_details(dice, row, names)))
    return folder


def make_row(dice: random.Random, problem: str, level: str, names: tuple[str, ...]) -> Row:
    """One problem: verified nine times in ten."""
    if dice.random() < 0.1:
        return _failed(dice, problem, level)
    size = int(10 ** dice.uniform(5, 9.5))
    flops = int(size * 10 ** dice.uniform(-1, 2.5)) if dice.random() < 0.9 else 0
    floor_ms = H200.floor_seconds(size, flops, "fp16x3") * 1e3
    device_ms = 0.004 + floor_ms / dice.uniform(0.3, 0.98)
    factors = [math.exp(dice.gauss(mean, 0.5)) for mean in (0.9, 0.45)]
    best = BASELINES[factors.index(min(factors))]
    return Row(
        problem=problem,
        level=level,
        key=problem,
        ending=Ending.JUDGED,
        status="verified, faster" if min(factors) > 1.02 else "verified, not faster",
        verified=True,
        summary="no less accurate than the reference on 31 sets of inputs",
        target="cuda",
        card="NVIDIA H200",
        device_ms=device_ms,
        host_ms=device_ms + 0.02,
        baselines=tuple(
            Series(name=name, device_ms=device_ms * it, host_ms=device_ms * it + 0.03, samples=100)
            for name, it in zip(BASELINES, factors, strict=True)
        ),
        speedups=tuple(
            Speedup(baseline=name, device=_interval(it), host=_interval(it * 0.95))
            for name, it in zip(BASELINES, factors, strict=True)
        ),
        best_baseline=best,
        bytes=size,
        flops=flops,
        arithmetic="fp16x3",
        floor_ms=floor_ms,
        share_of_floor=floor_ms / device_ms,
        share_of_copy=floor_ms / device_ms,
        algebraic=("diagonal-product",) if dice.random() < 0.06 else (),
        left_to_pytorch=(LeftCall(operator="aten.convolution", why="cuDNN is faster at it"),)
        if dice.random() < 0.2
        else (),
        kernels=tuple(f"{name}_kernel" for name in names),
        seconds={"capture": 2.0, "tune": 8.5, "build": 9.0, "verify": 6.0, "time": 4.0},
    )


def _interval(value: float) -> Interval:
    return Interval(value=value, low=value * 0.97, high=value * 1.03)


def _failed(dice: random.Random, problem: str, level: str) -> Row:
    ending = dice.choice([Ending.TIMED_OUT, Ending.CRASHED, Ending.REFUSED])
    message = "the process was ended by SIGSEGV during 'verify' <script>alert(1)</script>"
    return Row(
        problem=problem,
        level=level,
        key=problem,
        ending=ending,
        status=ending.value,
        verified=False,
        summary=message,
        trouble=Trouble(kind="crash", message=message, location="x.py:12", next_step="Look."),
        target="cuda",
    )


def make_details(dice: random.Random, row: Row, names: list[str]) -> dict[str, Any]:
    """What a suite keeps beside the row, as long as it is in earnest."""
    if not row.verified:
        return {"row": row.to_json(), "source": "class Model:\n    pass\n", "log": "killed\n" * 20}
    cases = [f"seed={seed} distribution=own" for seed in range(30)]
    checks = [_check(name, case) for case in cases for name in ("form", "aliasing", "repeat")]
    for case in cases:
        reference = 10 ** dice.uniform(-8, -6)
        own = reference * math.exp(dice.gauss(-0.3, 0.3))
        errors = [{"name": "output", "candidate": own, "reference": reference}]
        checks.append({**_check("values", case), "errors": errors})
    nodes = [name for name in names for _ in range(dice.randint(1, 20))]
    kernels = [
        {
            "name": f"{name}_kernel",
            "family": FAMILIES[name],
            "operators": [name],
            "config": "256 threads, 4 accesses of 4 elements each, 2 stages",
            "bytes": row.bytes,
            "flops": row.flops,
            "floor_seconds": (row.floor_ms or 0.0) / 1e3,
            "launches": 1,
            "launches_floor_seconds": (row.floor_ms or 0.0) / 1e3,
        }
        for name in dict.fromkeys(names)
    ]
    return {
        "row": row.to_json(),
        "source": f"# {row.problem}\nclass Model:\n    def forward(self, x):\n        return x\n",
        "verdict": {"checks": checks, "ran": make_ran(dice, row, [it["name"] for it in kernels])},
        "plan": {
            "kernels": kernels,
            "left_to_pytorch": [to_plain(call) for call in row.left_to_pytorch],
            "rewrites": [{"rule": rule, "algebraic": True} for rule in row.algebraic],
        },
        "graphs": {
            "captured": "".join(f"  {name}{i}: f32[8, 8]\n" for i, name in enumerate(nodes)),
            "planned": "plan\n",
        },
        "before": [
            {"name": f"{name}{i}", "operators": [name], "source": f"model.py:{i}"}
            for i, name in enumerate(nodes)
        ],
        "machine": to_plain(H200),
        "cuda": _cuda(dice),
    }


def make_ran(dice: random.Random, row: Row, names: list[str]) -> dict[str, Any]:
    """The watched call: parts of kernels, and a library's where calls are left to it."""
    ran = [(name, "its own") for name in names]
    ran += [(f"{name.removesuffix('_kernel')}_fold_kernel", "its own") for name in names[:1]]
    ran += [(LIBRARY_KERNEL, "cuDNN") for _ in row.left_to_pytorch]
    weights = [dice.uniform(0.1, 1.0) for _ in ran]
    scale = (row.device_ms or 0.0) / sum(weights) * dice.choice([0.95, 0.95, 3.0])
    kernels = [
        {"name": name, "maker": maker, "calls": 1, "milliseconds": weight * scale}
        for (name, maker), weight in zip(ran, weights, strict=True)
    ]
    return {"kernels": kernels, "note": ""}


def _check(name: str, case: str) -> dict[str, Any]:
    evidence = "output torch.float32[64, 64], as the reference"
    return {"name": name, "outcome": "passed", "evidence": evidence, "case": case, "errors": []}


def _cuda(dice: random.Random) -> str:
    """As long as a kernel with its helpers, and about as hard to compress."""
    lines = ["// Made up: no kernel of anybody's.", '#include <cuda_runtime.h> // "string"']
    for _ in range(900):
        left, right, number = (*dice.choices(OPERATORS, k=2), dice.randint(0, 9999))
        lines.append(f"  const float {left}_{number} = __fmaf_rn({right}[{number}], 2.0f, x);")
    return "\n".join(lines) + "\n"
