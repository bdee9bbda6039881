"""The one place for what is built: folders named by the hash of what went into them.

    key = content_key(source, flags, compiler_version)
    folder = cached_build("library", key, lambda folder: compile_into(folder))

A folder that exists is complete: it is filled under another name, flushed to the disk and renamed.
Whoever is killed in the middle leaves a temporary folder that the next build removes, and nothing
else. Processes that want the same thing wait for the first one.

    <cache>/built/<kind>/<key>/   complete results
    <cache>/extensions/<key>/     TORCH_EXTENSIONS_DIR of one candidate (PyTorch fills it)
    <cache>/logs/                 what compilers said
    <cache>/locks/  <cache>/tmp/  housekeeping
"""

import errno
import hashlib
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kernelwright import env
from kernelwright.errors import CacheFolderError, LockTimeoutError
from kernelwright.toolchain.lock import Process, exclusive, this_process

_IN_USE_SECONDS = 900.0
"""Somebody may be about to open an entry used as recently as this; cleaning keeps it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What the cache takes."""

    root: Path
    entries: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaning:
    """What a cleaning did."""

    removed: int
    """Entries removed."""
    freed_bytes: int
    kept: int
    """Entries left."""
    kept_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    path: Path
    bytes: int
    last_used: float
    """Seconds since the epoch."""


def cache_root() -> Path:
    """The cache folder; it need not exist yet."""
    configured = env.CACHE_DIR.get()
    if configured is not None:
        return configured.absolute()
    # Here, because children that are told the folder need not have platformdirs.
    import platformdirs

    return platformdirs.user_cache_path("kernelwright")


