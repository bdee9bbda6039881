"""A child that works on something while nobody waits for it."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernelwright.problem import Problem
from kernelwright.toolchain.records import Target
from kernelwright.verify.cases import Case
from kernelwright.verify.records import to_plain
from kernelwright.worker.card.lease import open_lease
from kernelwright.worker.card.ledger import Ledger
from kernelwright.worker.card.seats import Footprint
from kernelwright.worker.judging.contest import Contest
from kernelwright.worker.judging.judging import Judgement, judgement
from kernelwright.worker.judging.session import ChildSession
from kernelwright.worker.options import Haste, JudgeOptions, Sanitizers
from kernelwright.worker.process.child_process import ChildProcess
from kernelwright.worker.process.client import Answer, Hung, Replied
from kernelwright.worker.process.early_compile import room_beside
from kernelwright.worker.process.requests import CaseRequest, Role, StartRequest
from kernelwright.worker.roles import timed
from kernelwright.worker.roles.timed import Timed
from kernelwright.worker.sandbox.confining import Confinement, Started
from kernelwright.worker.timeline import Moment


class Scripted:
    """A client with its answers ready."""

    has_spoken = False
    alive = True

    def __init__(self, *answers: Answer) -> None:
        self.said: list[str] = []
        self._answers = iter(answers)

    def post(self, operation: str, body: Any) -> None:
        self.said.append(operation)

    def wait(self, seconds: float, patience: object = None) -> Answer:
        self.said.append("wait")
        return next(self._answers)


_READY = ChildProcess._ready


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch) -> ChildProcess:
    start = StartRequest(
        role=Role.COMPILED,
        problem_path="",
        problem_source="",
        candidate_path="",
        folder="",
        device="cpu",
        emulate=False,
        order_seed=0,
        threads=1,
    )
    process = ChildProcess(start, {}, Confinement(), 1.0, Ledger())
    monkeypatch.setattr(ChildProcess, "_ready", lambda self: self._client)
    return process


def test_what_was_begun_ends_before_the_next_question(child: ChildProcess) -> None:
    scripted = Scripted(Replied(body="begun"), Replied(body="asked"))
    child._client = scripted  # type: ignore[assignment]
    child.begin("compile", {}, 5.0)
    assert scripted.said == ["compile"]
    assert child.ask("attach", {}, 5.0) == Replied(body="asked")
    assert scripted.said == ["compile", "wait", "attach", "wait"]


def test_what_took_too_long_is_not_tried_again(child: ChildProcess) -> None:
    late = Hung(message="no answer in 5 s")
    scripted = Scripted(late, Replied(body="another"))
    child._client = scripted  # type: ignore[assignment]
    child.begin("compile", {}, 5.0)
    assert child.ask("attach", {}, 5.0) is late
    assert scripted.said == ["compile", "wait"]
    assert child.ask("attach", {}, 5.0) == Replied(body="another")


def test_a_module_that_was_compiled_early_is_the_one_that_is_timed(
    affine: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timed, "_compile", lambda module, mode: module)
    contestant = Timed.compiled(affine, torch.device("cpu"), "default")
    case = Case()
    contestant.compile(to_plain(CaseRequest(case=case)))
    module = contestant._module_for(case)
    assert contestant._module_for(case) is module
    assert contestant._module_for(Case(seed=1)) is not module


def test_who_is_still_starting_can_be_told_from_who_is_ready(child: ChildProcess) -> None:
    assert not child.has_started()
    scripted = Scripted()
    child._client, child._starting = scripted, True  # type: ignore[assignment]
    assert not child.has_started()
    scripted.has_spoken = True
    assert child.has_started()
    child._starting = scripted.has_spoken = False
    assert child.has_started()


def test_the_wait_for_a_start_is_charged_to_what_the_child_did_meanwhile(
    child: ChildProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is launched at 10 and asked for at 12; what it had done by then was waited for by nobody.

    It says that it is ready at 15, which is heard of at 16.
    """
    steps = (("sandbox", 11.0), ("its turn", 14.0), ("context", 15.0))
    moments = tuple(Moment(step=name, at=at) for name, at in steps)
    started = to_plain(Started(pid=1, protections=(), moments=moments))
    clock = iter([12.0, 12.0, 16.0, 16.0])
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    monkeypatch.setattr(ChildProcess, "_ready", _READY)
    child._client, child._starting, child._launched = (  # type: ignore[assignment]
        Scripted(Replied(body=started)),
        True,
        10.0,
    )
    child.ready()
    assert child.started is not None and child.started.moments == moments
    assert child._ledger.entries() == {
        "torch.compile: start, its turn": 2.0,
        "torch.compile: start, context": 1.0,
        "torch.compile: start": 1.0,
    }


def test_judges_do_what_needs_no_candidate_while_it_is_tuned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tuned = threading.Event()
    steps: list[str] = []

    class Session:
        ledger = Ledger()

        def launch_the_rest(self) -> None:
            assert tuned.wait(10)
            steps.append("launched")

        def look_for_sizes(self) -> None:
            steps.append("sizes")

        class compiling:
            @staticmethod
            def begin(size: int, most: int) -> None:
                steps.append(f"compile {size} of {most}")

    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (800, 1000))
    session: Any = Session()
    with ThreadPoolExecutor(max_workers=1) as beside:
        for haste in (Haste.AS_NEEDED, Haste.AT_ONCE):
            begun = Judgement(session, Target.CUDA, JudgeOptions(haste=haste), beside)
            begun.hasten(64)
        assert steps == []
        tuned.set()
        begun.wait()
    assert steps == ["launched", "sizes", "compile 64 of 100"]


