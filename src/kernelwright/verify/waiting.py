"""Waiting for a device."""

from collections.abc import Sequence

import torch
from torch import Tensor


def settle(device: torch.device) -> None:
    """Wait until the current stream is done, asleep.

    PyTorch's own waits keep a core busy, which others need where many processes share a machine.
    """
    if device.type == "cuda":
        event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(device))
        event.synchronize()


def on_the_host(flats: Sequence[Tensor]) -> list[Tensor]:
    """The numbers of `flats` in the host's memory, with one wait for each device.

    `flats` are of one dimension and those of a device of one dtype. Where several processes use a
    device, waiting for it takes longer than bringing a small tensor.
    """
    moved = list(flats)
    for device in {flat.device for flat in flats if flat.device.type != "cpu"}:
        here = [place for place, flat in enumerate(flats) if flat.device == device]
        together = torch.cat([flats[place] for place in here])
        settle(device)
        parts = torch.split(together.cpu(), [flats[place].numel() for place in here])
        for place, part in zip(here, parts, strict=True):
            moved[place] = part
    return moved