def content_key(*parts: str | bytes) -> str:
    """Name for what these texts determine: 32 hexadecimal digits of SHA-256, order significant."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()[:32]


def lookup(kind: str, key: str) -> Path | None:
    """The complete folder built under this key, or None; counts as a use."""
    folder = _built(kind, key)
    try:
        os.utime(folder)
    except FileNotFoundError:
        return None
    except OSError:
        # A cache that somebody else owns can be read, only not marked as used.
        return folder if folder.is_dir() else None
    return folder


def cached_build(kind: str, key: str, build: Callable[[Path], None]) -> Path:
    """The folder of `kind` and `key`, filled by `build` if there is none yet.

    `build` gets an empty folder and fills it; what it raises is passed on and leaves no trace.
    `kind` is a word ("library"), `key` comes from `content_key`.

    Raises LockTimeoutError if another process builds the same for too long, CacheFolderError if
    the cache cannot be written.
    """
    found = lookup(kind, key)
    if found is not None:
        return found
    with locked(kind, key):
        # Whoever held the lock before us has most likely built it.
        return lookup(kind, key) or _build_and_publish(_built(kind, key), build)


@contextmanager
def locked(kind: str, key: str) -> Iterator[None]:
    """Keep other processes from building the same for the length of the block."""
    lock_path = _folder("locks") / f"{kind}-{key}"
    with exclusive(lock_path, what=f"{kind} {key}", timeout=env.LOCK_TIMEOUT.get()):
        yield


def extensions_folder(key: str) -> Path:
    """A folder to hand to PyTorch as TORCH_EXTENSIONS_DIR; made if it is missing."""
    folder = _folder("extensions", key)
    os.utime(folder)
    return folder


def write_log(kind: str, key: str, text: str) -> Path:
    """Keep what a compiler said; returns the file."""
    path = _folder("logs") / f"{kind}-{key}.log"
    path.write_text(text)
    return path


def database_path() -> Path:
    """File of the tuning database; its folder exists."""
    return _folder() / "tuning.sqlite"


def usage() -> Usage:
    """Number and size of the entries."""
    entries = _entries()
    return Usage(
        root=cache_root(), entries=len(entries), bytes=sum(entry.bytes for entry in entries)
    )


def clean(*, max_bytes: int | None = None, max_age_seconds: float | None = None) -> Cleaning:
    """Remove entries older than `max_age_seconds`, then the least recently used above `max_bytes`.

    None is no limit. Entries being built, or used in the last quarter of an hour, stay.
    """
    now = time.time()
    entries = sorted(_entries(), key=lambda entry: entry.last_used)
    kept_bytes = sum(entry.bytes for entry in entries)
    removed = freed_bytes = 0
    for entry in entries:
        idle = now - entry.last_used
        too_old = max_age_seconds is not None and idle > max_age_seconds
        too_much = max_bytes is not None and kept_bytes > max_bytes
        if (too_old or too_much) and idle >= _IN_USE_SECONDS and _remove(entry.path):
            removed += 1
            freed_bytes += entry.bytes
            kept_bytes -= entry.bytes
    _sweep_temporary()
    return Cleaning(
        removed=removed,
        freed_bytes=freed_bytes,
        kept=len(entries) - removed,
        kept_bytes=kept_bytes,
    )


def _built(kind: str, key: str) -> Path:
    return cache_root() / "built" / kind / key


def _folder(*names: str) -> Path:
    folder = cache_root().joinpath(*names)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CacheFolderError(f"cannot make the cache folder {folder}: {error.strerror}") from None
    return folder


def _build_and_publish(destination: Path, build: Callable[[Path], None]) -> Path:
    _sweep_temporary()
    temporary = _new_temporary()
    try:
        build(temporary)
        _flush(temporary)
        _folder("built", destination.parent.name)
        _rename(temporary, destination)
    finally:
        # After the rename there is nothing left to remove.
        shutil.rmtree(temporary, ignore_errors=True)
    return destination


def _rename(temporary: Path, destination: Path) -> None:
    try:
        temporary.rename(destination)
    except OSError as error:
        # Somebody on another host, where our lock is not seen, was faster: the same content.
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise CacheFolderError(f"cannot fill {destination}: {error.strerror}") from error
    _flush_one(destination.parent)


def _new_temporary() -> Path:
    owner = this_process()
    name = f"{owner.pid}.{owner.born}.{uuid.uuid4().hex}.{owner.host}"
    folder = _folder("tmp") / name
    try:
        folder.mkdir()
    except OSError as error:
        raise CacheFolderError(f"cannot write to {folder.parent}: {error.strerror}") from None
    return folder


def _sweep_temporary() -> None:
    """Remove what processes left that died while they were building."""
    for folder in _folder("tmp").iterdir():
        pid, born, _, host = folder.name.split(".", 3)
        if not Process(pid=int(pid), host=host, born=int(born)).alive():
            shutil.rmtree(folder, ignore_errors=True)


def _flush(folder: Path) -> None:
    """Have the whole tree on the disk before its name says that it is complete."""
    for parent, _, names in os.walk(folder):
        for name in names:
            _flush_one(Path(parent, name))
        _flush_one(Path(parent))


def _flush_one(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _entries() -> list[_Entry]:
    root = cache_root()
    found: list[_Entry] = []
    for path in (*root.glob("built/*/*"), *root.glob("extensions/*"), *root.glob("logs/*")):
        try:
            found.append(_Entry(path=path, bytes=_size(path), last_used=path.stat().st_mtime))
        except FileNotFoundError:
            continue  # Removed by somebody else since it was listed.
    return found


def _size(path: Path) -> int:
    files = [path] if path.is_file() else [Path(p, n) for p, _, ns in os.walk(path) for n in ns]
    return sum(file.lstat().st_size for file in files)


def _remove(path: Path) -> bool:
    """Whether the entry could be removed: not while somebody builds it, and only if it is ours."""
    lock_path = _folder("locks") / f"{path.parent.name}-{path.name}"
    doomed = _new_temporary()
    try:
        with exclusive(lock_path, what=str(path), timeout=0.0):
            # In one step, so that nobody ever sees half an entry.
            path.rename(doomed / path.name)
    except (LockTimeoutError, OSError):
        return False
    finally:
        shutil.rmtree(doomed, ignore_errors=True)
    return True
