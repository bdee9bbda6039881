"""How far processes are apart that run the same code: the median of a call in each of them.

    python benchmarks/same_code.py --processes 10 --seconds 50 --output RESULT.json
    python benchmarks/same_code.py --each 4 --seconds 33 --output RESULT.json   # fewer samples

Each process makes the same module and is timed as a judgement times its contestants: by the timer,
in turns, each stopped while another one runs. Calls of 1 to 30 small kernels are tried, and of
layers with a matrix product; these once more later, in the same processes with new modules and new
memory, to tell what belongs to a process from what belongs to its memory. What was measured is
written after every call, with the reason where one failed; no call begins that the seconds left
would not hold.
"""

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from provenance import provenance

from kernelwright.bench.statistics import median, median_interval
from kernelwright.bench.timing import ContestantLostError, Rounds, TimingPlan
from kernelwright.commands.forking import children
from kernelwright.problem.loading import parse_problem
from kernelwright.toolchain.records import Target
from kernelwright.verify.agreement import Agreement
from kernelwright.verify.cases import Case
from kernelwright.worker.judging.session import ChildSession
from kernelwright.worker.judging.shared_race import Runner, SharedRace
from kernelwright.worker.judging.timed_inputs import NoTimerError
from kernelwright.worker.options import JudgeOptions
from kernelwright.worker.process.child_process import ChildProcess
from kernelwright.worker.process.requests import Role
from kernelwright.worker.timer.words import make_words_folder, words_of

SOURCE = '''"""Layers as of tests/worker/problems/affine.py, and steps of one small kernel each."""

import torch
from torch import nn

ROWS = 33
FEATURES = 48
LAYERS_AND_ONE = 2
STEPS_AND_ONE = 1


class Model(nn.Module):
    def __init__(self, features, layers, steps):
        super().__init__()
        self.linears = nn.ModuleList(nn.Linear(features, features) for _ in range(layers))
        self.scale = nn.Parameter(torch.rand(features))
        self.shift = nn.Parameter(torch.rand(features))
        self.steps = steps

    def forward(self, x):
        for linear in self.linears:
            x = torch.relu(linear(x)) / 2.0
        for _ in range(self.steps):
            x = torch.addcmul(self.shift, x, self.scale)
        return x


def get_inputs():
    return [torch.rand(ROWS, FEATURES)]


def get_init_inputs():
    return [FEATURES, LAYERS_AND_ONE - 1, STEPS_AND_ONE - 1]
'''

_SECONDS = 300.0
"""For one answer."""
_PLAN = TimingPlan(warm_up_seconds=0.2, samples=50, seconds=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What a module is made of."""

    layers: int
    """Linear layers, each with a ReLU and a division."""
    steps: int
    """Kernels of one operation."""

    @property
    def case(self) -> Case:
        """The sizes of the problem that give it."""
        return Case(sizes=(("LAYERS_AND_ONE", self.layers + 1), ("STEPS_AND_ONE", self.steps + 1)))


CALLS = (
    Call(layers=1, steps=0),
    Call(layers=0, steps=1),
    Call(layers=0, steps=30),
    Call(layers=1, steps=0),
    Call(layers=0, steps=10),
    Call(layers=0, steps=3),
)


@contextmanager
def processes(count: int) -> Iterator[tuple[ChildSession, list[ChildProcess]]]:
    """A timer, and so many processes that know the problem; the first computes what is expected."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (path := folder / "problem.py").write_text(SOURCE)
        problem = parse_problem(path, SOURCE)
        exchange = folder / "session"
        exchange.mkdir()
        stack.enter_context(children())
        session = ChildSession(problem, Target.CUDA, JudgeOptions(baselines=()), exchange)
        stack.enter_context(session)
        everybody = [session.reference, *(session.child(Role.REFERENCE) for _ in range(count - 1))]
        for child in (session.timer, *everybody[1:]):
            child.launch()
        for child in (session.timer, *everybody):
            child.ready()
        yield session, everybody


def timed(
    session: ChildSession, everybody: Sequence[ChildProcess], call: Call, plan: TimingPlan
) -> list[Rounds]:
    """The samples of every process, in their order; ContestantLostError if one of them fails."""
    race = SharedRace(session.timer, session.reference, Agreement(), call.case, _SECONDS)
    folder = make_words_folder(Path(tempfile.gettempdir()))
    runners = [
        Runner(child=child, words=words_of(folder, str(number)))
        for number, child in enumerate(everybody)
    ]
    try:
        for runner in runners:
            race.begin_attaching(runner, plan.warm_up_seconds)
        for number, runner in enumerate(runners):
            race.attach(f"process {number}", runner, plan.warm_up_seconds, _SECONDS)
        race.rehearse()
        rounds = race.run(plan, lambda taken: None)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if wrong := [it.lost or it.wrong[0] for it in rounds.values() if it.lost or it.wrong]:
        raise ContestantLostError(f"a process is not as the others: {wrong[0]}")
    return list(rounds.values())


def row_of(call: Call, rounds: Sequence[Rounds]) -> dict[str, Any]:
    """Medians of all processes in microseconds, and how far they are apart."""
    device = [it.device_ms for it in rounds]
    medians = [1e3 * median(it) for it in device]
    # Half of a 95 % interval is two standard deviations.
    halves = [(it.high - it.low) / 4 for it in map(median_interval, device)]
    return {
        "layers": call.layers,
        "steps": call.steps,
        "samples": len(np.concatenate(device[0])),
        "device us": [round(it, 3) for it in medians],
        "host us": [round(1e3 * median(it.host_ms), 2) for it in rounds],
        "scatter us": round(float(np.std(medians, ddof=1)), 3),
        "of which by chance of samples us": round(1e3 * float(np.mean(halves)), 3),
        "furthest apart us": round(max(medians) - min(medians), 3),
        "spans us": [[round(1e3 * x, 3) for batch in it for x in batch] for it in device],
    }


def main() -> None:
    """Time all calls and write one JSON file, after every call."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--processes", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=50.0, help="to stop after")
    parser.add_argument("--each", type=float, default=7.0, help="seconds of samples of a call")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    start = time.monotonic()
    plan = replace(_PLAN, most_seconds=arguments.each)
    report: dict[str, Any] = {"processes": arguments.processes, "rows": []}
    with processes(arguments.processes) as (session, everybody):
        report["started after s"] = round(time.monotonic() - start, 1)
        longest = 0.0
        for call in CALLS:
            began = time.monotonic()
            if began + longest > start + arguments.seconds:
                break
            try:
                row = row_of(call, timed(session, everybody, call, plan))
            except (ContestantLostError, NoTimerError) as error:
                row = {"layers": call.layers, "steps": call.steps, "failed": str(error)}
            longest = max(longest, time.monotonic() - began)
            report["rows"].append(row | {"seconds": round(time.monotonic() - began, 1)})
            print(shown(row), flush=True)
            arguments.output.write_text(json.dumps(report) + "\n")
    report["provenance"] = provenance()  # which may use the card: nothing is forked afterwards
    arguments.output.write_text(json.dumps(report) + "\n")


def shown(row: Mapping[str, Any]) -> str:
    """A row without its samples."""
    return json.dumps({name: it for name, it in row.items() if name != "spans us"})


if __name__ == "__main__":
    main()
