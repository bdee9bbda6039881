"""What a GPU can do: one file a card, with its limits and rates. Nothing else knows them.

A new card is one file with a `Machine`, and its row in `detection.py`.
"""

from kernelwright.machine.a100 import A100
from kernelwright.machine.detection import detect, machine_of, modelled_machine
from kernelwright.machine.generic import DeviceProperties, modelled
from kernelwright.machine.h100 import H100
from kernelwright.machine.h200 import H200
from kernelwright.machine.rates import (
    AttentionRates,
    ConvolutionRates,
    RecurrentRates,
    TurnRates,
    WarpgroupRates,
)
from kernelwright.machine.records import Limits, Machine, Origin
from kernelwright.machine.wgmma import CARD_WITH_WGMMA

__all__ = [
    "A100",
    "CARD_WITH_WGMMA",
    "H100",
    "H200",
    "AttentionRates",
    "ConvolutionRates",
    "DeviceProperties",
    "Limits",
    "Machine",
    "Origin",
    "RecurrentRates",
    "TurnRates",
    "WarpgroupRates",
    "detect",
    "machine_of",
    "modelled",
    "modelled_machine",
]
