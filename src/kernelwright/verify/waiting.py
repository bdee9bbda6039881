"""Waiting for a device."""

import torch


def settle(device: torch.device) -> None:
    """Wait until the current stream is done, asleep.

    PyTorch's own waits keep a core busy, which others need where many processes share a machine.
    """
    if device.type == "cuda":
        event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(device))
        event.synchronize()
