"""Sessions for the tests: real children where death is the subject, otherwise hosts in here."""

import ctypes
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelwright.bench.roofline import Floor
from kernelwright.machine import H200
from kernelwright.problem import Problem, load_problem
from kernelwright.toolchain.records import Target
from kernelwright.verify.cases import Case
from kernelwright.verify.records import to_plain
from kernelwright.verify.verdict import Verdict
from kernelwright.verify.verification import Brief, verify
from kernelwright.worker import judge
from kernelwright.worker.card.lease import open_lease
from kernelwright.worker.judging.briefing import plan
from kernelwright.worker.judging.racing import Race, race
from kernelwright.worker.judging.session import ChildSession
from kernelwright.worker.options import JudgeOptions, Watch
from kernelwright.worker.process.client import Answer, Hung, Raised, Replied
from kernelwright.worker.process.hanging import Patience
from kernelwright.worker.process.requests import StartRequest
from kernelwright.worker.roles.table import Host, make_host
from kernelwright.worker.timeline import Timeline

HERE = Path(__file__).parent


_ALONE = frozenset({"build", "make", "run", "compare", "probe", "sizes"})
"""Operations that draw random numbers, of which a process has one generator."""
_TURN = threading.Lock()


class LocalChild:
    """Answers like a child process, through the same JSON, without a process."""

    def __init__(self, start: StartRequest) -> None:
        self._start = start
        self._host: Host | None = None
        self._answer: Answer | None = None
        self._thread = threading.Thread()

    def launch(self) -> None:
        """Nothing to start."""

    def ready(self) -> None:
        """It is always."""

    def post(self, operation: str, body: Any) -> None:
        # One that hangs does not outlive its test.
        self._thread = threading.Thread(target=self._work, args=(operation, body), daemon=True)
        self._thread.start()

    def _work(self, operation: str, body: Any) -> None:
        with _TURN if operation in _ALONE else nullcontext():
            self._do(operation, body)

    def _do(self, operation: str, body: Any) -> None:
        try:
            self._host = self._host or make_host(to_plain(self._start), Timeline())
            reply = to_plain(self._host.answer(operation, json.loads(json.dumps(body))))
            self._answer = Replied(body=reply)
        except Exception as error:
            message = f"{type(error).__name__}: {error}"
            self._answer = Raised(message=message, location=None, next_step=None)

    def wait(self, seconds: float, patience: Patience | None = None) -> Answer:
        self._thread.join(seconds if patience is None else min(seconds, patience.seconds))
        if self._thread.is_alive():
            assert patience is not None
            return Hung(message=f"no answer in {patience.seconds:g} s; {patience.reason}")
        assert self._answer is not None
        return self._answer

    def ask(
        self, operation: str, body: Any, seconds: float, patience: Patience | None = None
    ) -> Answer:
        self.post(operation, body)
        return self.wait(seconds, patience)

    def is_busy(self) -> bool:
        """It begins nothing."""
        return False

    def threads(self) -> int:
        """It has no process of its own."""
        return 0

    def number(self) -> int:
        """Nor a number."""
        return 0

    def freeze(self) -> None:
        """It runs only when it is asked."""

    def thaw(self) -> None:
        """It was not stopped."""

    def dismiss(self) -> None:
        """Nothing has to end."""

    def close(self) -> None:
        self._host = None


class LocalSession(ChildSession):
    """A session whose children are in this process."""

    def spawn(self, start: StartRequest) -> LocalChild:  # type: ignore[override]
        return LocalChild(start)


@pytest.fixture
def affine() -> Problem:
    """relu(Linear(x)) / divisor, x of 33 x 48."""
    return load_problem(HERE / "problems" / "affine.py")


@pytest.fixture
def judge_here(tmp_path: Path) -> Callable[..., Verdict]:
    """Verifies a candidate in this process: for candidates that are wrong but harmless."""

    def judge(problem: Problem, candidate: Path, **changes: Any) -> Verdict:
        options = JudgeOptions(watch=Watch.NOTHING, seeds=2, **changes)
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        with LocalSession(problem, Target.CPU, options, folder) as session:
            session.admit(candidate)
            brief: Brief = plan(session, Target.CPU, options, ())
            return verify(session, brief, lambda event: None)

    return judge


