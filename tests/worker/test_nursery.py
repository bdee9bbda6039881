"""Forked children: fresh, ours, alone with what they were given, and gone with whoever asked."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from kernelwright.problem import load_problem
from kernelwright.suite.process import IMPORTED
from kernelwright.toolchain.launches import launches_library
from kernelwright.toolchain.records import Target
from kernelwright.verify.cases import Case
from kernelwright.verify.verdict import Status
from kernelwright.worker import JudgeOptions, judge
from kernelwright.worker.options import Watch
from kernelwright.worker.process.nursery import (
    CONVERSATION,
    LOADED_FIRST,
    Birth,
    Forked,
    Nursery,
    current,
    employed,
)

CHILD = """
import ctypes, gc, json, os, signal, sys, time

BEFORE = os.getpid()

def main(arguments):
    facts = {
        "arguments": arguments,
        "pid": os.getpid(),
        "parent": os.getppid(),
        "session": os.getsid(0),
        "imported by": BEFORE,
        "folder": os.getcwd(),
        "environment": dict(os.environ),
        "open": sorted(int(it) for it in os.listdir("/proc/self/fd")),
        "read": sys.stdin.read(),
        "left to look at": len(gc.get_objects()),
        "watches": hasattr(ctypes.CDLL(None), "kw_launches_know"),
    }
    print("printed")
    match arguments[0]:
        case "tell":
            os.write(3, json.dumps(facts).encode())
        case "tell what has":
            known = [
                f"{module.__name__}.{name}"
                for module in list(sys.modules.values())
                if getattr(module, "__name__", "site") != "site"  # where packages are: not written
                for name, value in list(getattr(module, "__dict__", {}).items())
                if isinstance(value, (str, bytes, os.PathLike)) and arguments[1] in str(value)
            ]
            os.write(3, json.dumps(known).encode())
        case "leave":
            sys.exit(7)
        case "raise":
            raise ValueError("wrong")
        case "die":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "sleep":
            os.write(3, b"asleep")
            time.sleep(60)

if __name__ == "__main__":
    main(sys.argv[1:])
"""
_WITH_CACHES = ("exploits/honest/scratch_files", "exploits/honest/compiled")
ENVIRONMENT = {"PATH": os.defpath, "ONLY": "this"}


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("modules")
    (folder / "nursery_child.py").write_text(CHILD)
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}


@pytest.fixture(scope="module")
def nursery(environment: dict[str, str]) -> Iterator[Nursery]:
    started = Nursery.started(["nursery_child"], environment)
    yield started
    started.close()


def start(
    nursery: Nursery,
    *arguments: str,
    folder: str = "",
    environment: Mapping[str, str] = ENVIRONMENT,
) -> tuple[Forked, socket.socket]:
    ours, theirs = socket.socketpair()
    birth = Birth(
        module="nursery_child", arguments=arguments, environment=environment, folder=folder
    )
    with theirs:
        child = nursery.start(birth, theirs.fileno())
    child.close_stdin()
    return child, ours


def test_a_child_is_ours_and_has_only_what_it_was_given(nursery: Nursery, tmp_path: Path) -> None:
    child, conversation = start(nursery, "tell", "x", folder=str(tmp_path))
    facts = json.loads(conversation.recv(1 << 16))
    assert child.stdout is not None
    assert child.stdout.read() == b"printed\n"
    assert child.wait(10) == 0
    assert facts["pid"] == child.pid == facts["session"]
    assert facts["parent"] == os.getpid()
    assert facts["imported by"] not in (child.pid, os.getpid())
    assert facts["arguments"] == ["tell", "x"]
    assert facts["folder"] == str(tmp_path)
    assert {"ONLY": "this"}.items() <= facts["environment"].items()
    assert "HOME" not in facts["environment"]
    # The last one is that of the listing itself.
    assert facts["open"][:-1] == [0, 1, 2, CONVERSATION]
    assert facts["read"] == ""


def test_a_child_whose_cuda_is_lost_starts_anew(nursery: Nursery, tmp_path: Path) -> None:
    """A module of the name of torch.cuda that says so, where a real one would have to break."""
    (tmp_path / "nursery_child.py").write_text(
        "import os, sys\nif __name__ == '__main__':\n"
        "    os.write(3, ' '.join([str(os.getpid()), *sys.argv[1:]]).encode())\n"
    )
    fake = "import sys, types; sys.modules['torch.cuda'] = types.SimpleNamespace("
    (tmp_path / "poison.py").write_text(f"{fake}_is_in_bad_fork=lambda: True)\n")
    path = {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    poisoned = Nursery.started(["poison"], {**os.environ, **path})
    ours, theirs = socket.socketpair()
    birth = Birth(module="nursery_child", arguments=["again"], environment={**ENVIRONMENT, **path})
    with theirs:
        child = poisoned.start(birth, theirs.fileno())
    child.close_stdin()
    assert ours.recv(100).decode() == f"{child.pid} again"
    assert child.wait(10) == 0
    poisoned.close()


def test_nothing_is_forked_where_importing_started_a_thread(
    environment: dict[str, str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "threaded.py").write_text(
        "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )
    path = os.pathsep.join([str(tmp_path), environment["PYTHONPATH"]])
    nursery = Nursery.started(["threaded"], {**environment, "PYTHONPATH": path})
    with pytest.raises((OSError, ValueError)):
        start(nursery, "tell")
    nursery.close()
    assert "importing threaded started a thread" in capfd.readouterr().err


def test_a_child_does_not_look_for_garbage_among_what_was_imported(
    environment: dict[str, str],
) -> None:
    alone = {**environment, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    nursery = Nursery.started(["nursery_child", "torch"], alone)
    child, conversation = start(nursery, "tell")
    assert json.loads(conversation.recv(1 << 16))["left to look at"] < 10_000
    assert child.wait(10) == 0
    nursery.close()


@pytest.mark.parametrize("has_it", [True, False])
def test_what_is_loaded_first_is_loaded_in_the_nursery_or_the_child_starts_anew(
    environment: dict[str, str], has_it: bool
) -> None:
    preload = {LOADED_FIRST: str(launches_library())}
    nursery = Nursery.started(["nursery_child"], {**environment, **(preload if has_it else {})})
    child, conversation = start(nursery, "tell", environment={**environment, **preload})
    facts = json.loads(conversation.recv(1 << 16))
    assert child.wait(10) == 0
    assert facts["watches"]
    assert (facts["imported by"] != facts["pid"]) == has_it
    nursery.close()


def test_a_nursery_that_listens_loads_the_library_by_itself(environment: dict[str, str]) -> None:
    preload = {LOADED_FIRST: str(launches_library())}
    plain = Nursery.started(["nursery_child"], environment)
    with employed(plain, Nursery.listening(["nursery_child"], environment)):
        assert current() is plain
        nursery = current(preload)
        assert nursery is not None
        child, conversation = start(nursery, "tell", environment={**environment, **preload})
        facts = json.loads(conversation.recv(1 << 16))
        assert child.wait(10) == 0
    assert facts["watches"]
    assert facts["imported by"] != facts["pid"]
    assert current(preload) is None


@pytest.mark.parametrize(
    ("word", "code", "said"),
    [("leave", 7, ""), ("raise", 1, "ValueError: wrong"), ("die", -signal.SIGSEGV, "")],
)
def test_how_a_child_ends_is_known(nursery: Nursery, word: str, code: int, said: str) -> None:
    child, _ = start(nursery, word)
    assert child.stdout is not None
    assert said in child.stdout.read().decode()
    assert child.wait(10) == code == child.poll()


def test_a_child_is_ended(nursery: Nursery) -> None:
    child, conversation = start(nursery, "sleep")
    assert conversation.recv(6) == b"asleep"
    assert child.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(0.05)
    child.terminate()
    assert child.wait(10) == -signal.SIGTERM
    child.kill()  # of one that has ended: nothing


def test_children_do_not_see_what_others_have_changed(nursery: Nursery) -> None:
    seen = []
    for _ in range(2):
        child, conversation = start(nursery, "tell")
        seen.append(json.loads(conversation.recv(1 << 16)))
        child.wait(10)
    assert seen[0]["pid"] != seen[1]["pid"]
    assert seen[0]["environment"] == seen[1]["environment"]


ASKER = """
import os
from kernelwright.worker.process.nursery import Birth, Nursery, current, employed
with employed(Nursery.forked()):
    birth = Birth(module="nursery_child", arguments=["tell"], environment={})
    child = current().start(birth, os.pipe()[1])
    child.close_stdin()
    assert child.wait(10) == 0
