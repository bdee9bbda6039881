"""Plan to Program: which launches are one native call, and where their values lie.

A call from Python costs the host as much as ten launches from C. So launches that follow each other
are one segment: one call, with one block of memory for all values that nobody else reads.
"""

from kernelwright.program.arena import arena_bytes
from kernelwright.program.cutting import program_of
from kernelwright.program.peak import peak_bytes

__all__ = ["arena_bytes", "peak_bytes", "program_of"]
