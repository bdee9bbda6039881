"""Whether the compiler makes the same texts as before, of every problem of a corpus.

    make replay                               the problems of this repository
    make replay PROBLEMS=path/to/KernelBench  a folder's; their record lies in build/replay
    make replay UPDATE=1                      what is made now becomes the record

Nothing is compiled and no GPU is asked: a problem is captured, planned for an H200 and emitted,
once with products left to the library where that is faster and once with none left. Prints a
unified diff of every text that changed and ends with 1 if there is one. Texts lie in
build/replay/texts by their hash, so a diff needs a run at the recorded commit on the same machine.
"""

import argparse
import difflib
import hashlib
import os
import sys
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from multiprocessing import get_context
from pathlib import Path

import torch
from corpus import ROOT, Item, committed, found, texts

BUILD = ROOT / "build" / "replay"
RECORD = Path(__file__).with_name("recorded.txt")
_SHOWN_LINES = 60
"""Of the diff of one text."""
_SHOWN_TEXTS = 12
_NAMED_TEXTS = 80
_ABSENT = "absent"

Hashes = Mapping[str, str]
"""A text's hash by its name: the problem's and the stage's."""


def main(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    items = list(committed() if options.problems is None else found(options.problems))
    record = options.record or _record(options.problems)
    store = options.build / "texts"
    start = time.monotonic()
    made = emitted(items, options.build, options.jobs)
    seconds = time.monotonic() - start
    before = read_record(record)
    changed = [name for name in sorted({*before, *made}) if before.get(name) != made.get(name)]
    print(
        f"replay: {len(made)} texts of {len(items)} problems in {seconds:.0f} s, "
        f"{len(changed)} differ from {record}"
    )
    if options.update:
        write_record(record, made)
    for line in report(changed, before, made, store):
        print(line)
    return 1 if changed and not options.update else 0


def emitted(items: Iterable[Item], build: Path, jobs: int) -> dict[str, str]:
    """Hashes of all texts of the problems, whose texts are put into the build folder."""
    made: dict[str, str] = {}
    with ProcessPoolExecutor(jobs, get_context("fork"), _begin) as pool:
        for hashes in pool.map(_hashes, items, [build] * len(list(items)), chunksize=1):
            made |= hashes
    return made


def _begin() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # PyTorch's, on what the problems do


def _hashes(item: Item, build: Path) -> dict[str, str]:
    made: dict[str, str] = {}
    for stage, text in texts(item, build / "captures").items():
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        keep(build / "texts" / digest, text)
        made[f"{item.name}: {stage}"] = digest
    return made


def keep(path: Path, text: str) -> None:
    """Write a text that nobody else writes differently."""
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(f".{os.getpid()}")
        unfinished.write_text(text, encoding="utf-8")
        unfinished.replace(path)


def read_record(path: Path) -> dict[str, str]:
    """The recorded hashes; none where there is no record."""
    if not path.is_file():
        return {}
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    found = (line.partition(" ") for line in lines)
    return {name: digest for digest, _, name in found}


def write_record(path: Path, made: Hashes) -> None:
    """Write the hashes, one a line, under the version of PyTorch that captured the graphs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"# {_version()}", *(f"{made[name]} {name}" for name in sorted(made))]
    path.write_text("\n".join(lines) + "\n")


def report(changed: Sequence[str], before: Hashes, made: Hashes, store: Path) -> Iterator[str]:
    """Diffs of the first texts that changed, and the names of all."""
    for name in changed[:_SHOWN_TEXTS]:
        yield f"\n==== {name}: {before.get(name, _ABSENT)} -> {made.get(name, _ABSENT)}"
        yield from _diff(store, before.get(name), made.get(name))
    if len(changed) > _SHOWN_TEXTS:
        yield "\n==== and"
        yield from changed[_SHOWN_TEXTS:_NAMED_TEXTS]
    if len(changed) > _NAMED_TEXTS:
        yield f"... {len(changed) - _NAMED_TEXTS} more"


def _diff(store: Path, before: str | None, made: str | None) -> Iterator[str]:
    if before is None or made is None:
        return
    if not (store / before).is_file():
        yield f"the recorded text is not in {store}: run this at the commit of the record first"
        return
    old, new = ((store / name).read_text().splitlines() for name in (before, made))
    lines = difflib.unified_diff(old, new, "recorded", "now", lineterm="")
    shown = list(islice(lines, _SHOWN_LINES + 1))
    yield from shown[:_SHOWN_LINES]
    if len(shown) > _SHOWN_LINES:
        yield f"...: diff -u {store / before} {store / made}"


def _record(problems: Path | None) -> Path:
    """The committed record, or that of a folder of problems on this machine."""
    if problems is None:
        return RECORD
    place = hashlib.sha256(str(problems.resolve()).encode()).hexdigest()[:8]
    return BUILD / f"{problems.resolve().name}-{place}.txt"


def _version() -> str:
    return f"torch {torch.__version__.partition('+')[0]}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--problems", type=Path, help="a folder of problems; else the repository's")
    parser.add_argument("--record", type=Path, help="file of hashes")
    parser.add_argument("--build", type=Path, default=BUILD, help="folder of texts and captures")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument("--update", action="store_true", help="record what is made now")
    return parser


if __name__ == "__main__":
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    sys.exit(main(sys.argv[1:]))
