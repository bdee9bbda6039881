"""How long a newcomer's first steps take: the quickstart's commands, in a clone of this checkout.

    python benchmarks/first_steps.py --output benchmarks/results/first_steps.json
    python benchmarks/first_steps.py --command "python3 -m kernelwright" --output FILE

Each step is timed by the wall clock, one after the other, with empty folders for what is kept from
run to run. The first step clones and runs `make demo`, which installs; where nothing can be
installed, `--command` says how to start kernelwright, and the examples are optimised by it. The
module is the one that the page shows.
"""

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from nothing_kept import nothing_kept
from provenance import provenance

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "quickstart.md"
_SHOWN = 4
"""Last lines of what a step prints, or of its progress if it prints nothing, that are recorded."""


def main() -> None:
    """Run all and write one JSON file, after every step."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--command", default="", help="instead of what make demo installs")
    options = parser.parse_args()
    report: dict[str, Any] = {"provenance": provenance(), "cores": os.cpu_count(), "steps": []}
    if options.command and options.output.exists():
        before = json.loads(options.output.read_text())["steps"]
        report["steps"] = [it for it in before if it["step"].startswith("optimize ")]
    there = {it["step"] for it in report["steps"]}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = os.environ | nothing_kept(folder)
        for step, command, place in _steps(folder, shlex.split(options.command)):
            if step in there:
                continue
            report["steps"].append(_run(step, command, place, environment))
            print(json.dumps(report["steps"][-1]), flush=True)
            options.output.write_text(json.dumps(report, indent=1) + "\n")


def _steps(folder: Path, program: list[str]) -> Iterator[tuple[str, Sequence[str], Path]]:
    """Names, commands and folders; what a step needs is there when its turn comes."""
    if program:
        for path in sorted((ROOT / "examples").glob("*.py")):
            if not path.stem.endswith("_new"):
                words = ("optimize", str(path), "-o", f"{path.stem}_new.py")
                yield f"optimize {path.name}", (*program, *words), folder
    else:
        clone = folder / "kernelwright"
        yield "git clone", ("git", "clone", "-q", str(ROOT), str(clone)), folder
        yield "make demo", ("make", "demo", f"PYTHON={sys.executable}"), clone
        program = [str(clone / ".venv" / "bin" / "kernelwright")]
    (folder / "model.py").write_text(_module())
    for line in _commands():
        yield line, (*program, *line.split()[1:]), folder


def _module() -> str:
    """The problem file that the page shows first."""
    found = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None, "the page shows no module"
    return found[1]


def _commands() -> list[str]:
    """The page's commands about that file, and `doctor`."""
    found = re.search(r"```sh\n(kernelwright .*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None, "the page shows no commands"
    lines = [line.partition("#")[0].strip() for line in found[1].splitlines()]
    return [line for line in lines if "model.py" in line or line.endswith("doctor")]


def _run(
    name: str, command: Sequence[str], folder: Path, environment: dict[str, str]
) -> dict[str, Any]:
    began = time.perf_counter()
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    seconds = round(time.perf_counter() - began, 1)
    lines = (done.stdout.strip() or done.stderr.strip()).splitlines()
    shown = [re.sub(r"/\S*/", "", line) for line in lines[-_SHOWN:]]
    return {"step": name, "seconds": seconds, "code": done.returncode, "output": shown}


if __name__ == "__main__":
    main()
