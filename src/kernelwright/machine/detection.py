"""Which card there is, and which one everything is modelled for without one."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import cast

from kernelwright.machine.a100 import A100, A100_40GB
from kernelwright.machine.generic import DeviceProperties, modelled
from kernelwright.machine.h100 import H100
from kernelwright.machine.h200 import H200
from kernelwright.machine.records import Machine

_CARDS: Mapping[str, Machine] = MappingProxyType(
    {card.name: card for card in (H200, H100, A100, A100_40GB)}
)


def machine_of(properties: DeviceProperties) -> Machine:
    """The card of that name, or a generic one."""
    return _CARDS.get(properties.name) or modelled(properties)


def detect() -> Machine | None:
    """The current CUDA device, or None where PyTorch sees none."""
    import torch

    if not torch.cuda.is_available():
        return None
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    # torch's stubs leave out some of the fields that the class has.
    return machine_of(cast(DeviceProperties, properties))


def modelled_machine() -> Machine:
    """The GPU of this machine, or the card that everything is modelled for without one."""
    return detect() or H200
