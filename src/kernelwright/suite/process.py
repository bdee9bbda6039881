"""One task in a process of its own, which may crash, hang, print without end, or eat all memory.

outcome = run_task(task, place, on_stage=print)
"""

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kernelwright import env
from kernelwright.errors import KernelwrightError
from kernelwright.report.row import Ending, Row, Trouble
from kernelwright.suite.child import READY, STACK_FILE
from kernelwright.suite.task import Outcome, Place, Task
from kernelwright.toolchain.launches import launches_library
from kernelwright.verify.records import from_plain, to_plain
from kernelwright.worker.process.client import BoundedLog
from kernelwright.worker.process.nursery import CONVERSATION, LOADED_FIRST, Birth, Nursery, Process

OnStage = Callable[[str, str], None]
"""Hears of a stage's name and what goes on in it."""

_MODULE = "kernelwright.suite.child"
CHILD = (sys.executable, "-P", "-m", _MODULE)
"""-P: nothing beside the user's files may shadow a module of ours."""
IMPORTED = (
    *(
        _MODULE,
        "kernelwright.pipeline",
        "kernelwright.worker.roles.table",
        "kernelwright.tune.plans",
    ),
    *("kernelwright.report.plan", "kernelwright.report.row", "kernelwright.verify.cases"),
    *("torch.export._trace", "torch._dynamo.callback", "torch.fx.experimental.symbolic_shapes"),
)
"""What a nursery of such processes, and of their children, imports before it forks any.

Not torch._inductor.compile_fx, which starts a thread and asks the driver where there is a card."""
Source = Sequence[str] | Nursery
"""Where processes come from: a command, or a nursery."""
STARTING = "starting"
_START_SECONDS = 300.0
"""Until everything is imported; many processes at a time, from a cold disk, take minutes."""
_END_SECONDS = 20.0
"""To end by itself after its outcome has been heard."""
_CLEAN_UP_SECONDS = 5.0
"""From the request to end to the end by force."""
_ALONE_ON_A_CORE = "1"
"""Threads."""
_MOST_BYTES = 64 << 20
"""Bytes of an outcome; more is no outcome."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """How a process ended that gave no outcome."""

    ending: Ending
    message: str
    next_step: str
    killed: bool = False
    """Ended by SIGKILL from elsewhere: by a person, or because memory ran out."""


class Running:
    """The processes that work at the moment, so that all of them can be ended at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._processes: set[Process] = set()
        self._closed = False

    def add(self, process: Process) -> None:
        """A process has begun; it is ended at once if all are."""
        with self._lock:
            self._processes.add(process)
            if self._closed:
                process.terminate()

    def remove(self, process: Process) -> None:
        """A process has ended."""
        with self._lock:
            self._processes.discard(process)

    def end(self) -> None:
        """End them all, and every one that begins later."""
        with self._lock:
            self._closed = True
            for process in self._processes:
                process.terminate()

    @property
    def ended(self) -> bool:
        """Whether `end` was called."""
        return self._closed


def run_task(
    task: Task,
    place: Place,
    *,
    on_stage: OnStage = lambda stage, message: None,
    running: Running | None = None,
    source: Source = CHILD,
) -> Outcome:
    """The outcome of the task, whatever happens to its process.

    A process that somebody kills is started once more: the machine may have run out of memory.
    """
    processes = running or Running()
    for attempt in (1, 2):
        result = _attempt(task, place, on_stage, processes, source)
        if isinstance(result, Outcome):
            return replace(result, row=replace(result.row, attempts=attempt))
        lost, details = result
        if not lost.killed or processes.ended:
            break
    return Outcome(row=lost_row(task, lost, details, attempt), details=details)


def _attempt(
    task: Task, place: Place, on_stage: OnStage, running: Running, source: Source
) -> Outcome | tuple[Lost, dict[str, Any]]:
    with tempfile.TemporaryDirectory(
        prefix="kernelwright-suite-", ignore_cleanup_errors=True
    ) as folder:
        process, descriptor = _start(source, place, Path(folder))
        running.add(process)
        try:
            assert process.stdin is not None and process.stdout is not None
            log = BoundedLog(process.stdout)
            listener = _Listener(descriptor, on_stage, task.settings.timeout)
            _hand_over(task, place, process)
            lost = listener.listen(process)
        finally:
            _end(process)
            running.remove(process)
            os.close(descriptor)
        timeline = {"timeline": listener.timeline}
        if listener.outcome is not None:
            details = {**listener.outcome.details, **timeline}
            return replace(listener.outcome, details=details)
        assert lost is not None
        stack = _read(Path(folder) / STACK_FILE)
        return lost, {"log": log.text(), "stack": stack, **timeline}


def environment_of(place: Place | None = None) -> dict[str, str]:
    """That of a problem's process at `place`, or of where such processes come from.

    Threads that wait for each other on cores that are taken spin for longer than they work, and a
    pool of compilers costs more to start than most problems have to compile.
    """
    threads = (env.OMP_THREADS.name, env.BLAS_THREADS.name, env.COMPILE_THREADS.name)
    overrides = {**dict.fromkeys(threads, _ALONE_ON_A_CORE), env.CUDA_CHECK.name: "1"}
    if place is not None:
        overrides[env.THREADS.name] = str(place.threads)
    if place is not None and place.card:
        overrides[env.CUDA_VISIBLE_DEVICES.name] = place.card
    return env.child_environment(overrides)


