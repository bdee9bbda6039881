"""Times KernelBench's recurrent problems: ours beside eager PyTorch and torch.compile.

    python benchmarks/recurrent/problems.py --emit KERNELBENCH/level3 --folder FILES
    python benchmarks/recurrent/problems.py --folder FILES --seconds 200 --output FILE.json

The first call needs no GPU: it writes problems 33 to 42 and what they become. The second one needs
nvcc, a GPU and torch, and no kernelwright. Each file is timed beside eager PyTorch, and so is
torch.compile, in processes of their own that compile side by side and use the card in turns.
Besides, 100,000 launches of one stack beside a busy stream must give the same bits. A line for
each, and the journal beside the output, are written when it is done; at the end of the time what
there is stays. A second run with the same journal goes on where it stopped.
"""

import argparse
import json
import multiprocessing
import os
import sys
import time
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from provenance import provenance

NUMBERS = range(33, 43)
ENDURANCE = "endurance"
COMPILED = "compiled"
"""The way of torch.compile."""


def emit_all(problems: Path, folder: Path) -> None:
    """What each problem becomes."""
    from kernelwright.compiling import compile_problem, write_candidate
    from kernelwright.machine import H200
    from kernelwright.problem import load_problem

    for number in NUMBERS:
        (path,) = problems.glob(f"{number}_*.py")
        target = folder / str(number)
        target.mkdir(parents=True, exist_ok=True)
        (target / "problem.py").write_text(path.read_text())
        compiled = compile_problem(load_problem(path), H200)
        write_candidate(compiled, target / "ours.py")
        families = [kernel.family for kernel in compiled.plan.kernels]
        left = [f"{it.name}: {it.why}" for it in compiled.plan.left_to_pytorch]
        print(f"{number}: {families}, left {left}"[:300], flush=True)


def tasks_of(folder: Path) -> list[tuple[str, str]]:
    """Problem and way, those that tell most first."""

    def of_files(way: str) -> list[tuple[str, str]]:
        return [(str(n), way) for n in NUMBERS if (folder / str(n) / f"{way}.py").exists()]

    # torch.compile unrolls the loop of 34 for minutes: it comes last.
    compiled = [(str(n), COMPILED) for n in sorted(NUMBERS, key=lambda n: n == 34)]
    return [
        *of_files("ours"),
        (ENDURANCE, "ours"),
        *compiled,
    ]


def run_all(options: argparse.Namespace) -> None:
    """Every task in a process; its record is kept when it ends, or the time does."""
    journal = options.output.with_suffix(".jsonl")
    lines = journal.read_text().splitlines() if journal.exists() else []
    records = [json.loads(line) for line in lines]
    done = {(it["problem"], it["way"]) for it in records if it.get("is_whole")}
    waiting = [task for task in tasks_of(options.folder) if task not in done]
    if options.skip_compiled:
        waiting = [task for task in waiting if task[1] != COMPILED]
    context: BaseContext = multiprocessing.get_context("spawn")
    end = time.monotonic() + options.seconds
    running: dict[tuple[str, str], BaseProcess] = {}

    def kept(task: tuple[str, str]) -> None:
        path = options.folder / f"record_{'_'.join(task)}.json"
        record = {"problem": task[0], "way": task[1], "failed": "its process ended"}
        if path.exists():
            record = json.loads(path.read_text())
            path.unlink()
        with journal.open("a") as file:
            file.write(json.dumps(record) + "\n")
        records.append(record)
        print(json.dumps(record)[:400], flush=True)
        _write(records, options.output)

    while (waiting or running) and time.monotonic() < end:
        while waiting and len(running) < options.processes:
            task = waiting.pop(0)
            process = context.Process(target=_child, args=(options.folder, *task, options.launches))
            process.start()
            running[task] = process
        for task, process in list(running.items()):
            if not process.is_alive():
                process.join()
                del running[task]
                kept(task)
        time.sleep(0.1)
    for task, process in running.items():
        process.kill()
        process.join()
        kept(task)
    for line in summary(records):
        print(line)


def summary(records: list[dict[str, Any]]) -> list[str]:
    """A line for each problem that was timed beside eager."""
    found = {(it["problem"], it["way"]): it for it in records}
    lines = []
    for number in map(str, NUMBERS):
        ours = found.get((number, "ours"), {})
        if "eager_ms" not in ours:
            continue
        compiled = found.get((number, COMPILED), {}).get("compiled_ms", float("nan"))
        lines.append(
            f"{number}: ours {ours['ms']:.3f} ms, eager {ours['eager_ms']:.3f}, "
            f"compiled {compiled:.3f}; {ours['eager_ms'] / ours['ms']:.2f}x eager; "
            f"errors {ours['errors']}"
        )
    return lines


def _write(records: list[dict[str, Any]], output: Path) -> None:
    content = {"provenance": provenance(), "summary": summary(records), "records": records}
    part = output.with_suffix(".part")
    part.write_text(json.dumps(content, indent=1) + "\n")
    part.replace(output)


def _child(folder: Path, problem: str, way: str, launches: int) -> None:
    from measuring_problems import endure, measure, measure_compiled

    os.environ["TORCH_EXTENSIONS_DIR"] = str(folder / "built" / f"{problem}_{way}")
    record: dict[str, Any] = {"problem": problem, "way": way}

    def keep(**found: Any) -> None:
        record.update(found)
        (folder / f"record_{problem}_{way}.json").write_text(json.dumps(record))

    try:
        if problem == ENDURANCE:
            endure(folder, launches, keep)
        elif way == COMPILED:
            measure_compiled(folder, problem, keep)
        else:
            measure(folder, problem, f"{way}.py", keep)
        keep(is_whole=True)
    except Exception as error:
        keep(failed=repr(error)[:1500])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--emit", type=Path, help="folder of the problems")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--output", type=Path, default=Path("recurrent_problems.json"))
    parser.add_argument("--seconds", type=float, default=200.0, help="it stops after these")
    parser.add_argument("--processes", type=int, default=0, help="at the same time")
    parser.add_argument("--skip-compiled", action="store_true", help="no torch.compile")
    parser.add_argument("--launches", type=int, default=100_000)
    options = parser.parse_args()
    options.processes = options.processes or min(12, os.cpu_count() or 1)
    options.folder = options.folder.resolve()
    if options.emit:
        emit_all(options.emit, options.folder)
    else:
        run_all(options)


if __name__ == "__main__":
    main()
