"""Children that are there at once: forks of a process that has imported PyTorch and done no more.

    nursery = Nursery.forked()            # early: one thread, no CUDA, nothing strange has run
    with employed(nursery):
        ...                               # `current()` is what starts children here

Importing PyTorch takes seconds of a core, and a judgement has half a dozen children. A fork of a
process that only imports is as fresh as one that was started: it has its own memory, environment
and descriptors, leads a session of its own, and is the child of whoever asked for it. One that has
LD_PRELOAD in its environment is started anew where the nursery has not loaded the same.

    asker ── nursery ── (a process that ends at once) ── child, which becomes the asker's
"""

import array
import ctypes
import fcntl
import gc
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NoReturn, Protocol, Self

from kernelwright import env
from kernelwright.errors import KernelwrightError
from kernelwright.worker.process.importing import quick_imports

CONVERSATION = 3
"""Descriptor under which a forked child finds what it talks through."""

LOADED_FIRST = "LD_PRELOAD"
"""Variable with the libraries that a process loads before all others."""

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PR_GET_CHILD_SUBREAPER = 37
_LARGEST = 1 << 17
"""Bytes of a request: an environment and a few words."""
_MOST_DESCRIPTORS = 1 << 16
_ASIDE = 64
"""Descriptors from here on are in nobody's way."""
_START_SECONDS = 300.0
_LISTENS = "listening"
_READS_ENVIRONMENT = ("torch.utils.cpp_extension",)
"""Modules that keep what the environment was at their import: each child imports its own."""
_PATIENCE = 5.0
"""Seconds until a child belongs to its asker: the time that a process takes to end."""
_POLL = 0.002


class Process(Protocol):
    """As much of subprocess.Popen as is used of a child."""

    pid: int
    returncode: int | None
    stdin: IO[bytes] | None
    stdout: IO[bytes] | None

    def poll(self) -> int | None:
        """The exit code, None while it runs."""
        ...

    def wait(self, timeout: float | None = None) -> int:
        """The exit code; subprocess.TimeoutExpired if it does not end in time."""
        ...

    def terminate(self) -> None:
        """Send SIGTERM."""
        ...

    def kill(self) -> None:
        """Send SIGKILL."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Birth:
    """What a child is to be."""

    module: str
    """Its `main` is called with `arguments`."""
    arguments: Sequence[str]
    environment: Mapping[str, str]
    folder: str = ""
    """Where it works; "" for where the nursery does."""


class Forked:
    """A child that a nursery has forked for us."""

    def __init__(self, pid: int, stdin: IO[bytes], stdout: IO[bytes]) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.stdin: IO[bytes] | None = stdin
        self.stdout: IO[bytes] | None = stdout
        self._lock = threading.Lock()

    def close_stdin(self) -> None:
        """It reads nothing."""
        assert self.stdin is not None
        self.stdin.close()

    def poll(self) -> int | None:
        """The exit code, None while it runs; minus the signal that ended it."""
        with self._lock:
            if self.returncode is None:
                try:
                    pid, status = os.waitpid(self.pid, os.WNOHANG)
                except ChildProcessError:  # somebody else has heard of its end
                    pid, status = self.pid, 0
                if pid:
                    self.returncode = os.waitstatus_to_exitcode(status)
            return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code; subprocess.TimeoutExpired if it does not end in time."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if deadline is not None and time.monotonic() >= deadline:
                assert timeout is not None
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            time.sleep(_POLL)
        return code

    def terminate(self) -> None:
        """Send SIGTERM."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)


