"""CUDA C++ on the host: translated, run with every access checked, under a CUDA that PyTorch believes.

    with Session(order_seed=0, threads=2) as session:
        ...
    session.findings
"""

from kernelwright.build.emulator.errors import EmulatorFault
from kernelwright.build.emulator.findings import Finding, FindingKind
from kernelwright.build.emulator.session import Session

__all__ = ["EmulatorFault", "Finding", "FindingKind", "Session"]
