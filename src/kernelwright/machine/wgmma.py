"""What emitted texts may take for granted on every card with wgmma."""

from kernelwright.machine.h200 import H200
from kernelwright.machine.records import Machine

CARD_WITH_WGMMA: Machine = H200
"""A card of compute capability 9.0: the limits of a block are the same on all of them."""