class Nursery:
    """The asker's side of a process that forks children; it ends with us or at `close`."""

    def __init__(self, connection: socket.socket, pid: int, *, adopted_before: int) -> None:
        """`adopted_before`: whether orphans among our children's children were ours already."""
        self._connection = connection
        self._pid = pid
        self._adopted_before = adopted_before
        self._lock = threading.Lock()

    @classmethod
    def forked(cls) -> Self:
        """One that has imported what this process has; only for a process of one thread."""
        adopted_before = _adopt_orphans()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            _end_with(parent)
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's
            _run_to_the_end(theirs)
        theirs.close()
        return cls(ours, pid, adopted_before=adopted_before)

    @classmethod
    def started(cls, modules: Sequence[str], environment: Mapping[str, str]) -> Self:
        """One that imports `modules` first; it ends with the thread that called this."""
        return cls._started(modules, environment)

    @classmethod
    def listening(cls, modules: Sequence[str], environment: Mapping[str, str]) -> Self:
        """A nursery that has loaded the library that counts launches, compiled here if need be.

        Without a compiler it has none, and children that need it start anew.
        """
        return cls._started((_LISTENS, *modules), environment)

    @classmethod
    def _started(cls, words: Sequence[str], environment: Mapping[str, str]) -> Self:
        adopted_before = _adopt_orphans()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            words = [str(theirs.fileno()), str(os.getpid()), *words]
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__, *words],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                env=dict(environment),
            )
        return cls(ours, process.pid, adopted_before=adopted_before)

    def start(self, birth: Birth, conversation: int) -> Forked:
        """A child that has `conversation` as its descriptor 3; ours are its two streams.

        Raises OSError where there is no nursery any more.
        """
        stdin, ours_in = os.pipe()
        ours_out, stdout = os.pipe()
        request = {
            "asker": os.getpid(),
            "module": birth.module,
            "arguments": list(birth.arguments),
            "environment": dict(birth.environment),
            "folder": birth.folder,
        }
        try:
            with self._lock:
                _send(self._connection, request, (stdin, stdout, conversation))
                self._connection.settimeout(_START_SECONDS)
                answer = json.loads(self._connection.recv(_LARGEST) or b"{}")
            if not isinstance(answer.get("pid"), int):
                raise OSError("the nursery has forked nothing")
        except BaseException:
            os.close(ours_in)
            os.close(ours_out)
            raise
        finally:
            os.close(stdin)
            os.close(stdout)
        return Forked(answer["pid"], os.fdopen(ours_in, "wb", 0), os.fdopen(ours_out, "rb", 0))

    def close(self) -> None:
        """End it; its children stay."""
        self._connection.close()
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(self._pid, 0)
        # Else whatever loses its parent from now on would be ours, and nobody here asks for it.
        _prctl(_PR_SET_CHILD_SUBREAPER, self._adopted_before)


_current: ContextVar[Nursery | None] = ContextVar("nursery", default=None)
_listening: ContextVar[Nursery | None] = ContextVar("listening nursery", default=None)


def current(environment: Mapping[str, str] | None = None) -> Nursery | None:
    """Where children with that environment come from here; None where each is started anew."""
    listening = _listening.get() if LOADED_FIRST in (environment or {}) else None
    return listening or _current.get()


@contextmanager
def employed(nursery: Nursery, listening: Nursery | None = None) -> Iterator[None]:
    """Let children of this context come from `nursery`, which is closed at the end.

    Those that load a library before all others come from `listening`, if there is one.
    """
    tokens = _current.set(nursery), _listening.set(listening)
    try:
        yield
    finally:
        for variable, token in zip((_current, _listening), tokens, strict=True):
            variable.reset(token)
        nursery.close()
        if listening is not None:
            listening.close()


def may_fork() -> bool:
    """Whether this process has one thread: of others a fork has the locks and not the threads."""
    return len(list(Path("/proc/self/task").iterdir())) == 1


# --- In the nursery ----------------------------------------------------------------------------


def main(arguments: list[str]) -> NoReturn:
    """`python -m kernelwright.worker.process.nursery DESCRIPTOR PARENT [listening] MODULES...`"""
    descriptor, parent, *modules = arguments
    _end_with(int(parent))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's
    if modules[:1] == [_LISTENS]:
        _become_listener([descriptor, parent, *modules[1:]])
    connection = socket.socket(fileno=int(descriptor))
    with quick_imports():
        for name in modules:
            importlib.import_module(name)
    if not may_fork():
        sys.exit(f"importing {', '.join(modules)} started a thread: nothing is forked")
    _run_to_the_end(connection)


def _become_listener(arguments: list[str]) -> NoReturn:
    """Start anew with the library that counts launches, once that and the guards' are compiled."""
    from kernelwright.toolchain.guards import guards_library
    from kernelwright.toolchain.launches import launches_library

    with ThreadPoolExecutor(max_workers=1) as beside:
        beside.submit(guards_library)  # who needs it hears why there is none
        with suppress(KernelwrightError):
            env.put_first(LOADED_FIRST, str(launches_library()))
    command = [sys.executable, "-P", "-m", "kernelwright.worker.process.nursery", *arguments]
    os.execv(sys.executable, command)


