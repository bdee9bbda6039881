"""Problems as files, what each becomes, and its floor; their libraries. Needs no card."""

import json
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from emitted_files import build_library

from odd_parts.cases import Problem, problems


def emit_all(folder: Path, processes: int) -> None:
    """Every problem that the folder does not have yet."""
    wanted = [it for it in problems() if not (folder / it.name / "facts.json").exists()]
    with ProcessPoolExecutor(processes) as pool:
        for line in pool.map(_emit_one, wanted, [folder] * len(wanted)):
            print(line, flush=True)


def _emit_one(problem: Problem, target: Path) -> str:
    from kernelwright.compiling import compile_problem, write_candidate
    from kernelwright.machine import H200
    from kernelwright.problem import load_problem

    folder = target / problem.name
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "problem.py"
    path.write_text(problem.text)
    try:
        compiled = compile_problem(load_problem(path), H200)
        candidate = write_candidate(compiled, folder / "emitted.py")
        (folder / "kernels.cu").write_text(candidate.cuda_source)
        floor = compiled.floor
        facts = {
            "left": [f"{it.name}: {it.why}" for it in compiled.plan.left_to_pytorch],
            "configs": [f"{it.name}: {it.config}" for it in compiled.plan.kernels],
            "floor_ms": H200.floor_seconds(floor.bytes, floor.flops, floor.arithmetic) * 1e3,
        }
        (folder / "facts.json").write_text(json.dumps(facts))
    except Exception as error:
        return f"{problem.name}: {error!r}"[:500]
    return f"{problem.name}: floor {facts['floor_ms']:.3f} ms, left {facts['left']}"[:200]


def build_all(folder: Path, processes: int) -> None:
    """The libraries that are not there yet, those of little text first."""
    texts = [it.name for it in problems() if (folder / it.name / "kernels.cu").exists()]
    texts.sort(key=lambda name: (folder / name / "kernels.cu").stat().st_size)
    with ProcessPoolExecutor(processes) as pool:
        for library in pool.map(build_library, [folder / name for name in texts]):
            print(library, flush=True)