@pytest.fixture
def quick_turns(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Children that are threads have the interpreter as soon as another one only waits.

    They wait for each other by spinning, and each keeps the interpreter for 5 ms otherwise. The
    timer waits for a call to be launched, which cannot be where nothing holds the device.
    """
    monkeypatch.setattr("kernelwright.worker.roles.clock._PATIENCE", 0.001)
    usual = sys.getswitchinterval()
    sys.setswitchinterval(5e-5)
    yield
    sys.setswitchinterval(usual)


@pytest.fixture
def race_here(tmp_path: Path, quick_turns: None) -> Callable[..., Race]:
    """Times a candidate in this process."""

    def run(problem: Problem, candidate: Path, floor: Floor, options: JudgeOptions) -> Race:
        options = replace(options, watch=Watch.NOTHING)
        here = LocalSession(problem, Target.CPU, options, tmp_path)
        with here as session, open_lease(0) as lease:
            session.admit(candidate)
            return race(
                session,
                options,
                case=Case(),
                floor=lambda: floor,
                machine=H200,
                progress=lambda event: None,
                lease=lease,
            )

    return run


_HANDLE_DIGITS = 128


class HostDriver:
    """The driver of children that are threads: the host's memory, a stream that works at once."""

    flush_bytes = 1 << 16

    def __init__(self, device: torch.device) -> None:
        assert device.type == "cpu"
        self._kept: list[torch.Tensor] = []
        self._stamps: dict[int, float] = {}
        self.set_aside = 0

    def allocate(self, size: int) -> int:
        self._kept.append(torch.zeros(max(size, 1), dtype=torch.uint8))
        return self._kept[-1].data_ptr()

    def extent(self, address: int) -> tuple[int, int]:
        return address, 1 << 40

    def share(self, address: int) -> tuple[str, int]:
        return f"{address:0{_HANDLE_DIGITS}x}", 0

    def open(self, handle: str) -> int:
        return int(handle, 16)

    def close(self, address: int) -> None:
        pass

    def map_host(self, address: int, size: int) -> int:
        return address

    def unmap_host(self, address: int) -> None:
        pass

    def wait_for_word(self, address: int, value: int) -> None:
        word = ctypes.c_uint32.from_address(address)
        deadline = time.monotonic() + 10
        while word.value < value:
            assert time.monotonic() < deadline

    def new_event(self) -> int:
        self._stamps[len(self._stamps)] = 0.0
        return len(self._stamps) - 1

    def record(self, event: int) -> None:
        self._stamps[event] = time.perf_counter()

    def milliseconds(self, start: int, end: int) -> float:
        return (self._stamps[end] - self._stamps[start]) * 1e3

    def synchronize(self) -> None:
        pass

    def fill(self, address: int, value: int, size: int) -> None:
        ctypes.memset(address, value, size)

    def copy(self, target: int, source: int, size: int) -> None:
        ctypes.memmove(target, source, size)

    def take_persisting_l2(self) -> int:
        return self.set_aside

    def bytes_at(self, address: int, size: int) -> torch.Tensor:
        if size == 0:
            return torch.empty(0, dtype=torch.uint8)
        return torch.frombuffer((ctypes.c_ubyte * size).from_address(address), dtype=torch.uint8)


@pytest.fixture
def shared_memory(monkeypatch: pytest.MonkeyPatch) -> type[HostDriver]:
    """Lets children in this process share memory as processes do on a GPU."""
    for module in ("roles.clock", "timer.timed_calls"):
        monkeypatch.setattr(f"kernelwright.worker.{module}.Driver", HostDriver)
    # The spans themselves mean nothing here: a busy host is no device.
    monkeypatch.setattr("kernelwright.worker.judging.racing.look_outside", lambda *_: None)
    return HostDriver


@pytest.fixture
def verdict_of() -> Callable[..., Verdict]:
    """`verdict_of(problem, "hangs", timeouts=...)`: of a candidate in real processes, one case."""

    def judged(problem: Problem, name: str, **changes: Any) -> Verdict:
        options = JudgeOptions(watch=Watch.NOTHING, cases=(Case(),), **changes)
        verdict, _ = judge(
            problem,
            HERE / "candidates" / f"{name}.py",
            target=Target.CPU,
            floor=None,
            options=options,
            progress=lambda event: None,
        )
        return verdict

    return judged
