"""Native calls cut in two where that lowers the peak of memory.

A call's results are allocated before it, and its arena is free after it. A large result that is
written last lies beside everything that the call needs earlier, unless another call writes it.
"""

from collections.abc import Iterator, Sequence

from kernelwright.ir.plan import Launch, Plan
from kernelwright.ir.program import Program, Segment, types_of
from kernelwright.program.peak import bytes_during, roots_of
from kernelwright.program.segments import Frame, Piece

_LEAST_SAVED = 1 << 20
"""Bytes; below it a tensor comes from a block that PyTorch's allocator has anyway."""
_LEAST_SHARE = 50
"""A cut saves at least one part in so many of the peak: it costs the host another call."""
_MOST_CUTS = 8
_VALUES = 6
"""Values, the largest of a call, around whose steps cuts are tried."""


def program_of(plan: Plan) -> Program:
    """The program of a plan: it computes the same, in the same order."""
    frame = Frame(plan)
    whole = pieces = frame.pieces()
    for _ in range(_MOST_CUTS):
        better = _cut_at_peak(frame, pieces)
        if better is None:
            break
        pieces = better
    saved = _peak(frame, whole) - _peak(frame, pieces)
    return frame.program(pieces if _is_worth(saved, _peak(frame, whole)) else whole)


def _is_worth(saved: int, peak: int) -> bool:
    return saved >= max(_LEAST_SAVED, peak // _LEAST_SHARE)


def _peak(frame: Frame, pieces: Sequence[Piece]) -> int:
    return max(map(max, _during(frame, pieces)), default=0)


def _during(frame: Frame, pieces: Sequence[Piece]) -> list[list[int]]:
    """Bytes that are allocated while each part of each piece runs."""
    parts = [part for piece in pieces for part in piece.parts]
    rest = iter(bytes_during(parts, frame.plan.graph, frame.in_place.keys()))
    return [[next(rest) for _ in piece.parts] or [0] for piece in pieces]


def _cut_at_peak(frame: Frame, pieces: Sequence[Piece]) -> list[Piece] | None:
    """The pieces with that at the peak cut where it saves most; None where no cut saves enough."""
    during = list(map(max, _during(frame, pieces)))
    if not during:
        return None
    peak = max(during)
    at = during.index(peak)
    best, least = None, peak
    for before in sorted(set(_places(pieces[at]))):
        cut = [*pieces[:at], *frame.cut(pieces[at], before), *pieces[at + 1 :]]
        after = max(map(max, _during(frame, cut)[at : at + 2]))
        if after < least:
            best, least = cut, after
    return best if _is_worth(peak - least, peak) else None


def _places(piece: Piece) -> Iterator[int]:
    """Steps before which a cut may save: those that first write and last read a large value."""
    segment = next((part for part in piece.parts if isinstance(part, Segment)), None)
    if segment is None:
        return
    types, roots = types_of(segment), roots_of(piece.steps)
    own = [*segment.results, *(name for slot in segment.slots for name in slot.values)]
    for name in sorted(own, key=lambda name: -types[name].bytes_hint)[:_VALUES]:
        uses = [
            at
            for at, step in enumerate(piece.steps)
            if isinstance(step, Launch)
            and name in {roots.get(it, it) for it in (*step.results, *step.inputs)}
        ]
        if uses:
            yield from (at for at in (uses[0], uses[-1], uses[-1] + 1) if 0 < at < len(piece.steps))
