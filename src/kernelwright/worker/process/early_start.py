"""A child that imports before anybody knows what to ask of it.

    with begun_early("compiled", environment, ("torch._dynamo",)):
        ...                                # the first child of that name is this one

Its first request waits for its imports, which need nothing of the judgement: PyTorch's compiler
takes as long to import as PyTorch, and a process that is forked begins with it only once PyTorch is
there.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from kernelwright.worker.process.client import Begun, Client
from kernelwright.worker.sandbox.confining import Confinement


@dataclass(slots=True)
class _Early:
    """A process that nobody has asked anything."""

    name: str
    environment: Mapping[str, str]
    begun: Begun | None
    """None once it is somebody's."""


_early: ContextVar[_Early | None] = ContextVar("early child", default=None)


@contextmanager
def begun_early(
    name: str, environment: Mapping[str, str], modules: Sequence[str]
) -> Iterator[None]:
    """Have a trusted child of that name import `modules`; it ends with the block if nobody asks.

    Starts no thread: the process that calls this may still be forked.
    """
    early = _Early(name, environment, Begun.anew(environment, Confinement(), modules))
    token = _early.set(early)
    try:
        yield
    finally:
        _early.reset(token)
        if early.begun is not None:
            Client(name, environment, Confinement(), early.begun).close()


def client_of(name: str, environment: Mapping[str, str], confinement: Confinement) -> Client:
    """The process that has begun with all of that, or another one."""
    early = _early.get()
    fits = (
        early is not None
        and early.name == name
        and confinement == Confinement()
        and dict(early.environment) == dict(environment)
    )
    if early is None or not fits or early.begun is None:
        return Client(name, environment, confinement)
    begun, early.begun = early.begun, None
    return Client(name, environment, confinement, begun)