def _run_to_the_end(connection: socket.socket) -> NoReturn:
    """Fork children as long as somebody asks."""
    gc.freeze()  # else a child that collects its garbage looks at, and copies, all that is here
    kept = connection.fileno()
    os.closerange(CONVERSATION, kept)
    os.closerange(kept + 1, _MOST_DESCRIPTORS)
    while True:
        try:
            request, descriptors = _receive(connection)
        except (OSError, ValueError):
            os._exit(0)
        reading, writing = os.pipe()
        between = os.fork()
        if between == 0:
            child = os.fork()
            if child:
                os.write(writing, str(child).encode())
                os._exit(0)
            _become(request, descriptors)
        os.close(writing)
        for descriptor in descriptors:
            os.close(descriptor)
        os.waitpid(between, 0)
        pid = os.read(reading, 32)
        os.close(reading)
        with suppress(OSError):
            connection.send(json.dumps({"pid": int(pid)} if pid else {}).encode())


def _become(request: Mapping[str, object], descriptors: Sequence[int]) -> NoReturn:
    """Be the child that was asked for, to its end."""
    code = 1
    try:
        os.setsid()
        _place(descriptors)
        env.become(_texts(request["environment"]))
        for name in _READS_ENVIRONMENT:
            sys.modules.pop(name, None)
        if request["folder"]:
            os.chdir(str(request["folder"]))
        _wait_for_parent(int(str(request["asker"])))
        signal.signal(signal.SIGINT, signal.default_int_handler)
        words, module = request["arguments"], str(request["module"])
        assert isinstance(words, list)
        if _has_lost_cuda() or not _has_loaded(_texts(request["environment"])):
            os.execv(sys.executable, [sys.executable, "-P", "-m", module, *map(str, words)])
        importlib.import_module(module).main([str(word) for word in words])
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _has_lost_cuda() -> bool:
    """Whether a module has asked the driver something when it was imported: no fork may any more.

    Such a child starts anew, as it would have done without a nursery.
    """
    cuda = sys.modules.get("torch.cuda")
    return cuda is not None and bool(cuda._is_in_bad_fork())


def _has_loaded(environment: Mapping[str, str]) -> bool:
    """Whether what the child is to load before all else is here: the nursery had to load it so."""
    try:
        for library in environment.get(LOADED_FIRST, "").replace(":", " ").split():
            ctypes.CDLL(library, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        return False
    return True


def _place(descriptors: Sequence[int]) -> None:
    """Standard streams and the conversation to where they belong; nothing else stays open."""
    stdin, output, conversation = map(_aside, descriptors)
    for number, source in enumerate((stdin, output, output, conversation)):
        os.dup2(source, number)
    os.closerange(CONVERSATION + 1, _MOST_DESCRIPTORS)


def _aside(descriptor: int) -> int:
    """A copy that no descriptor of a child overwrites."""
    return fcntl.fcntl(descriptor, fcntl.F_DUPFD, _ASIDE)


def _wait_for_parent(asker: int) -> None:
    """Until the process between has ended, so that the end of our parent is that of the asker."""
    deadline = time.monotonic() + _PATIENCE
    while os.getppid() != asker:
        if time.monotonic() > deadline:
            os._exit(1)  # there is no asker any more
        time.sleep(_POLL / 4)


def _texts(value: object) -> dict[str, str]:
    assert isinstance(value, dict)
    return {str(name): str(text) for name, text in value.items()}


def _end_with(parent: int) -> None:
    """End when the parent does."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


# --- Messages with descriptors -----------------------------------------------------------------


def _send(connection: socket.socket, message: object, descriptors: Sequence[int]) -> None:
    packed = array.array("i", descriptors)
    with_them = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, packed)]
    connection.sendmsg([json.dumps(message).encode()], with_them)


def _receive(connection: socket.socket) -> tuple[dict[str, object], list[int]]:
    """OSError or ValueError when nobody is there any more."""
    room = socket.CMSG_LEN(3 * array.array("i").itemsize)
    data, ancillary, _, _ = connection.recvmsg(_LARGEST, room)
    packed = array.array("i")
    for _, _, part in ancillary:
        packed.frombytes(part)
    request = json.loads(data)
    if not isinstance(request, dict) or len(packed) != 3:
        raise ValueError("no request")
    return request, list(packed)


def _adopt_orphans() -> int:
    """Become the parent of children's children that lose theirs; whether we were so before."""
    before = ctypes.c_int()
    ctypes.CDLL(None).prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(before), 0, 0, 0)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    return before.value


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    main(sys.argv[1:])
