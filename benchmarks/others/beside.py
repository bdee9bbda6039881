"""What the comparisons with other compilers have in common: eager PyTorch and ours, then the other.

A time is that of twelve calls in a row, by the wall clock, for everybody. Errors are relative to
float64 (root mean square).
"""

import argparse
import copy
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "convolutions"))
import torch
from emitted_files import build_library, load, with_library
from emitting import emit_one
from provenance import provenance
from timing import doubled, rms_error, wall_ms

PROBLEMS = Path(__file__).resolve().with_name("problems")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A problem on the card."""

    name: str
    problem: ModuleType
    module: torch.nn.Module
    inputs: list[torch.Tensor]
    exact: torch.Tensor
    """The result in float64."""


Other = Callable[[Case], Iterator[dict[str, Any]]]
"""What is known of a problem in the other compiler after each step."""


def _measure(folder: Path, other: Other) -> Iterator[dict[str, Any]]:
    problem = load(folder / "problem.py", f"problem_{folder.name}")
    emitted = with_library(folder / "emitted.py", build_library(folder))
    torch.manual_seed(0)
    with torch.device("cuda"), torch.no_grad():
        own, inputs = problem.Model(), problem.get_inputs()
        new = emitted.ModelNew()
        new.load_state_dict(own.state_dict())
        exact = copy.deepcopy(own).double()(*map(doubled, inputs))
        for name, module in (("eager", own), ("ours", new)):
            error = rms_error(module(*inputs), exact)
            yield {name: {"ms": wall_ms(lambda it=module: it(*inputs)), "error": error}}
        case = Case(name=_name(folder), problem=problem, module=own, inputs=inputs, exact=exact)
        yield from other(case)


def _name(folder: Path) -> str:
    return folder.name.removeprefix("problems_")


def _run(
    folders: list[Path], other: Other, versions: Mapping[str, str], seconds: float, output: Path
) -> None:
    """The records of all problems, written after each; what is left when the time is up is not."""
    end = time.monotonic() + seconds
    facts = {**provenance(), **versions}
    records = []
    for folder in folders:
        if time.monotonic() > end:
            break
        record: dict[str, Any] = {"problem": _name(folder)}
        records.append(record)
        try:
            for found in _measure(folder, other):
                record |= found
        except Exception as error:
            record["failed"] = repr(error)[:500]
        torch.cuda.empty_cache()
        print(json.dumps(record), flush=True)
        output.write_text(json.dumps({"provenance": facts, "records": records}, indent=1) + "\n")


def main(
    description: str, other: Other, versions: Callable[[], Mapping[str, str]], output: str
) -> None:
    """Emit, build or time, as the arguments say; `versions` are the other compiler's."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--emit", action="store_true", help="write the files alone")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--build", action="store_true", help="compile alone")
    parser.add_argument("--seconds", type=float, default=90.0, help="it stops after these")
    parser.add_argument("--only", nargs="+", default=[], help="names of problems")
    parser.add_argument("--output", type=Path, default=Path(output))
    options = parser.parse_args()
    if options.emit:
        for path in sorted(PROBLEMS.glob("*.py")):
            print(emit_one(path, options.folder), flush=True)
        return
    folders = sorted(path.parent for path in options.folder.glob("*/facts.json"))
    folders = [it for it in folders if not options.only or _name(it) in options.only]
    if options.build:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            print(*pool.map(build_library, folders), sep="\n")
        return
    _run(folders, other, versions(), options.seconds, options.output)
