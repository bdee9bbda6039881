"""Children that die, hang, flood or lie, in real processes."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from kernelwright.bench.measurement import NO_GPU
from kernelwright.bench.roofline import Floor
from kernelwright.errors import ExitCode
from kernelwright.problem import Problem
from kernelwright.toolchain.records import Target
from kernelwright.verify.verdict import Status, Verdict
from kernelwright.verify.verification import Event
from kernelwright.worker import JudgeOptions, Timeouts, judge
from kernelwright.worker.errors import CandidateFileError, ChildStartError
from kernelwright.worker.options import Watch
from kernelwright.worker.process import hanging
from kernelwright.worker.process.client import Client, Died, Hung, Raised
from kernelwright.worker.process.hanging import (
    Patience,
    compiles,
    patience_for,
    tell_when_compiling,
)
from kernelwright.worker.sandbox.confining import Confinement

HERE = Path(__file__).parent
CANDIDATES = HERE / "candidates"
VerdictOf = Callable[..., Verdict]


def test_how_a_started_process_can_end(affine: Problem, verdict_of: VerdictOf) -> None:
    """By a signal; by itself as in test_a_client_tells_how_its_child_ended and in forks."""
    verdict = verdict_of(affine, "aborts")
    assert verdict.status is Status.CRASHED
    assert "SIGABRT" in verdict.summary


def test_a_hang_is_a_hundred_times_the_reference_and_ten_seconds() -> None:
    timeouts = Timeouts()
    quick, slow = (
        patience_for(least=timeouts.hang, call=call, beside=0.0, compiles=lambda: False)
        for call in (0.001, 0.5)
    )
    assert (quick.seconds, slow.seconds) == (10.0, 50.0)
    assert timeouts.slow_hang < 30


def test_who_compiles_does_not_hang(tmp_path: Path) -> None:
    """A compiler that was started, or PyTorch's at work, as its file says."""
    assert not compiles(os.getpid(), tmp_path)
    compiler = Path(shutil.copy("/bin/sleep", tmp_path / "ptxas"))
    with subprocess.Popen([compiler, "60"]) as process:
        looks = (time.sleep(0.02) or compiles(os.getpid(), tmp_path) for _ in range(100))
        assert any(looks), "the kernel may miss one that is just being started"
        process.kill()
    tell_when_compiling(tmp_path)
    seen = []

    @torch.compile(backend=lambda graph, _: seen.append(compiles(os.getpid(), tmp_path)) or graph)
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    double(torch.ones(2))
    assert seen == [True]
    assert not compiles(os.getpid(), tmp_path)


def test_pytorchs_compiler_is_imported_by_who_compiles_and_watched_from_then_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(hanging, "_CALLBACKS", "compiler_of_this_test")
    (tmp_path / "compiler_of_this_test.py").write_text(COMPILER)
    tell_when_compiling(tmp_path)
    assert "compiler_of_this_test" not in sys.modules
    from compiler_of_this_test import callback_handler  # type: ignore[import-not-found]

    for callback, working in zip(callback_handler.callbacks, (True, False), strict=True):
        callback()
        assert compiles(os.getpid(), tmp_path) is working


COMPILER = """
class callback_handler:
    callbacks = []
    register_start_callback = register_end_callback = callbacks.append
"""


def test_the_whole_judgement_on_the_cpu(affine: Problem) -> None:
    events: list[Event] = []
    floor = Floor(bytes=1 << 30, flops=1 << 20, arithmetic="fp32_simt")
    verdict, measurement = judge(
        affine,
        CANDIDATES / "correct.py",
        target=Target.CPU,
        floor=floor,
        options=JudgeOptions(watch=Watch.NOTHING, seeds=1),
        progress=events.append,
    )
    assert verdict.status is Status.VERIFIED
    assert verdict.status.exit_code is ExitCode.VERIFIED
    assert measurement.note == NO_GPU
    assert measurement.candidate is None
    assert measurement.floor_ms == pytest.approx((1 << 30) / 4.28e12 * 1e3)
    assert {event.stage for event in events} == {"build", "verify"}
    assert verdict.spent.keys() & {"reference: start, imports", "candidate: start, imports"}
    isolation = [check for check in verdict.checks if check.name == "isolation"]
    assert len(isolation) == 1, "a verdict says what the candidate was kept from"
    assert "a process of its own" in isolation[0].evidence


