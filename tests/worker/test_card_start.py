"""Processes that take a card into use, few at a time."""

import fcntl
import os
import threading
import time
from pathlib import Path

import pytest
import torch

from kernelwright import env
from kernelwright.problem import Problem
from kernelwright.toolchain.records import Target
from kernelwright.worker.card.lease import is_locked_by_us
from kernelwright.worker.judging.session import ChildSession
from kernelwright.worker.options import JudgeOptions
from kernelwright.worker.process import card_start
from kernelwright.worker.process.card_start import its_turn, starts_of_machine, take
from kernelwright.worker.process.child_process import ChildProcess
from kernelwright.worker.process.requests import Role
from kernelwright.worker.timeline import Timeline


@pytest.fixture(autouse=True)
def own_locks(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path_factory.mktemp("locks")))


def test_so_many_start_at_a_time_and_the_next_when_one_has() -> None:
    starts = starts_of_machine()
    assert starts == starts_of_machine()
    now, most = 0, 0
    lock = threading.Lock()

    def start() -> None:
        nonlocal now, most
        with its_turn(starts):
            with lock:
                now += 1
                most = max(most, now)
            time.sleep(0.02)
            with lock:
                now -= 1

    threads = [threading.Thread(target=start) for _ in range(3 * len(starts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert (now, most) == (0, len(starts))


def test_who_takes_a_card_marks_its_turn_and_its_context(monkeypatch: pytest.MonkeyPatch) -> None:
    timeline, steps = Timeline(), []
    card = torch.device("cuda:1")
    monkeypatch.setattr(torch._C, "_cuda_getDeviceCount", lambda: 4, raising=False)
    monkeypatch.setattr(torch.cuda, "_cached_device_count", None)

    def set_device(device: torch.device) -> None:
        held = [not is_locked_by_us(file) for file in files]
        steps.append((device, [it.step for it in timeline.moments], any(held)))

    monkeypatch.setattr(torch.cuda, "set_device", set_device)
    starts = starts_of_machine()
    files = [os.open(path, os.O_RDONLY) for path in starts]
    take(card, starts, timeline)
    for file in files:
        os.close(file)
    assert steps == [(card, ["its turn"], True)]
    assert [it.step for it in timeline.moments] == ["its turn", "context"]
    assert torch.cuda._cached_device_count == 4  # NVML is not asked


def test_a_process_that_may_write_nowhere_waits_as_well() -> None:
    starts = starts_of_machine()
    held = [os.open(path, os.O_RDWR) for path in starts]
    for file in held:
        fcntl.flock(file, fcntl.LOCK_EX)
    for path in starts:
        Path(path).chmod(0o400)
    threading.Timer(0.1, lambda: fcntl.flock(held[0], fcntl.LOCK_UN)).start()
    began = time.monotonic()
    with its_turn(starts):
        assert time.monotonic() - began >= 0.09
    for file in held:
        os.close(file)


def test_nobody_waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(card_start, "_PATIENCE", 0.05)
    starts = starts_of_machine()
    held = [os.open(path, os.O_RDONLY) for path in starts]
    for file in held:
        fcntl.flock(file, fcntl.LOCK_EX)
    with its_turn(starts), its_turn(()):
        pass
    for file in held:
        os.close(file)


@pytest.fixture
def nobody_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ChildProcess, "launch", lambda child: None)


@pytest.mark.usefixtures("nobody_starts")
def test_only_who_has_a_card_takes_a_turn(affine: Problem, tmp_path: Path) -> None:
    for target, count in ((Target.CPU, 0), (Target.CUDA, 2)):
        folder = tmp_path / target.value
        folder.mkdir()
        with ChildSession(affine, target, JudgeOptions(), folder) as session:
            assert all(len(session._start(role).starts) == count for role in Role)


@pytest.mark.usefixtures("nobody_starts")
def test_queues_that_nobody_needs_are_not_made(
    affine: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All contestants have those for kernels that CUDA makes; a user's word comes first."""
    queues = (env.COPY_CONNECTIONS.name, env.CONNECTIONS.name)
    for name in queues:
        monkeypatch.delenv(name, raising=False)

    def of(role: Role, folder: str) -> list[str | None]:
        (tmp_path / folder).mkdir()
        with ChildSession(affine, Target.CPU, JudgeOptions(), tmp_path / folder) as session:
            session._candidate_path = Path(affine.path)
            child = session.spawn(session._start(role))
        return [child._environment.get(name) for name in queues]

    assert of(Role.REFERENCE, "a") == of(Role.COMPILED, "b") == of(Role.CANDIDATE, "c")
    assert of(Role.REFERENCE, "d") == ["1", None]
    assert of(Role.TIMER, "e") == ["1", "1"]
    monkeypatch.setenv(env.COPY_CONNECTIONS.name, "3")
    assert of(Role.REFERENCE, "f") == of(Role.CANDIDATE, "g") == ["3", None]
