"""Problems beside XLA: the same function written in JAX, eager PyTorch, and ours.

    python benchmarks/others/xla.py --emit --folder FILES
    python benchmarks/others/xla.py --folder FILES --build
    python benchmarks/others/xla.py --folder FILES --seconds 90 --output FILE.json

The first call needs no GPU: it writes what each problem of `problems` becomes. The second one needs
nvcc; without it, the third one compiles, too. That one needs a GPU, torch and JAX, and no
kernelwright. A time is that of twelve calls in a row, by the wall clock, for everybody. XLA runs
twice: as it comes, where float32 products may be TF32, and with the highest precision. Errors are
relative to float64 (root mean square).
"""

import argparse
import copy
import json
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
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
PRECISIONS = {"xla": None, "xla_highest": "highest"}
"""Each way that XLA runs, and JAX's name for its precision of products."""


def measure(folder: Path) -> Iterator[dict[str, Any]]:
    """What is known of a problem after each step: times in milliseconds, errors."""
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
    yield from _measure_xla(problem, own, inputs, exact)


def _measure_xla(
    problem: ModuleType, own: torch.nn.Module, inputs: list[torch.Tensor], exact: torch.Tensor
) -> Iterator[dict[str, Any]]:
    import jax

    given = [_shared(it) for it in inputs]
    weights = {name: _shared(it) for name, it in own.state_dict().items()}
    for name, precision in PRECISIONS.items():
        with jax.default_matmul_precision(precision):
            # Weights are arguments, as they are everywhere else: XLA folds nothing into them.
            call = jax.jit(lambda weights, *inputs: problem.xla(weights)(*inputs))
            found = torch.from_dlpack(call(weights, *given))
            ms = wall_ms(lambda it=call: it(weights, *given), lambda it: it.block_until_ready())
            yield {name: {"ms": ms, "error": rms_error(found, exact)}}


def _shared(tensor: torch.Tensor) -> Any:
    """A tensor as an array of JAX, in the same memory."""
    from jax import dlpack

    return dlpack.from_dlpack(tensor.detach().contiguous())


def run(folders: list[Path], seconds: float, output: Path) -> None:
    """The records of all problems, written after each; what is left when the time is up is not."""
    import jax

    end = time.monotonic() + seconds
    facts = provenance() | {"jax": jax.__version__}
    records = []
    for folder in folders:
        if time.monotonic() > end:
            break
        record: dict[str, Any] = {"problem": folder.name.removeprefix("problems_")}
        records.append(record)
        try:
            for found in measure(folder):
                record |= found
        except Exception as error:
            record["failed"] = repr(error)[:500]
        torch.cuda.empty_cache()
        print(json.dumps(record), flush=True)
        output.write_text(json.dumps({"provenance": facts, "records": records}, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--emit", action="store_true", help="write the files alone")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--build", action="store_true", help="compile alone")
    parser.add_argument("--seconds", type=float, default=90.0, help="it stops after these")
    parser.add_argument("--output", type=Path, default=Path("xla.json"))
    options = parser.parse_args()
    if options.emit:
        for path in sorted(PROBLEMS.glob("*.py")):
            print(emit_one(path, options.folder), flush=True)
        return
    folders = sorted(path.parent for path in options.folder.glob("*/facts.json"))
    if options.build:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            print(*pool.map(build_library, folders), sep="\n")
        return
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    run(folders, options.seconds, options.output)


if __name__ == "__main__":
    main()
