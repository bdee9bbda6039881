"""Results that the reference reads where the candidate computed them, and children in advance."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelwright.problem import Problem
from kernelwright.toolchain.records import Target
from kernelwright.verify.cases import Case
from kernelwright.verify.verdict import Status, Verdict
from kernelwright.worker.judging.session import ChildSession
from kernelwright.worker.options import Evidence, JudgeOptions, Speed
from kernelwright.worker.process import handover
from kernelwright.worker.process.handover import Outbox, WriteRequest, taken
from kernelwright.worker.process.requests import Role, StartRequest
from kernelwright.worker.process.tensors import TensorHeader
from kernelwright.worker.roles import table as roles
from kernelwright.worker.timer.driver import DriverError
from kernelwright.worker.timer.records import SharedTensor

CANDIDATES = Path(__file__).parent / "candidates"
Judge = Callable[..., Verdict]


@pytest.fixture
def on_the_device(monkeypatch: pytest.MonkeyPatch, shared_memory: type[Any]) -> type[Any]:
    """Everything is handed over in memory, however small it is."""
    monkeypatch.setattr(handover, "_LEAST_SHARED", 0)
    monkeypatch.setattr(roles, "_memory", lambda device: lambda: shared_memory(device))
    return shared_memory


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("correct", Status.VERIFIED),
        ("nondeterministic", Status.NOT_DETERMINISTIC),
        ("one_element_off", Status.WRONG_VALUES),
    ],
)
def test_results_are_compared_where_they_lie(
    affine: Problem,
    judge_here: Judge,
    on_the_device: type[Any],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    status: Status,
) -> None:
    monkeypatch.setattr(handover, "write_tensors", lambda *_: pytest.fail("written to a file"))
    assert judge_here(affine, CANDIDATES / f"{name}.py").status is status


def test_results_are_written_where_processes_do_not_see_each_others_memory(
    affine: Problem, judge_here: Judge, on_the_device: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: object, handle: str) -> int:
        raise DriverError("cuIpcOpenMemHandle_v2 failed with CUDA error 201")

    monkeypatch.setattr(on_the_device, "open", refuse)
    assert judge_here(affine, CANDIDATES / "correct.py").status is Status.VERIFIED


def test_small_results_and_those_that_cannot_be_shared_are_files(
    tmp_path: Path, shared_memory: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handover, "_LEAST_SHARED", 100)
    memory = shared_memory(torch.device("cpu"))
    tensors = {"small": torch.rand(3), "large": torch.rand(5, 40)[:, ::2]}
    outbox = Outbox(lambda: memory)
    handed = outbox.hand_over(tmp_path, "first", tensors)
    assert [type(it) for it in handed] == [TensorHeader, SharedTensor]
    with taken(lambda: memory, tmp_path, handed) as found:
        assert all(torch.equal(found[name], tensor) for name, tensor in tensors.items())
    shared = handed[1]
    assert isinstance(shared, SharedTensor)
    (file,) = outbox.write(tmp_path, WriteRequest(shared=(shared,))).files
    with taken(None, tmp_path, (file,)) as found:
        assert torch.equal(found["large"], tensors["large"])
    with pytest.raises(DriverError), taken(None, tmp_path, handed):
        pytest.fail("it was read")
    outbox.clear()
    with pytest.raises(KeyError):
        outbox.write(tmp_path, WriteRequest(shared=(shared,)))


class Noted:
    """A child that only notes what is done to it."""

    def __init__(self, start: StartRequest) -> None:
        self.role = start.role
        self.done: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: self.done.append(name)


class NotedSession(ChildSession):
    """Of such children."""

    def spawn(self, start: StartRequest) -> Noted:  # type: ignore[override]
        return Noted(start)


def test_the_candidate_stands_still_while_its_results_are_read(
    affine: Problem, tmp_path: Path
) -> None:
    steps: list[str] = []
    session = NotedSession(affine, Target.CPU, JudgeOptions(), tmp_path)
    session.admit(CANDIDATES / "correct.py")
    owner = session.candidate

    def ask(*_: object) -> None:
        steps.extend(owner.done)  # type: ignore[attr-defined]
        raise TimeoutError

    session.reference.ask = ask  # type: ignore[assignment,method-assign]
    with pytest.raises(TimeoutError):
        session.compare(Case(), (), owner)
    assert steps == ["launch", "freeze"]
    assert owner.done == ["launch", "freeze", "thaw"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("target", "options", "early"),
    [
        (Target.CUDA, JudgeOptions(), {Role.TIMER, Role.COMPILED, Role.WITNESS}),
        (Target.CUDA, JudgeOptions(speed=Speed.SKIPPED), {Role.WITNESS}),
        (
            Target.CUDA,
            JudgeOptions(evidence=Evidence.SKIPPED),
            {Role.TIMER, Role.COMPILED},
        ),
        (Target.CPU, JudgeOptions(), set()),
        (Target.CUDA, JudgeOptions(cases=(Case(),)), {Role.TIMER, Role.COMPILED}),
    ],
)
def test_what_a_right_candidate_needs_is_started_when_its_first_case_is_right(
    affine: Problem, tmp_path: Path, target: Target, options: JudgeOptions, early: set[Role]
) -> None:
    with NotedSession(affine, target, options, tmp_path) as session:
        session.admit(CANDIDATES / "correct.py")
        if not options.cases:  # there is one case only: nothing to wait for
            for _ in range(2):
                timer: Any = session.timer
                assert timer.done == []
                with pytest.raises(AttributeError):  # nobody answers here
                    session.run(Case())
        children: list[Any] = [session.timer]
        children += [session.child(role) for role in (Role.COMPILED, Role.WITNESS)]
        assert {it.role for it in children if it.done[:1] == ["launch"]} == early
        another: Any = session.child(Role.COMPILED)
        assert another.done == []
    assert all(it.done[-1] == "close" for it in (*children, another))