def nursery_environment(*, watches: bool) -> dict[str, str]:
    """That of where the processes come from; `watches`: some of them are to count launches.

    A library that does so has to be loaded before PyTorch is. It is idle in all the others.
    """
    environment = environment_of()
    if watches:
        with suppress(KernelwrightError):  # no compiler: whoever needs it will say so
            before = environment.get(LOADED_FIRST, "").split()
            environment[LOADED_FIRST] = " ".join([str(launches_library()), *before])
    return environment


def _start(source: Source, place: Place, folder: Path) -> tuple[Process, int]:
    ours, theirs = os.pipe()
    environment = environment_of(place)
    try:
        if isinstance(source, Nursery):
            birth = Birth(
                module=_MODULE,
                arguments=(str(CONVERSATION), str(os.getpid())),
                environment=environment,
                folder=str(folder),
            )
            with suppress(OSError):  # somebody has killed it
                return source.start(birth, theirs), ours
        command = CHILD if isinstance(source, Nursery) else source
        return _started(command, theirs, environment, folder), ours
    finally:
        os.close(theirs)


def _started(
    command: Sequence[str], theirs: int, environment: Mapping[str, str], folder: Path
) -> Process:
    return subprocess.Popen(
        [*command, str(theirs), str(os.getpid())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        pass_fds=(theirs,),
        cwd=folder,
        env=dict(environment),
        start_new_session=True,
    )


def _hand_over(task: Task, place: Place, process: Process) -> None:
    assert process.stdin is not None
    with suppress(BrokenPipeError), process.stdin as stream:
        stream.write(json.dumps({"task": to_plain(task), "place": to_plain(place)}).encode())


class _Listener:
    """Reads the lines of one process until its outcome, its end, or the end of its time."""

    def __init__(self, descriptor: int, on_stage: OnStage, timeout: float) -> None:
        self.outcome: Outcome | None = None
        self.timeline: list[tuple[float, str, str]] = []
        """Seconds since the process was begun, stage and message of all that was heard."""
        self._begun = time.monotonic()
        self._descriptor = descriptor
        self._on_stage = on_stage
        self._timeout = timeout
        self._deadline = time.monotonic() + _START_SECONDS
        self._stage = STARTING
        self._rest = b""

    def listen(self, process: Process) -> Lost | None:
        """None once there is an outcome, else how the process was lost."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._descriptor, selectors.EVENT_READ)
            while self.outcome is None:
                left = self._deadline - time.monotonic()
                if left <= 0 or not selector.select(left):
                    return self._late()
                data = os.read(self._descriptor, 1 << 20)
                if not data:
                    return self._died(process)
                self._hear(data)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_END_SECONDS)
        return None

    def _hear(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _MOST_BYTES:
            raise ValueError("a line without end")
        for line in lines:
            match json.loads(line):
                case {"stage": str(stage), "message": str(message)}:
                    if stage == READY:
                        self._deadline = time.monotonic() + self._timeout
                    self._stage = stage
                    seconds = round(time.monotonic() - self._begun, 3)
                    self.timeline.append((seconds, stage, message))
                    self._on_stage(stage, message)
                case {"outcome": plain}:
                    self.outcome = _read_outcome(plain)

    def _late(self) -> Lost:
        seconds = _START_SECONDS if self._stage == STARTING else self._timeout
        return Lost(
            ending=Ending.TIMED_OUT,
            message=f"no result within {seconds:g} s; it was ended during {self._stage!r}",
            next_step="Give it more time with --timeout, or look at the place that is named.",
        )

    def _died(self, process: Process) -> Lost:
        try:
            code = process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            code = 0
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"exited with {code}"
        killed = code == -signal.SIGKILL
        return Lost(
            ending=Ending.CRASHED,
            message=f"the process {how} during {self._stage!r}",
            next_step=_OUT_OF_MEMORY if killed else _ALONE,
            killed=killed,
        )


_OUT_OF_MEMORY = "Somebody killed it, or the machine ran out of memory: try it alone."
_ALONE = "Run `kernelwright optimize` on the file alone: it shows all that the problem prints."


def _read_outcome(plain: Any) -> Outcome:
    return Outcome(
        row=from_plain(Row, plain["row"]), details=plain["details"], emitted=plain["emitted"]
    )


def lost_row(task: Task, lost: Lost, details: Mapping[str, Any], attempts: int) -> Row:
    """The row of a task that gave no outcome; `details` has the `stack` of its process, or ""."""
    trouble = Trouble(
        kind=lost.ending.value,
        message=lost.message,
        location=_location(task.path, details["stack"]),
        next_step=lost.next_step,
    )
    return Row(
        problem=task.problem,
        level=task.level,
        key=task.key,
        ending=lost.ending,
        status=lost.ending.value,
        verified=False,
        summary=lost.message,
        trouble=trouble,
        target=task.settings.target,
        attempts=attempts,
    )


def _location(path: str, stack: str) -> str | None:
    """Where the process was in the problem's file, by faulthandler's text: innermost call first."""
    for line in stack.splitlines():
        head, _, rest = line.strip().partition(", line ")
        number = rest.partition(" ")[0]
        if head.startswith("File ") and Path(head[6:-1]).name == Path(path).name and number:
            return f"{path}:{number}"
    return None


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")[: 1 << 16]
    except OSError:
        return ""


def _end(process: Process) -> None:
    """End the process and its group; the judge's children end with their parent."""
    if process.poll() is None:
        process.terminate()  # it then removes what it has in shared memory
        with suppress(subprocess.TimeoutExpired):
            process.wait(_CLEAN_UP_SECONDS)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