def test_a_candidate_without_a_model_starts_no_process(
    affine: Problem, verdict_of: VerdictOf
) -> None:
    start = time.monotonic()
    verdict = verdict_of(affine, "no_model")
    assert verdict.status is Status.BUILD_FAILED
    assert "no class `ModelNew`" in verdict.summary
    assert time.monotonic() - start < 1.0


def test_no_candidate_file(affine: Problem, verdict_of: VerdictOf) -> None:
    with pytest.raises(CandidateFileError, match="does not exist"):
        verdict_of(affine, "absent")


def test_a_client_tells_how_its_child_ended() -> None:
    client = Client("test", os.environ, Confinement())
    client.post("start", {"nothing": "of use"})
    # What it compiles is beside the time for its answer, as for a file that builds when called.
    answer = client.wait(0.05, compiling_for(60.0))
    assert isinstance(answer, Raised)
    assert "not a StartRequest" in answer.message
    client.post("run", {})
    answer = client.wait(60.0)
    assert isinstance(answer, Died)
    assert "exited with code 0 during 'run'" in answer.message
    client.close()
    client.close()
    assert not client.alive


def test_a_client_that_does_not_answer_is_killed() -> None:
    client = Client("test", os.environ, Confinement())
    client.post("start", {})
    answer = client.wait(0.04, compiling_for(0.06))
    assert isinstance(answer, Hung)
    assert answer.message.endswith("'start' in 0.04 s and 0.06 s of compiling")
    assert not client.alive


def compiling_for(seconds: float) -> Patience:
    return Patience(seconds=60.0, reason="", compiles=lambda: True, compiling=seconds)


def test_ctrl_c_ends_the_children(tmp_path: Path) -> None:
    script = f"""
import signal
from pathlib import Path
from kernelwright.toolchain.records import Target
from kernelwright.problem import load_problem
from kernelwright.worker import JudgeOptions, judge
from kernelwright.worker.options import Watch
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
judge(load_problem(Path({str(HERE / "problems" / "affine.py")!r})),
      Path({str(CANDIDATES / "hangs.py")!r}), target=Target.CPU, floor=None,
      options=JudgeOptions(watch=Watch.NOTHING),
      progress=lambda event: print(event.stage, flush=True))
"""
    parent = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert parent.stdout is not None
    stages = [parent.stdout.readline().strip() for _ in range(2)]
    assert stages == [b"build", b"verify"]
    children = children_of(parent.pid)
    assert len(children) == 2
    os.kill(parent.pid, signal.SIGINT)
    assert parent.wait(20) != 0
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{child}").exists() for child in children):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def children_of(pid: int) -> list[int]:
    """Processes whose parent is `pid`."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found.append(int(stat.parent.name))
    return found


def test_children_die_with_a_parent_that_is_killed() -> None:
    script = """
import os, sys, time
from kernelwright.worker.process.client import Client
from kernelwright.worker.sandbox.confining import Confinement
client = Client("test", os.environ, Confinement())
print(client._process.pid, flush=True)
time.sleep(1000)
"""
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 20
    while Path(f"/proc/{child}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_threads_of_the_log_end_with_the_child() -> None:
    # Threads that other tests left may end meanwhile: only new ones count.
    before = set(threading.enumerate())
    client = Client("test", os.environ, Confinement())
    client.close()
    client.log.text()
    assert set(threading.enumerate()) - before == set()


def test_a_machine_that_cannot_run_children_is_not_the_candidates_fault(
    affine: Problem, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, verdict_of: VerdictOf
) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise ImportError('libcudart is missing')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(ChildStartError, match="libcudart is missing"):
        verdict_of(affine, "correct")
