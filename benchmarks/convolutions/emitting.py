"""Problems that have convolutions as files: what each becomes, its modelled time and its floor."""

import json
import math
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

_RECORDED = Path(__file__).resolve().parents[1] / "results" / "conv_problems_h200.json"
OTHER_BANDWIDTH = 3.3e12
"""Bytes a second at which kernels that are no convolutions are counted in the modelled time."""


def emit_all(folders: list[Path], target: Path, processes: int) -> None:
    """Every problem of the folders with a convolution, in `target`, and what it becomes."""
    paths = [path for folder in folders for path in sorted(folder.glob("*.py"))]
    having = [path for path in paths if "nn.Conv" in path.read_text()]
    with ProcessPoolExecutor(processes) as pool:
        for line in pool.map(emit_one, having, [target] * len(having)):
            print(line, flush=True)


def informative_first(folders: list[Path]) -> list[Path]:
    """The folders whose modelled time differs most from what was last recorded, before others."""
    records = json.loads(_RECORDED.read_text())["records"]
    recorded = {it["problem"]: it.get("ours_ms") for it in records}

    def surprise(folder: Path) -> float:
        facts = json.loads((folder / "facts.json").read_text())
        before = recorded.get(folder.name)
        if not facts["convolutions"] or before is None:
            # Never ours before; or still the library's, of which nothing new is to be seen.
            return 1.0 if facts["convolutions"] else -1.0
        return abs(math.log(before / facts["modelled_ms"]))

    return sorted(folders, key=surprise, reverse=True)


def emit_one(path: Path, target: Path) -> str:
    """What a problem becomes, in a folder of `target`; a line about it."""
    from kernelwright.compiling import compile_problem, write_candidate
    from kernelwright.machine import H200
    from kernelwright.problem import load_problem

    number = path.stem.partition("_")[0]
    name = f"{path.parent.name}_{number if number.isdigit() else path.stem}"
    folder = target / name
    try:
        compiled = compile_problem(load_problem(path), H200)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "problem.py").write_text(path.read_text())
        candidate = write_candidate(compiled, folder / "emitted.py")
        (folder / "kernels.cu").write_text(candidate.cuda_source)
        facts = _facts(compiled)
        (folder / "facts.json").write_text(json.dumps(facts))
    except Exception as error:
        return f"{name}: {error!r}"[:500]
    return f"{name}: {facts['modelled_ms']:.3f} ms modelled, floor {facts['floor_ms']:.3f} ms"


def _facts(compiled: Any) -> dict[str, Any]:
    """What the plan of a problem says: convolutions of ours, calls left, times."""
    from kernelwright.ir.anchors import Convolution
    from kernelwright.ir.plan import Launch
    from kernelwright.machine import H200
    from kernelwright.schedule.conv_configs import ranked_convolutions
    from kernelwright.schedule.conv_or_library import planes_of
    from kernelwright.schedule.cost import cost_of_kernel
    from kernelwright.schedule.families.conv import sizes_of_kernel

    seconds, convolutions = 0.0, []
    launched = [step.kernel for step in compiled.plan.steps if isinstance(step, Launch)]
    for kernel in launched:
        if kernel.family == "conv":
            planes = planes_of(kernel.anchored(Convolution).rounding)
            ranked = ranked_convolutions(sizes_of_kernel(kernel), planes, H200)
            seconds += ranked[0][0] if ranked else 0.0
            convolutions.append(f"{kernel.name}: {kernel.config}")
        else:
            seconds += cost_of_kernel(kernel).bytes / OTHER_BANDWIDTH
    floor = compiled.floor
    return {
        "convolutions": convolutions,
        "left": [f"{it.name}: {it.why}" for it in compiled.plan.left_to_pytorch],
        # Without the library's calls.
        "modelled_ms": seconds * 1e3,
        "floor_ms": H200.floor_seconds(floor.bytes, floor.flops, floor.arithmetic) * 1e3,
    }
