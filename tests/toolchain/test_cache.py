"""The cache under concurrency, crashes and cleaning, with real processes."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kernelwright.errors import CacheFolderError, LockTimeoutError
from kernelwright.toolchain.cache import (
    cache_root,
    cached_build,
    clean,
    content_key,
    extensions_folder,
    lookup,
    usage,
    write_log,
)
from kernelwright.toolchain.lock import read_holder

# A process that builds the entry of its first argument and then does as its second one says.
_BUILDER = """
import os, signal, subprocess, sys, time
from pathlib import Path
from kernelwright.toolchain.cache import cached_build

key, behaviour, journal = sys.argv[1:]

def lend_lock_to_a_child():
    for link in Path("/proc/self/fd").iterdir():
        if link.exists() and link.readlink().parent.name == "locks":
            subprocess.Popen(["sleep", "60"], pass_fds=[int(link.name)], stdout=subprocess.DEVNULL)
            return
    raise AssertionError("no lock is held")

def build(folder):
    if behaviour == "lend the lock and hang":
        lend_lock_to_a_child()
    with open(journal, "a") as lines:
        lines.write(f"{os.getpid()}\\n")
    (folder / "part").write_text("half")
    match behaviour:
        case "slow":
            time.sleep(0.3)
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case _:
            time.sleep(60)
    (folder / "whole").write_text("done")