class Named:
    """A child that says when it is started, and what it begins."""

    def __init__(self, role: Role, log: list[str]) -> None:
        self._role = role
        self._log = log

    def launch(self) -> None:
        self._log.append(self._role.value)

    def begin(self, operation: str, body: Any, seconds: float) -> None:
        self._log.append(f"{self._role.value}: {operation}")

    def dismiss(self) -> None:
        self._log.append(f"{self._role.value}: told to end")

    def close(self) -> None:
        self._log.append(f"{self._role.value}: ended")


@pytest.mark.parametrize(
    ("haste", "before", "admitted", "later"),
    [
        (
            Haste.AS_NEEDED,
            ["reference"],
            ["candidate"],
            ["timer", "torch.compile", "candidate, watched", "candidate, guarded"],
        ),
        (
            Haste.WATCHED_FIRST,
            ["reference"],
            ["candidate", "candidate, watched", "candidate, guarded"],
            ["timer", "torch.compile"],
        ),
        (
            Haste.AT_ONCE,
            ["reference"],
            ["candidate"],
            ["timer", "torch.compile", "candidate, watched", "candidate, guarded"],
        ),
    ],
)
def test_who_starts_before_there_is_a_candidate(
    affine: Problem,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    haste: Haste,
    before: list[str],
    admitted: list[str],
    later: list[str],
) -> None:
    log: list[str] = []
    monkeypatch.setattr(ChildSession, "spawn", lambda self, start: Named(start.role, log))
    options = JudgeOptions(haste=haste, sanitizers=Sanitizers.OFF)
    with ChildSession(affine, Target.CUDA, options, tmp_path) as session:
        assert log == before
        log.clear()
        session.admit(tmp_path / "candidate.py")
        assert log == admitted
        log.clear()
        session.launch_the_rest()
        session.launch_the_rest()
        assert log == later
        log.clear()
        session.compiling.begin(1 << 20, 1 << 10)
        session.compiling.begin(1 << 20, 1 << 20)
        session.compiling.begin(1 << 20, 1 << 20)
        assert log == ["torch.compile: compile"]


def test_who_is_watched_is_waited_for_when_it_is_needed_and_compilers_need_not_be_asked(
    affine: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log: list[str] = []
    starts: list[StartRequest] = []
    may_go_on = threading.Event()

    def spawn(session: ChildSession, start: StartRequest) -> Named:
        if start.role is Role.WITNESS:
            assert may_go_on.wait(10)  # a compiler of ours is at work
        starts.append(start)
        return Named(start.role, log)

    monkeypatch.setattr(ChildSession, "spawn", spawn)
    options = JudgeOptions(haste=Haste.AT_ONCE, sanitizers=Sanitizers.OFF)
    with (
        ThreadPoolExecutor(max_workers=1) as beside,
        ChildSession(affine, Target.CUDA, options, tmp_path) as session,
    ):
        session.compile_unasked()
        session.admit(tmp_path / "candidate.py")
        session.launch_watched_by(beside.submit)
        session.launch_the_rest()  # waits for nobody
        assert log == ["reference", "candidate", "timer", "torch.compile"]
        room = {start.role: start.compiles_up_to for start in starts}
        assert room[Role.COMPILED] > 0 == room[Role.REFERENCE]
        session.compiling.begin(room[Role.COMPILED], 1 << 40)  # it does so by itself
        session.compiling.begin(room[Role.COMPILED] + 1, 1 << 40)
        assert log.pop() == "torch.compile: compile"
        may_go_on.set()
        with session.witness():
            assert log[4:] == ["candidate, watched", "candidate, guarded"]


@pytest.mark.parametrize("there", [True, False])
def test_a_candidate_that_is_there_starts_before_those_who_time(
    affine: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    log: list[str] = []
    monkeypatch.setattr(ChildSession, "spawn", lambda self, start: Named(start.role, log))
    options = JudgeOptions(haste=Haste.AT_ONCE, sanitizers=Sanitizers.OFF)
    path = tmp_path / "candidate.py" if there else None
    with judgement(affine, target=Target.CUDA, options=options, candidate_path=path) as begun:
        with suppress(AttributeError):  # nobody is there to be asked
            begun.wait()
        begun._session.launch_the_rest()
        started = ["reference", "candidate", "timer"] if there else ["reference", "timer"]
        assert log[: len(started)] == started


def test_large_calls_are_compiled_when_only_smaller_ones_are_left() -> None:
    card, large = 140 << 30, 12 << 30
    footprint = Footprint(bytes=large, largest=large, memory=card)
    own, smaller = Case(), Case(sizes=(("batch", 2),))
    seen = {own.sizes}
    assert room_beside(own, footprint, own.sizes, seen) < large
    # The memory of the one before is not back.
    assert room_beside(smaller, footprint, own.sizes, seen) < large
    seen.add(smaller.sizes)
    assert room_beside(smaller, footprint, own.sizes, seen) == card


def test_a_watched_candidate_has_ended_before_anybody_is_timed(
    affine: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log: list[str] = []
    monkeypatch.setattr(ChildSession, "spawn", lambda self, start: Named(start.role, log))
    with ChildSession(affine, Target.CUDA, JudgeOptions(), tmp_path) as session:
        log.clear()
        with session.witness():
            assert log == []
        assert log == ["candidate, watched: told to end"]
        with open_lease(0) as lease:
            contest: Any = SimpleNamespace(session=session, lease=lease, tell=lambda *_: None)
            Contest.claim(contest)
        assert log[1:] == ["candidate, watched: ended"]
