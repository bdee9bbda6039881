"""Who belongs to a process: everything that any of its threads has started, and what these have."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from kernelwright.worker.sandbox.warden import descendants, family

GRANDCHILD = "import time; time.sleep(60)"
CHILD = f"""
import subprocess, sys, threading, time
def start():
    subprocess.Popen([sys.executable, "-c", "{GRANDCHILD}"]).wait()
threading.Thread(target=start).start()
start()
"""


@pytest.fixture
def child() -> Iterator[int]:
    """A process with two children, one of them started by its second thread."""
    process = subprocess.Popen([sys.executable, "-c", CHILD], start_new_session=True)
    yield process.pid
    os.killpg(process.pid, 9)
    process.wait()


def test_a_family_is_found_by_both_ways(child: int) -> None:
    deadline = time.monotonic() + 20
    while len(family(child)) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert sorted(family(child)) == sorted(descendants(child))
    assert child in family(os.getpid())
    assert family(2**30) == []
