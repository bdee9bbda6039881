"""torch.compile beside others on one card: they time while it compiles, not while it launches.

with sharing_but_for_compilers(device_index):
    compiled(*inputs)
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kernelwright.worker.card.lease import open_lease
from kernelwright.worker.card.ledger import Ledger

_ON_THE_CARD = ("CUDAGRAPH_RECORDING", "TRITON_AUTOTUNING")
"""What PyTorch counts as compiling though it launches kernels."""


@contextmanager
def sharing_but_for_compilers(device_index: int, ledger: Ledger) -> Iterator[None]:
    """Share the card for the length of the block, but let it go whenever a graph is compiled.

    Compiling takes a minute of the CPU and nothing of the card, as long as nothing is measured on
    the way: for max-autotune, which does, take the card alone.
    """
    # Here and not above: it takes a second of a core, in every child, and one compiles.
    from torch._dynamo.callback import callback_handler as handler

    with open_lease(device_index, ledger) as lease:

        def drop(*said: Any) -> None:
            if not _launches(said):
                lease.drop()

        def share(*said: Any) -> None:
            if not _launches(said):
                lease.share()

        lease.share()
        handler.register_start_callback(drop)
        handler.register_end_callback(share)
        try:
            yield
        finally:
            handler.remove_start_callback(drop)
            handler.remove_end_callback(share)


def _launches(said: tuple[Any, ...]) -> bool:
    """Whether a callback is about work on the card; older releases of PyTorch do not say."""
    return any(it.callback_trigger.name in _ON_THE_CARD for it in said)


@contextmanager
def alone(device_index: int, ledger: Ledger) -> Iterator[None]:
    """Have the card alone for the length of the block."""
    with open_lease(device_index, ledger) as lease, lease.alone():
        yield
