"""Entry of the process that works on one problem: `python -m kernelwright.suite.child FD PARENT`.

Task and place come as JSON on standard input. Through the descriptor go lines of JSON:
{"stage": ...} as the work goes on, {"outcome": ...} at its end. The problem's own code runs here:
whatever it does, this process is all that it costs.
"""

import ctypes
import faulthandler
import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelwright.verify.records import from_plain, to_plain
from kernelwright.worker.process.nursery import Nursery, employed
from kernelwright.worker.sandbox.warden import descendants

if TYPE_CHECKING:
    from kernelwright.suite.task import Outcome, Task
    from kernelwright.verify.verification import Event

READY, CAPTURE, FINISH = "ready", "capture", "finish"
"""Stages beside those of the pipeline's events."""
_TIME, _TIMING = "time", "timing"
"""The pipeline's last stage, and how its messages begin once the card is taken."""
_COMPILE_SHARE = 0.35
"""Share of a problem's time that torch.compile gets; what is verified is timed without it."""
STACK_FILE = "stack.txt"
"""In the working folder: where each thread was when the process died or was about to be ended."""

_PR_SET_PDEATHSIG = 1
_BEFORE_THE_END = 0.5
"""Seconds before the timeout at which the stack is written down."""
_GRACE = 30.0
"""Seconds after the timeout at which the process ends even without a parent."""


class Reporter:
    """Tells the parent what goes on, and keeps the time of each stage."""

    def __init__(self, descriptor: int, timing_cores: Sequence[int] = ()) -> None:
        os.set_inheritable(descriptor, False)  # noqa: FBT003 - a compiler would keep it open
        self._stream = os.fdopen(descriptor, "w", encoding="utf-8")
        self._stage = ""
        self._since = time.monotonic()
        self.seconds: dict[str, float] = {}
        self._timing_cores = timing_cores

    def stage(self, name: str, message: str = "") -> None:
        """The stage `name` begins, or goes on with something else."""
        now = time.monotonic()
        if self._stage:
            self.seconds[self._stage] = self.seconds.get(self._stage, 0.0) + now - self._since
        self._stage, self._since = name, now
        self.send(stage=name, message=message)

    def event(self, event: "Event") -> None:
        """Progress of the pipeline."""
        self.stage(event.stage, event.message)
        if event.stage == _TIME and event.message.startswith(_TIMING) and self._timing_cores:
            keep_to(self._timing_cores)
            self._timing_cores = ()

    def send(self, **fields: Any) -> None:
        """One line."""
        self._stream.write(json.dumps(fields) + "\n")
        self._stream.flush()


def main(arguments: list[str]) -> None:
    """Do the task that standard input describes."""
    end_with_parent(int(arguments[1]))
    plain = json.load(sys.stdin)
    # Before anything is imported that asks how many cores there are.
    if cores := plain["place"]["cores"]:
        os.sched_setaffinity(0, cores)
    reporter = Reporter(int(arguments[0]), plain["place"]["timing_cores"])
    # Everything that takes long to import belongs to the start, not to the problem's time.
    from kernelwright import pipeline  # noqa: F401
    from kernelwright.suite.task import Task
    from kernelwright.worker.roles import table as roles  # noqa: F401 - for the nursery

    task = from_plain(Task, plain["task"])
    # Where nothing else ends it any more: the kernel does, whatever the code is at.
    signal.setitimer(signal.ITIMER_REAL, task.settings.timeout + _GRACE)
    # Before this process has a second thread or a card, and before the problem's code has run.
    with employed(Nursery.forked()), _stacks(task):
        reporter.stage(READY)
        outcome = _outcome(task, Path.cwd(), reporter)
    reporter.stage(FINISH)
    seconds = {name: round(value, 3) for name, value in reporter.seconds.items() if name != READY}
    outcome = replace(outcome, row=replace(outcome.row, seconds=seconds))
    reporter.send(outcome=to_plain(outcome))


def keep_to(cores: Sequence[int]) -> None:
    """Let this process and all that it started run on `cores`: their first threads, which launch.

    Called while they have the card alone: no other problem's processes are on these cores then.
    """
    for pid in (os.getpid(), *descendants(os.getpid())):
        with suppress(OSError):  # it has ended
            os.sched_setaffinity(pid, cores)