assert current() is None
print(open(f"/proc/self/task/{os.getpid()}/children").read().split())
"""


def test_a_fork_of_this_process_ends_with_its_employment(environment: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ASKER],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
    )
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


@pytest.fixture(scope="module")
def forks(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Children are forks of what a suite forks them from; the folder that its environment names."""
    before = tmp_path_factory.mktemp("before_the_fork")
    own = {**environment, "OMP_NUM_THREADS": "1", **dict.fromkeys(_FOLDERS, str(before))}
    with employed(Nursery.started(["nursery_child", *IMPORTED], own)):
        yield before


_FOLDERS = ("HOME", "TMPDIR", "XDG_CACHE_HOME", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")


def test_a_child_keeps_no_folder_of_the_environment_before(forks: Path) -> None:
    nursery = current()
    assert nursery is not None
    child, conversation = start(nursery, "tell what has", str(forks))
    assert json.loads(conversation.recv(1 << 16)) == []
    assert child.wait(10) == 0


@pytest.mark.parametrize("name", ["worker/candidates/correct", *_WITH_CACHES])
def test_a_judgement_with_forked_children(name: str, forks: Path) -> None:
    """Those that compile and keep files do so in their own folders."""
    del forks
    tests = Path(__file__).parents[1]
    problem = "exploits/problems/softmax" if name in _WITH_CACHES else "worker/problems/affine"
    verdict, _ = judge(
        load_problem(tests / f"{problem}.py"),
        tests / f"{name}.py",
        target=Target.CPU,
        floor=None,
        options=JudgeOptions(watch=Watch.NOTHING, cases=(Case(),), variant_bytes=1 << 15),
        progress=lambda event: None,
    )
    assert verdict.status is Status.VERIFIED, verdict.summary
    isolation = next(check for check in verdict.checks if check.name == "isolation")
    assert "a process of its own" in isolation.evidence


def test_orphans_are_nobodys_here_once_it_is_closed() -> None:
    script = """
import ctypes, os
from kernelwright.worker.process.nursery import Nursery

def adopts():
    value = ctypes.c_int()
    ctypes.CDLL(None).prctl(37, ctypes.byref(value), 0, 0, 0)  # PR_GET_CHILD_SUBREAPER
    return value.value

nursery = Nursery.started((), os.environ)
while_open = adopts()
nursery.close()
print(while_open, adopts())
"""
    words = [sys.executable, "-c", script]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "0"]
