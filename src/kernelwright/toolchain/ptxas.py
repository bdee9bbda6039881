"""The report of `ptxas -v`, read by words: registers, spills and shared memory of each kernel."""

import ctypes
from dataclasses import dataclass, replace
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelReport:
    """What one kernel takes of a multiprocessor."""

    symbol: str
    """Name in the cubin, mangled."""
    registers: int = 0
    """32-bit registers of a thread."""
    stack_bytes: int = 0
    """Local memory of a thread, spilled registers included."""
    spill_store_bytes: int = 0
    """Bytes a thread writes to spill registers, over the whole kernel text."""
    spill_load_bytes: int = 0
    """Bytes a thread reads back."""
    shared_bytes: int = 0
    """Static shared memory of a block; the dynamic part is chosen at launch."""
    barriers: int = 0
    """Named barriers of a block."""

    @property
    def name(self) -> str:
        """The name with its namespace and template arguments: "scale_kernel<64>"."""
        return demangle(self.symbol)

    @property
    def spills(self) -> bool:
        """Whether registers did not suffice."""
        return self.spill_store_bytes > 0 or self.spill_load_bytes > 0

    def __str__(self) -> str:
        spilled = f", {self.spill_store_bytes} bytes spilled" if self.spills else ""
        return f"{self.name}: {self.registers} registers, {self.shared_bytes} bytes shared{spilled}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CubinReport:
    """A CUDA source compiled to machine code."""

    path: Path
    """The cubin."""
    arch: str
    """Architecture: "sm_90a"."""
    kernels: tuple[KernelReport, ...]
    """In the order of the cubin."""
    remarks: tuple[str, ...] = ()
    """What ptxas says unasked, with its number: "(C7510) Potential Performance Loss: wgmma..."."""

    @property
    def spilling(self) -> tuple[KernelReport, ...]:
        """The kernels whose registers did not suffice."""
        return tuple(kernel for kernel in self.kernels if kernel.spills)


def read_report(text: str) -> tuple[KernelReport, ...]:
    """The kernels in the output of `nvcc -Xptxas -v`."""
    kernels: list[KernelReport] = []
    for line in text.splitlines():
        _, entry, rest = line.partition("Compiling entry function '")
        if entry:
            kernels.append(KernelReport(symbol=rest.partition("'")[0]))
        elif kernels:
            kernels[-1] = _add(kernels[-1], line.rpartition("ptxas info    :")[2])
    return tuple(kernels)


def read_remarks(text: str) -> tuple[str, ...]:
    """Numbered messages in the output of nvcc, each once; ptxas gives them for lost performance."""
    found = [line.partition(" : ")[2] for line in text.splitlines() if line.startswith("ptxas ")]
    return tuple(dict.fromkeys(remark for remark in found if remark.startswith("(C")))


_FIELD_OF = {
    "registers": "registers",
    "barriers": "barriers",
    "bytes smem": "shared_bytes",
    "bytes stack frame": "stack_bytes",
    "bytes spill stores": "spill_store_bytes",
    "bytes spill loads": "spill_load_bytes",
}


def _add(kernel: KernelReport, line: str) -> KernelReport:
    """The kernel with what "Used 12 registers, 256 bytes smem" adds.

    A function that was not inlined has lines of its own, between its kernel's; they count too.
    """
    for phrase in line.split(","):
        number, _, unit = phrase.strip().lower().removeprefix("used ").partition(" ")
        field = _FIELD_OF.get(unit)
        if field is not None and number.isdecimal():
            kernel = replace(kernel, **{field: getattr(kernel, field) + int(number)})
    return kernel


def demangle(symbol: str) -> str:
    """A C++ symbol as a person writes it, without parameters; what is no such symbol as it is.

    "_Z12scale_kernelILi64EEvPfPKffl" -> "scale_kernel<64>"
    """
    full = _full_name(symbol)
    # "void scale_kernel<64>(float*, float const*, float, long)": cut at the bracket of depth 0.
    depth = 0
    for position, character in enumerate(full):
        depth += (character == "<") - (character == ">")
        if character == "(" and depth == 0 and not full.startswith("(anonymous", position):
            full = full[:position]
            break
    return _last_word(full).replace("(anonymous namespace)::", "")


def _last_word(name: str) -> str:
    """The name without its return type: what follows the last space outside of brackets."""
    depth = 0
    for position in range(len(name) - 1, -1, -1):
        depth += (name[position] in ">)") - (name[position] in "<(")
        if name[position] == " " and depth == 0:
            return name[position + 1 :]
    return name


def _full_name(symbol: str) -> str:
    # The C++ run-time library that torch loads has the demangler of the C++ ABI.
    library = ctypes.CDLL("libstdc++.so.6")
    demangler = library.__cxa_demangle
    demangler.restype = ctypes.c_void_p
    status = ctypes.c_int()
    address = demangler(symbol.encode(), None, None, ctypes.byref(status))
    if status.value != 0 or address is None:
        return symbol
    name = ctypes.string_at(address).decode()
    free = ctypes.CDLL(None).free
    free.argtypes = [ctypes.c_void_p]
    free(address)
    return name
