"""Children of a command: forks of its process, and one that begins before them."""

import importlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from kernelwright import env
from kernelwright.problem.record import Problem

_ROLES = "kernelwright.worker.roles.table"
_COMPILERS = ("torch._dynamo", "torch._inductor.compile_fx", _ROLES)
COMPILED = "torch.compile"
"""The role of the process that is timed under torch.compile."""
_EMULATOR = "cpu"
_DRIVER = Path("/dev/nvidiactl")
"""What is there where there is a card."""


@contextmanager
def children(modules: Sequence[str] = ()) -> Iterator[None]:
    """Children in the block are forks of this process, which saves each the seconds of its imports.

    What is forked has imported what all of them need, and `modules`, and done no more: it has one
    thread and no card.
    """
    from kernelwright.worker.process.importing import quick_imports
    from kernelwright.worker.process.nursery import Nursery, employed, may_fork

    needed = (*modules, _ROLES)
    with env.present({env.BLAS_THREADS.name: "1", env.CUDA_CHECK.name: "1"}):
        # Those that count launches load a library first: theirs imports beside this one.
        listening = (
            Nursery.listening([_ROLES], env.child_environment({})) if _DRIVER.exists() else None
        )
        with quick_imports():
            for name in needed:
                importlib.import_module(name)
        forks = employed(Nursery.forked(), listening) if may_fork() else nullcontext()
    with forks:
        yield


def compiler(problem: Problem, target: str | None) -> AbstractContextManager[None]:
    """Where there is a card, the process of torch.compile begins at once, and not with the others.

    It is the last one that is ready: it imports as much again as all of them. `target` as the
    command has it.
    """
    from kernelwright.worker.process.early_start import begun_early
    from kernelwright.worker.process.environments import of_trusted

    if not _DRIVER.exists() or (target or env.TARGET.get()) == _EMULATOR:
        return nullcontext()
    return begun_early(COMPILED, of_trusted(problem.source), _COMPILERS)
