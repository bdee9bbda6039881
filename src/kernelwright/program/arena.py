"""Memory of a segment's own values: few slots, each for values that are needed at other times."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field

from kernelwright.ir.plan import Launch, Room
from kernelwright.ir.program import NativeStep, Segment, Slot, types_of
from kernelwright.ir.sizes import are_equal
from kernelwright.ir.types import TensorType


@dataclass(frozen=True, slots=True, kw_only=True)
class _Life:
    """From the step that gives a value memory to the last that reads it, both included."""

    name: str
    type: TensorType
    first: int
    last: int

    def meets(self, other: "_Life") -> bool:
        """Whether both need their memory at one time."""
        return self.first <= other.last and other.first <= self.last

    def is_no_larger(self, other: "_Life") -> bool:
        """Whether it is known to take no more bytes than another, at any sizes."""
        if are_equal(self.type.shape, other.type.shape):
            return self.type.dtype.itemsize <= other.type.dtype.itemsize
        is_static = all(dim.is_static for it in (self, other) for dim in it.type.shape)
        return is_static and self.type.bytes_hint <= other.type.bytes_hint


@dataclass(slots=True)
class _Shared:
    """A slot while it is filled."""

    lives: list[_Life] = field(default_factory=list)
    result: _Life | None = None

    def takes(self, life: _Life) -> bool:
        if self.result is not None and not life.is_no_larger(self.result):
            return False
        others = self.lives if self.result is None else [*self.lives, self.result]
        return not any(life.meets(it) for it in others)


def slots_of(
    steps: Sequence[NativeStep], roots: Mapping[str, str], results: Set[str], given: Set[str]
) -> tuple[Slot, ...]:
    """Slots for what has memory among the steps and is no result, in as few bytes as two ways find.

    Either large values choose first, or those that are needed first: in a chain of shrinking
    values each then takes what its predecessor's predecessor had.

    `roots`: what each view is one of; `given`: results that are buffers and parts of other values.
    The other results are new, and lend their memory until they are written.
    """
    lives = _lives(steps, roots, len(steps), results)
    lent = [life for life in lives if life.name in results - given]
    own = [life for life in lives if life.name not in results]
    large_first = sorted(own, key=lambda it: -it.type.bytes_hint)
    in_order = sorted(own, key=lambda it: it.first)
    found = [_filled(order, lent) for order in (large_first, in_order)]
    slots = min(found, key=lambda it: sum(map(_own_bytes, it)))
    return tuple(
        Slot(
            values=tuple(life.name for life in sorted(slot.lives, key=lambda it: it.first)),
            result=slot.result.name if slot.result else None,
        )
        for slot in slots
        if slot.lives
    )


def _filled(order: Sequence[_Life], lent: Sequence[_Life]) -> list[_Shared]:
    """Slots when values choose in this order, each the first that takes it."""
    slots = [_Shared(result=life) for life in lent]
    for life in order:
        slot = next((it for it in slots if it.takes(life)), None)
        if slot is None:
            slot = _Shared()
            slots.append(slot)
        slot.lives.append(life)
    return slots


def _own_bytes(slot: _Shared) -> int:
    """Bytes of the arena that a slot takes at the captured sizes."""
    if slot.result is not None:
        return 0
    return max((life.type.bytes_hint for life in slot.lives), default=0)


def arena_bytes(segment: Segment) -> int:
    """Bytes of a segment's own slots at the captured sizes, kernels' workspaces not counted."""
    types = types_of(segment)
    own = (slot.values for slot in segment.slots if slot.result is None)
    return sum(max(types[name].bytes_hint for name in values) for values in own)


def _lives(
    steps: Sequence[NativeStep], roots: Mapping[str, str], end: int, results: Set[str]
) -> list[_Life]:
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    types: dict[str, TensorType] = {}
    for at, step in enumerate(steps):
        match step:
            case Room(result=result, type=kind, within=None):
                types[result] = kind
            case Launch(results=written, inputs=read, kernel=kernel):
                for name, kind in zip(written, kernel.outputs, strict=True):
                    if name not in roots:
                        types.setdefault(name, kind)
                for name in (*written, *read):
                    root = roots.get(name, name)
                    if root in types:
                        first.setdefault(root, at)
                        last[root] = at
    return [
        _Life(name=name, type=kind, first=first[name], last=end if name in results else last[name])
        for name, kind in types.items()
        if name in first
    ]
