"""What a confined process cannot do, tried in processes that import no torch."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kernelwright.problem import Problem
from kernelwright.toolchain.records import Target
from kernelwright.verify.cases import Case
from kernelwright.verify.observation import Fault, FaultKind
from kernelwright.verify.verdict import Outcome, Verdict
from kernelwright.worker import JudgeOptions, judge
from kernelwright.worker.judging.session import ChildSession
from kernelwright.worker.options import Watch
from kernelwright.worker.sandbox.confining import Protection, Started
from kernelwright.worker.sandbox.landlock import version
from kernelwright.worker.sandbox.report import isolation_check
from kernelwright.worker.sandbox.warden import TOO_MANY_PROCESSES, TOO_MUCH_MEMORY

CANDIDATES = Path(__file__).parent / "candidates"

landlock = pytest.mark.skipif(version() < 1, reason="this kernel has no Landlock")
scopes = pytest.mark.skipif(version() < 6, reason="Landlock of this kernel knows no signals")

PROLOGUE = """
import ctypes, os, signal, socket, subprocess, sys, time
from kernelwright.worker.sandbox.confining import Confinement, Trust, confine
print([it.missing for it in confine(Confinement(
    trust=Trust.STRANGER, writable=(sys.argv[1],), file_bytes=1 << 20))])
"""


def confined(script: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `script` after it confined itself to writing in `folder`."""
    return subprocess.run(
        [sys.executable, "-c", PROLOGUE + script, str(folder), *arguments],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )


@scopes
def test_every_protection_is_in_force_here(tmp_path: Path) -> None:
    assert confined("", tmp_path).stdout == "['', '', '', '', '']\n"


@landlock
def test_writing_only_to_its_own_folders(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    for folder in (inside, outside):
        folder.mkdir()
        (folder / "kept").write_text("as it was")
    script = """
outside = sys.argv[2]
open(sys.argv[1] + "/new", "w").write("fine")
open("/dev/null", "w").write("fine")
print(open(outside + "/kept").read())
for attempt in (
    lambda: open(outside + "/new", "w"),
    lambda: open(outside + "/kept", "w"),
    lambda: os.truncate(outside + "/kept", 0),
    lambda: os.unlink(outside + "/kept"),
    lambda: os.rename(outside + "/kept", sys.argv[1] + "/stolen"),
    lambda: os.mkdir(outside + "/folder"),
    lambda: os.symlink("/etc", outside + "/link"),
    lambda: open("/dev/shm/kernelwright-test", "w"),
):
    try:
        attempt()
        print("done")
    except OSError as error:
        print(type(error).__name__)
"""
    run = confined(script, inside, str(outside))
    said = run.stdout.splitlines()[1:]
    assert said[0] == "as it was", run.stderr
    assert len(said) == 9
    assert "done" not in said
    assert (inside / "new").read_text() == "fine"
    assert [path.name for path in outside.iterdir()] == ["kept"]
    assert (outside / "kept").read_text() == "as it was"


def test_what_it_starts_is_confined_as_well(tmp_path: Path) -> None:
    script = "print(subprocess.run(['cat', '/proc/self/status'], capture_output=True).stdout)"
    words = confined(script, tmp_path).stdout.replace("\\t", "").split("\\n")
    assert "NoNewPrivs:1" in words
    assert "Seccomp:2" in words


@pytest.mark.parametrize(
    "attempt",
    [
        "socket.socket(socket.AF_INET, socket.SOCK_STREAM)",
        "socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)",
        "socket.socket(socket.AF_UNIX, socket.SOCK_STREAM).connect(sys.argv[1])",
        "socket.create_server(('127.0.0.1', 0))",
        "time.clock_settime(time.CLOCK_REALTIME, time.time())",
        "open('/proc/%s/mem' % os.getppid(), 'rb').read(1)",
    ],
)
def test_no_network_no_clock_no_foreign_memory(tmp_path: Path, attempt: str) -> None:
    run = confined(f"\n{attempt}\nprint('done')", tmp_path)
    assert "done" not in run.stdout
    assert "PermissionError" in run.stderr


def test_connected_pairs_of_sockets_are_left(tmp_path: Path) -> None:
    assert "True" in confined("print(len(socket.socketpair()) == 2)", tmp_path).stdout


@scopes
def test_no_signals_to_the_outside(tmp_path: Path) -> None:
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        run = confined("os.kill(int(sys.argv[2]), signal.SIGKILL)", tmp_path, str(other.pid))
        assert "PermissionError" in run.stderr
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_files_have_a_largest_size(tmp_path: Path) -> None:
    run = confined(
        """
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
try:
    open(sys.argv[1] + "/big", "wb").write(bytes(2 << 20))
except OSError as error:
    print(error.strerror)
""",
        tmp_path,
    )
    assert "File too large" in run.stdout
    assert (tmp_path / "big").stat().st_size <= 1 << 20


WARDED = """
import os, sys, time
from kernelwright.worker.sandbox.confining import Confinement
from kernelwright.worker.sandbox.warden import fork_under_warden
fork_under_warden(Confinement(memory_bytes=200 << 20, processes=8))
"""


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("hold = bytearray(b'1') * (400 << 20); time.sleep(60)", TOO_MUCH_MEMORY),
        ("[os.fork() or time.sleep(60) for _ in range(10)]; time.sleep(60)", TOO_MANY_PROCESSES),
        ("sys.exit(5)", 5),
        ("os.fork() or (os.setsid(), time.sleep(60)); os._exit(0)", 0),
        ("os.abort()", -6),
        ("os.kill(os.getpid(), 11)", -11),
    ],
    ids=["memory", "processes", "exits", "leaves an orphan", "aborts", "segfaults"],
)
def test_a_warden_ends_as_its_child_and_leaves_nothing(script: str, code: int) -> None:
    start = time.monotonic()
    warden = subprocess.run([sys.executable, "-c", WARDED + script], timeout=30, check=False)
    assert warden.returncode == code
    assert time.monotonic() - start < 20
    assert processes_named(WARDED.strip()[:20].encode()) == []


