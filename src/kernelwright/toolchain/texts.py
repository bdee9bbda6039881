"""Texts of modules that were written before, by whatever process: found again by what they say.

key = content_key(own_code(), name, repr(plan))
source = known_text(key)    # None: write it, build it, and
keep_text(key, source)
"""

from functools import cache
from pathlib import Path

import torch

from kernelwright.toolchain.cache import cached_build, content_key, lookup

MODULE, SOURCE = "module", "kernels.py"
"""Kind of a folder with a module's text, and the text's name there; its kernels lie beside it."""
_KIND, _POINTER = "text", "module"
_NO_SOURCES = (".pyc", ".so")


@cache
def own_code() -> str:
    """Hash of what texts are written by: all files of this package, and PyTorch's version."""
    root = Path(__file__).parents[1]
    files = sorted(it for it in root.rglob("*") if it.is_file() and it.suffix not in _NO_SOURCES)
    parts = (part for it in files for part in (str(it.relative_to(root)), it.read_bytes()))
    return content_key(torch.__version__, *parts)


def known_text(key: str) -> str | None:
    """The text kept under a key, whose folder is there with all that it is built from; or None."""
    pointer = lookup(_KIND, key)
    folder = lookup(MODULE, (pointer / _POINTER).read_text()) if pointer is not None else None
    return None if folder is None else (folder / SOURCE).read_text(encoding="utf-8")


def keep_text(key: str, source: str) -> None:
    """Let a key find a text that lies in the cache."""
    cached_build(_KIND, key, lambda folder: _point(folder, source))


def _point(folder: Path, source: str) -> None:
    (folder / _POINTER).write_text(content_key(source))
