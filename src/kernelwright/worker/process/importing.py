"""Imports of hundreds of modules, which nobody has to look through for garbage meanwhile.

PyTorch and its compiler make objects by the hundred thousand that stay: Python's collector looks at
them again and again, for a tenth of the time that they take to import.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quick_imports() -> Iterator[None]:
    """No garbage is collected in the block; what is there at its end is never looked at again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_on:
            gc.enable()