print(cached_build("library", key, build))
"""


def _start(key: str, behaviour: str, journal: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _BUILDER, key, behaviour, str(journal)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)


def _wait_for(journal: Path) -> None:
    deadline = time.monotonic() + 10
    while not (journal.is_file() and journal.read_text()):
        assert time.monotonic() < deadline, "the builder did not start"
        time.sleep(0.01)


def _fill(folder: Path) -> None:
    (folder / "whole").write_text("ours")


def test_keys_depend_on_content_order_and_boundaries() -> None:
    keys = [content_key("a", "b"), content_key("b", "a"), content_key("ab"), content_key("ab", "")]
    assert len(set(keys)) == 4
    assert content_key("a", b"b") == keys[0]
    assert len(keys[0]) == 32


def test_builds_once_and_returns_the_folder(cache: Path) -> None:
    key = content_key("x")
    assert lookup("library", key) is None
    folder = cached_build("library", key, _fill)
    assert folder == cache / "built" / "library" / key == lookup("library", key)
    again = cached_build("library", key, lambda folder: pytest.fail("built twice"))
    assert again == folder
    assert (folder / "whole").read_text() == "ours"
    assert cached_build("cubin", key, _fill) != folder


def test_a_failing_build_leaves_nothing_and_can_be_repeated(cache: Path) -> None:
    key = content_key("x")

    def fail(folder: Path) -> None:
        (folder / "part").write_text("half")
        raise RuntimeError("compiler says no")

    with pytest.raises(RuntimeError, match="compiler says no"):
        cached_build("library", key, fail)
    assert lookup("library", key) is None
    assert list((cache / "tmp").iterdir()) == []
    assert (cached_build("library", key, _fill) / "whole").exists()


def test_many_processes_build_once(cache: Path, tmp_path: Path) -> None:
    key, journal = content_key("x"), tmp_path / "journal"
    builders = [_start(key, "slow", journal) for _ in range(5)]
    folders = {builder.communicate(timeout=30)[0].strip() for builder in builders}
    assert folders == {str(cache / "built" / "library" / key)}
    assert len(journal.read_text().splitlines()) == 1


def test_killed_in_the_middle_leaves_nothing_broken(cache: Path, tmp_path: Path) -> None:
    key, journal = content_key("x"), tmp_path / "journal"
    killed = _start(key, "killed", journal)
    assert killed.wait(timeout=30) == -signal.SIGKILL
    killed.communicate()
    assert lookup("library", key) is None
    assert len(list((cache / "tmp").iterdir())) == 1

    started = time.monotonic()
    folder = cached_build("library", key, _fill)
    assert time.monotonic() - started < 2.0, "waited for a dead process"
    assert sorted(path.name for path in folder.iterdir()) == ["whole"]
    assert list((cache / "tmp").iterdir()) == []


def test_a_lock_that_an_orphan_keeps_is_taken_over(cache: Path, tmp_path: Path) -> None:
    key, journal = content_key("x"), tmp_path / "journal"
    builder = _start(key, "lend the lock and hang", journal)
    _wait_for(journal)
    try:
        os.kill(builder.pid, signal.SIGKILL)
        builder.wait(timeout=10)
        started = time.monotonic()
        assert (cached_build("library", key, _fill) / "whole").read_text() == "ours"
        assert time.monotonic() - started < 5.0
    finally:
        os.killpg(builder.pid, signal.SIGKILL)
        builder.communicate()


def test_waiting_too_long_says_for_whom(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, journal = content_key("x"), tmp_path / "journal"
    monkeypatch.setenv("KERNELWRIGHT_LOCK_TIMEOUT", "0.2")
    builder = _start(key, "hang", journal)
    _wait_for(journal)
    try:
        with pytest.raises(LockTimeoutError) as raised:
            cached_build("library", key, _fill)
    finally:
        os.killpg(builder.pid, signal.SIGKILL)
        builder.communicate()
    assert f"library {key}, locked by process {builder.pid} on " in raised.value.message
    assert sys.executable in raised.value.message
    assert (cached_build("library", key, _fill) / "whole").exists()
    assert read_holder(cache / "locks" / f"library-{key}") is None


def test_a_folder_that_cannot_be_made_is_an_error_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocker = tmp_path / "file"
    blocker.touch()
    monkeypatch.setenv("KERNELWRIGHT_CACHE_DIR", str(blocker / "cache"))
    with pytest.raises(CacheFolderError, match=f"{blocker}/cache"):
        cached_build("library", content_key("x"), _fill)


def test_a_lock_that_cannot_be_made_is_an_error_that_names_it(cache: Path) -> None:
    key = content_key("x")
    blocker = cache / "locks" / f"library-{key}"
    blocker.mkdir(parents=True)
    with pytest.raises(CacheFolderError, match=f"cannot lock {blocker}"):
        cached_build("library", key, _fill)


def test_default_root_is_the_users_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("KERNELWRIGHT_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_root() == tmp_path / "kernelwright"


def _entry(name: str, *, kilobytes: int, hours_ago: float) -> Path:
    def build(folder: Path) -> None:
        (folder / "data").write_bytes(bytes(1024 * kilobytes))

    folder = cached_build("library", content_key(name), build)
    _age(folder, hours_ago)
    return folder


def _age(path: Path, hours: float) -> None:
    then = time.time() - 3600 * hours
    os.utime(path, (then, then))


def test_cleaning_by_age_keeps_what_was_used_since(cache: Path) -> None:
    old = _entry("old", kilobytes=1, hours_ago=50)
    used = _entry("used", kilobytes=1, hours_ago=50)
    log = write_log("library", "k", "what the compiler said")
    _age(log, 50)
    extension = extensions_folder("e")
    _age(extension, 50)
    assert lookup("library", used.name) == used

    done = clean(max_age_seconds=24 * 3600)
    assert (done.removed, done.kept) == (3, 1)
    assert not old.exists() and not log.exists() and not extension.exists()
    assert used.exists()
    assert list((cache / "tmp").iterdir()) == []


def test_cleaning_by_size_removes_the_least_recently_used(cache: Path) -> None:
    entries = [_entry(str(i), kilobytes=10, hours_ago=9 - i) for i in range(4)]
    assert (usage().entries, usage().bytes) == (4, 4 * 10240)
    done = clean(max_bytes=2 * 10240)
    assert (done.removed, done.freed_bytes, done.kept_bytes) == (2, 2 * 10240, 2 * 10240)
    assert [entry.exists() for entry in entries] == [False, False, True, True]


def test_cleaning_spares_what_is_in_use(cache: Path, tmp_path: Path) -> None:
    fresh = _entry("fresh", kilobytes=1, hours_ago=0)
    journal = tmp_path / "journal"
    key = content_key("building")
    builder = _start(key, "hang", journal)
    _wait_for(journal)
    # The same entry, made by somebody who did not see the lock: the builder may be about to use it.
    published = cache / "built" / "library" / key
    published.mkdir(parents=True)
    _age(published, 9)
    try:
        assert clean(max_bytes=0, max_age_seconds=0).removed == 0
        assert len(list((cache / "tmp").iterdir())) == 1, "the live builder's folder was removed"
    finally:
        os.killpg(builder.pid, signal.SIGKILL)
        builder.communicate()
    assert fresh.exists() and published.exists()
    assert clean(max_bytes=0).removed == 1
    assert not published.exists() and list((cache / "tmp").iterdir()) == []