def test_a_frozen_child_stands_still_and_can_be_ended(affine: Problem, tmp_path: Path) -> None:
    options = JudgeOptions(watch=Watch.NOTHING)
    good = CANDIDATES / "correct.py"
    with ChildSession(affine, Target.CPU, options, tmp_path) as session:
        session.admit(good)
        assert session.build().fault is None
        child = session.candidate
        assert child.started is not None
        stat = Path(f"/proc/{child.started.pid}/stat")
        child.freeze()
        deadline = time.monotonic() + 10
        while stat.read_text().rpartition(")")[2].split()[0] != "T":
            assert time.monotonic() < deadline
            time.sleep(0.01)
        child.thaw()
        assert session.build().fault is None
        child.freeze()
        child.close()
        while stat.exists():
            assert time.monotonic() < deadline + 10
            time.sleep(0.01)


def test_a_missing_protection_is_named() -> None:
    held = Protection(name="network", missing="")
    lost = Protection(name="files", missing="this kernel has no Landlock")
    check = isolation_check(Started(pid=1, protections=(held, lost)))
    assert check.outcome is Outcome.WARNING
    assert "not in force (this kernel has no Landlock)" in check.evidence
    assert "no network" in check.evidence
    assert isolation_check(Started(pid=1, protections=(held,))).outcome is Outcome.PASSED
    assert isolation_check(None).outcome is Outcome.SKIPPED


def verdict_of(problem: Problem, name: str, **changes: object) -> Verdict:
    options = JudgeOptions(watch=Watch.NOTHING, cases=(Case(),), **changes)  # type: ignore[arg-type]
    verdict, _ = judge(
        problem,
        CANDIDATES / f"{name}.py",
        target=Target.CPU,
        floor=None,
        options=options,
        progress=lambda event: None,
    )
    return verdict


def test_a_fork_bomb_is_a_fault_and_leaves_nothing(affine: Problem, tmp_path: Path) -> None:
    # Below the judgement, whose look at the text finds the fork before it is run.
    options = JudgeOptions(watch=Watch.NOTHING, processes=20)
    bomb = CANDIDATES / "fork_bomb.py"
    with ChildSession(affine, Target.CPU, options, tmp_path) as session:
        session.admit(bomb)
        assert session.build().fault is None
        observation = session.run(Case())
    assert isinstance(observation.candidate, Fault)
    assert observation.candidate.kind is FaultKind.CRASH
    assert "more than 20 processes" in observation.candidate.message
    deadline = time.monotonic() + 10
    while processes_named(b"kernelwright.worker.roles.child"):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def processes_named(word: bytes) -> list[int]:
    """Processes below this one with the word in their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            environment = (entry / "environ").read_bytes()
            if word in (entry / "cmdline").read_bytes() and _MARK in environment:
                found.append(int(entry.name))
        except OSError:
            continue
    return found


_MARK = f"KERNELWRIGHT_TEST_MARK={os.getpid()}".encode()


@pytest.fixture(autouse=True)
def _marked(monkeypatch: pytest.MonkeyPatch) -> None:
    name, _, value = _MARK.decode().partition("=")
    monkeypatch.setenv(name, value)


def test_a_forged_reply_is_found(affine: Problem) -> None:
    verdict = verdict_of(affine, "forges_reply")
    assert not verdict.status.verified
