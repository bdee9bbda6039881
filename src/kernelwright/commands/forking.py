"""Children of a command as forks of its process."""

import importlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

from kernelwright import env

_ROLES = "kernelwright.worker.roles.table"
_DRIVER = Path("/dev/nvidiactl")
"""What is there where there is a card."""


@contextmanager
def children(modules: Sequence[str] = ()) -> Iterator[None]:
    """Children in the block are forks of this process, which saves each the seconds of its imports.

    What is forked has imported what all of them need, and `modules`, and done no more: it has one
    thread and no card.
    """
    from kernelwright.worker.process.nursery import Nursery, employed, may_fork

    needed = (*modules, _ROLES)
    with env.present({env.BLAS_THREADS.name: "1", env.CUDA_CHECK.name: "1"}):
        # Those that count launches load a library first: theirs imports beside this one.
        listening = (
            Nursery.listening([_ROLES], env.child_environment({})) if _DRIVER.exists() else None
        )
        for name in needed:
            importlib.import_module(name)
        forks = employed(Nursery.forked(), listening) if may_fork() else nullcontext()
    with forks:
        yield