def end_with_parent(parent: int) -> None:
    """End when the parent ends or says so, and remove what lies in shared memory."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)  # it died before the kernel was told


@contextmanager
def _stacks(task: "Task") -> Iterator[None]:
    """Write down where the process is when it crashes or runs out of time."""
    with Path(STACK_FILE).open("w") as file:
        faulthandler.enable(file)
        seconds = max(task.settings.timeout - _BEFORE_THE_END, task.settings.timeout / 2)
        faulthandler.dump_traceback_later(seconds, file=file)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()
            faulthandler.disable()


def _outcome(task: "Task", folder: Path, reporter: Reporter) -> "Outcome":
    from kernelwright.report.row import refused_row
    from kernelwright.suite.task import Outcome, Work

    reporter.stage(CAPTURE)
    try:
        match task.settings.work:
            case Work.OPTIMIZE:
                return _optimize(task, folder, reporter)
            case Work.JUDGE:
                return _judge(task, folder, reporter)
    except Exception as error:
        row = refused_row(problem=task.problem, level=task.level, key=task.key, error=error)
        return Outcome(row=replace(row, target=task.settings.target), details=_traceback(error))


def _optimize(task: "Task", folder: Path, reporter: Reporter) -> "Outcome":
    from kernelwright import pipeline
    from kernelwright.report.plan import plan_json
    from kernelwright.report.row import judged_row
    from kernelwright.schedule import print_plan
    from kernelwright.suite.task import Outcome
    from kernelwright.tune.effort import effort_among_many
    from kernelwright.verify.cases import STRICT
    from kernelwright.worker import Haste, JudgeOptions, Timeouts
    from kernelwright.worker.options import Sanitizers

    settings = task.settings
    profile = effort_among_many(settings.effort)
    problem = _present(task.path, task.source, folder / "problem")
    output = folder / f"{problem.stem}_new.py"
    options = pipeline.OptimizeOptions(
        target=pipeline.Target(settings.target),
        effort=profile,
        trace_without_card=not profile.variants,
        judge=JudgeOptions(
            seeds=settings.seeds,
            demands=STRICT,
            baselines=settings.baselines,
            timing=profile.timing,
            timeouts=Timeouts(compile=settings.timeout * _COMPILE_SHARE),
            haste=Haste.WATCHED_FIRST,
            sanitizers=Sanitizers.OFF,  # guard zones stay: importing PyTorch once more does not
        ),
    )
    loaded = pipeline.load_problem(problem)
    done = pipeline.optimize_problem(loaded, output, options, reporter.event)
    compiled = done.compiled
    plan = plan_json(compiled.rewritten, compiled.plan, compiled.machine)
    row = judged_row(
        problem=task.problem,
        level=task.level,
        key=task.key,
        verdict=done.verdict,
        measurement=done.measurement,
        plan=plan,
    )
    details = {
        "verdict": done.verdict.to_json(),
        "measurement": done.measurement.to_json(),
        "plan": plan,
        "graphs": {
            "captured": str(compiled.captured),
            "rewritten": str(compiled.rewritten.graph),
            "planned": print_plan(compiled.plan),
        },
        "before": [
            {"name": node.name, "operators": list(node.operators), "source": node.source}
            for node in compiled.captured.nodes
            if node.operators
        ],
        "machine": to_plain(compiled.machine),
        "cuda": done.candidate.cuda_source,
    }
    return Outcome(row=row, details=details, emitted=done.candidate.source)


def _judge(task: "Task", folder: Path, reporter: Reporter) -> "Outcome":
    from kernelwright import pipeline
    from kernelwright.report.row import judged_row
    from kernelwright.suite.task import Outcome
    from kernelwright.tune.effort import effort
    from kernelwright.worker import JudgeOptions
    from kernelwright.worker.errors import CandidateFileError

    settings = task.settings
    if not task.candidate_path:
        raise CandidateFileError(f"there is no candidate for {task.problem}")
    verdict, measurement = pipeline.judge(
        _present(task.path, task.source, folder / "problem"),
        _present(task.candidate_path, task.candidate, folder / "candidate"),
        target=pipeline.Target(settings.target),
        options=JudgeOptions(
            seeds=settings.seeds,
            baselines=settings.baselines,
            timing=effort(settings.effort).timing,
        ),
        progress=reporter.event,
    )
    row = judged_row(
        problem=task.problem,
        level=task.level,
        key=task.key,
        verdict=verdict,
        measurement=measurement,
        plan={},
    )
    details = {"verdict": verdict.to_json(), "measurement": measurement.to_json()}
    return Outcome(row=row, details=details, emitted=task.candidate)


def _present(path: str, source: str, folder: Path) -> Path:
    """The file at `path` if it is the one that was meant, else a copy of it in `folder`."""
    here = Path(path)
    try:
        if here.read_text(encoding="utf-8") == source:
            return here
    except (OSError, ValueError):
        pass  # on another machine
    folder.mkdir(exist_ok=True)
    copy = folder / here.name
    copy.write_text(source, encoding="utf-8")
    return copy


def _traceback(error: Exception) -> dict[str, Any]:
    import traceback

    return {"traceback": "".join(traceback.format_exception(error))}


if __name__ == "__main__":
    main(sys.argv[1:])
