"""What our models of time are fitted with, a file for each kind of work."""

from kernelwright.machine.rates.attention import AttentionRates
from kernelwright.machine.rates.convolutions import (
    ConvolutionRates,
    LibraryConvolution,
    StoreCycles,
)
from kernelwright.machine.rates.launches import LaunchRates
from kernelwright.machine.rates.library import LibraryRate, LibraryRates
from kernelwright.machine.rates.products import (
    CudaCoreRates,
    FewRates,
    ManySmallRates,
    ThinRates,
    TurnRates,
    WarpgroupRates,
)
from kernelwright.machine.rates.recurrent import RecurrentRates
from kernelwright.machine.rates.rows import RowRates, ScanRates, WindowRates

__all__ = [
    "AttentionRates",
    "ConvolutionRates",
    "CudaCoreRates",
    "FewRates",
    "LaunchRates",
    "LibraryConvolution",
    "LibraryRate",
    "LibraryRates",
    "ManySmallRates",
    "RecurrentRates",
    "RowRates",
    "ScanRates",
    "StoreCycles",
    "ThinRates",
    "TurnRates",
    "WarpgroupRates",
    "WindowRates",
]
