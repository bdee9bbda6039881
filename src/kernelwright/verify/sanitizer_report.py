"""What compute-sanitizer prints, as findings about a candidate's own kernels.

    ========= Invalid __global__ read of size 4 bytes
    =========     at scale_kernel(const float *, float *, int)+0x90 in cuda.cu:7
    =========     by thread (255,0,0) in block (31,0,0)

Each report begins at a line that is not indented; what belongs to it is. The format is that of the
manual, docs.nvidia.com/compute-sanitizer, and of 2025.3 as seen.
"""

import re
from collections.abc import Iterable, Iterator
from enum import Enum

from kernelwright.emulator.findings import FindingKind
from kernelwright.verify.observation import KernelFinding
from kernelwright.verify.ran import Maker, base_name, maker_of

_MARK = "========="


class Tool(Enum):
    """The four tools of compute-sanitizer."""

    MEMCHECK = "memcheck"
    RACECHECK = "racecheck"
    INITCHECK = "initcheck"
    SYNCCHECK = "synccheck"


_HEADLINES: dict[Tool, tuple[tuple[str, FindingKind], ...]] = {
    Tool.MEMCHECK: (
        ("misaligned", FindingKind.MISALIGNED),
        ("invalid __", FindingKind.OUT_OF_BOUNDS),
        ("out of range", FindingKind.OUT_OF_BOUNDS),
        ("out-of-range", FindingKind.OUT_OF_BOUNDS),
    ),
    Tool.RACECHECK: (("error: race reported", FindingKind.RACE),),
    Tool.INITCHECK: (("uninitialized __", FindingKind.UNINITIALISED_READ),),
    Tool.SYNCCHECK: (
        ("barrier error", FindingKind.BARRIER_DIVERGENCE),
        ("invalid arguments", FindingKind.BARRIER_DIVERGENCE),
    ),
}
"""Beginnings of a report, in lower case; others are about calls of the API, or sums."""


def read_report(tool: Tool, text: str, source: str = "") -> tuple[KernelFinding, ...]:
    """The findings of one run, one for each kernel and kind; those in libraries are left out.

    A kernel that `source` names is the candidate's, whatever libraries call theirs.
    """
    findings: dict[tuple[str, FindingKind], KernelFinding] = {}
    for lines in _reports(text.splitlines()):
        kind = _kind_of(tool, lines[0])
        place = _place_of(lines)
        if kind is None or place is None:
            continue
        kernel = base_name(place)
        own = maker_of(place) is Maker.LIBRARY or _names(source, kernel)
        if own and (kernel, kind) not in findings:
            message = f"{tool.value}: {'; '.join(_readable(lines))}"
            findings[kernel, kind] = KernelFinding(kind=kind, message=message)
    return tuple(findings.values())


def _names(source: str, kernel: str) -> bool:
    return re.search(rf"\b{re.escape(kernel)}\b", source) is not None


def was_refused(text: str) -> str:
    """Why the tool did not look at anything; empty if it did."""
    for line in text.splitlines():
        small = line.lower()
        if "device not supported" in small or "unable to find injection" in small:
            return line.removeprefix(_MARK).strip()
    return "" if "SUMMARY" in text else "it printed no summary"


def _reports(lines: Iterable[str]) -> Iterator[list[str]]:
    report: list[str] = []
    for line in lines:
        if not line.startswith(_MARK):
            continue
        words = line.removeprefix(_MARK).removeprefix(" ")
        if words.strip() and not words.startswith(" "):
            if report:
                yield report
            report = [words]
        elif words.strip() and report:
            report.append(words)
    if report:
        yield report


def _kind_of(tool: Tool, headline: str) -> FindingKind | None:
    small = headline.lower()
    return next((kind for sign, kind in _HEADLINES[tool] if sign in small), None)


def _place_of(lines: list[str]) -> str | None:
    """The kernel that the report speaks of, as it is written there."""
    for line in lines:
        _, found, rest = f" {line}".partition(" at ")
        if found and not rest.startswith("0x"):
            return rest.partition("+0x")[0].strip()
    return None


_LINES = 3
"""Lines of a report that a message quotes: what, where, who."""


def _readable(lines: list[str]) -> list[str]:
    return [line.strip() for line in lines[:_LINES]]
