"""Which problems a suite has: files found below a folder, chosen by patterns and shards."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from kernelwright.errors import UsageError
from kernelwright.suite.task import Settings, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A problem file."""

    name: str
    """Its path below the folder of the suite, without the ending."""
    path: Path

    @property
    def level(self) -> str:
        """The folder that it lies in, "" at the top."""
        return self.name.rpartition("/")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """Every `count`-th problem, beginning with number `index`."""

    index: int = 0
    count: int = 1

    @classmethod
    def parse(cls, text: str) -> "Shard":
        """From "2/4", the third of four: counted from 0."""
        index, _, count = text.partition("/")
        if not (index.isdecimal() and count.isdecimal() and int(index) < int(count)):
            step = "Write I/N with I from 0 to N - 1: --shard 0/4."
            raise UsageError(f"{text!r} is no shard", next_step=step)
        return cls(index=int(index), count=int(count))


def find_problems(
    places: Sequence[Path], patterns: Sequence[str] = (), shard: Shard | None = None
) -> list[Found]:
    """The problem files at `places`: folders are searched, files taken as they are.

    A pattern like "level1/*" or "*relu*" is matched with the whole name and with its last part.
    Files named `*_new.py`, `_*` and what lies in hidden folders are no problems. Raises UsageError
    if nothing is left, or if two have the same name.
    """
    found = [problem for place in places for problem in _at(place.absolute())]
    names = [problem.name for problem in found]
    if doubled := sorted({name for name in names if names.count(name) > 1}):
        step = "Name one folder that holds both, so that their paths differ."
        raise UsageError(f"two problems are called {doubled[0]}", next_step=step)
    chosen = [it for it in found if not patterns or _matches(it.name, patterns)]
    chosen.sort(key=lambda it: natural(it.name))
    part = shard or Shard()
    chosen = chosen[part.index :: part.count]
    if not chosen:
        step = "Look at the folder and at --select; `*` matches everything."
        where = ", ".join(map(str, places))
        raise UsageError(f"no problem files in {where}", next_step=step)
    return chosen


def _at(place: Path) -> Iterable[Found]:
    if place.is_file():
        yield Found(name=place.stem, path=place)
        return
    if not place.is_dir():
        raise UsageError(f"there is no {place}", next_step="Check the path.")
    for path in place.rglob("*.py"):
        below = path.relative_to(place)
        hidden = any(part.startswith((".", "_")) for part in below.parts)
        if not hidden and not path.stem.endswith("_new"):
            yield Found(name=below.with_suffix("").as_posix(), path=path)


def _matches(name: str, patterns: Sequence[str]) -> bool:
    last = name.rpartition("/")[2]
    return any(fnmatch(name, pattern) or fnmatch(last, pattern) for pattern in patterns)


def natural(name: str) -> list[tuple[int, str]]:
    """Sorts "2_x" before "10_x"."""
    parts: list[tuple[int, str]] = []
    for word in name.replace("/", "_/_").split("_"):
        parts.append((int(word), "") if word.isdecimal() else (-1, word))
    return parts


def tasks_of(
    problems: Iterable[Found], settings: Settings, candidates: Path | None = None
) -> list[Task]:
    """What to do for each problem; with `candidates`, those that have one there are judged.

    A candidate has the problem's path below `candidates`, with or without "_new" before ".py"; its
    text is "" where there is none.
    """
    tasks = []
    for problem in problems:
        source = _text(problem.path)
        path = _candidate(candidates, problem) if candidates else None
        candidate = _text(path) if path else ""
        texts = hashlib.sha256(f"{len(source)} {source}{candidate}".encode())
        tasks.append(
            Task(
                problem=problem.name,
                level=problem.level,
                key=texts.hexdigest()[:16],
                path=str(problem.path),
                source=source,
                candidate_path=str(path or ""),
                candidate=candidate,
                settings=settings,
            )
        )
    return tasks


def _candidate(folder: Path, problem: Found) -> Path | None:
    tries = [folder / f"{problem.name}{ending}" for ending in ("_new.py", ".py")]
    tries += [folder / path.name for path in tries]
    return next((path.absolute() for path in tries if path.is_file()), None)


def _text(path: Path) -> str:
    """As the file is; what is no text is reported when it is loaded."""
    return path.read_bytes().decode(errors="replace")
