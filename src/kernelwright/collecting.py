"""Blocks in which nothing looks for cyclic garbage."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """A block, or a function, that makes many small records and keeps them, in no cycles.

    To walk over all of them again and again is a fifth of the time of tracing, planning and writing
    texts (docs/measured/toolchain.md).
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
