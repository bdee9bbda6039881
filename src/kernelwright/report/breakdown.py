"""Where the time of a call goes: what ran, beside the floor of what was planned.

    spent = breakdown_of(row, details)
    spent.terms[0].milliseconds, spent.terms[0].floor_ms
    spent.next_step    # "`linear_kernel` takes 0.41 ms, 0.22 ms over its floor of 0.19 ms."

Times are those of the watched call of the judgement, which may have shared its card.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernelwright.report.row import Row
from kernelwright.verify.ran import Maker

SHOWN = 12
"""Terms of a problem that pages and published results have, the largest."""
LIBRARY = "library"
"""Stands beside the families of kernels for calls that stay PyTorch's."""
_ODD = 0.25
"""Share of the timed milliseconds by which the watched ones may differ."""
_LONGEST_NAME = 60
_KERNEL = "_kernel"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One kernel as it ran."""

    name: str
    calls: int
    milliseconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """A planned kernel with all that its launches ran, or a kernel that no plan knows."""

    name: str
    maker: str
    """A value of `Maker`."""
    family: str
    """Family of the planned kernel, "" where none was planned."""
    parts: tuple[Part, ...]
    """What took longest first; the fold of a sum is a part beside the sum."""
    floor_ms: float | None
    """Modelled floor of all its launches; None where the plan does not say."""

    @property
    def is_own(self) -> bool:
        """Whether the candidate brought it."""
        return self.maker == Maker.OWN.value

    @property
    def calls(self) -> int:
        """Kernels that ran, all parts together."""
        return sum(part.calls for part in self.parts)

    @property
    def milliseconds(self) -> float:
        """All parts together."""
        return sum(part.milliseconds for part in self.parts)

    @property
    def over_floor_ms(self) -> float:
        """Milliseconds above the floor, all of them where no floor is known."""
        return self.milliseconds - (self.floor_ms or 0.0)

    @property
    def share_of_floor(self) -> float | None:
        """The floor over the time."""
        if self.floor_ms is None or not self.milliseconds:
            return None
        return self.floor_ms / self.milliseconds

    @property
    def split(self) -> dict[str, float]:
        """Milliseconds by what its parts add to its name, "itself" for nothing; {} of one part."""
        if len(self.parts) == 1 or not self.is_own:
            return {}
        start = f"{_stem(self.name)}_"
        return {
            "itself" if part.name == self.name else _stem(part.name.removeprefix(start)): (
                part.milliseconds
            )
            for part in self.parts
        }

    def to_json(self) -> dict[str, Any]:
        """The term in as few values as say it, milliseconds of four digits."""
        floor = None if self.floor_ms is None else _rounded(self.floor_ms)
        return {
            "name": self.name,
            "maker": self.maker,
            "family": self.family,
            "calls": self.calls,
            "ms": _rounded(self.milliseconds),
            "floor_ms": floor,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakdown:
    """All terms of one call."""

    terms: tuple[Term, ...]
    """What took longest first."""
    timed_ms: float | None
    """Device time of a call that had the card to itself; None where none was timed."""

    @property
    def shown(self) -> tuple[Term, ...]:
        """The largest terms."""
        return self.terms[:SHOWN]

    @property
    def others(self) -> tuple[Term, ...]:
        """The terms that are not shown one by one."""
        return self.terms[SHOWN:]

    @property
    def whole_ms(self) -> float:
        """All terms together."""
        return sum(term.milliseconds for term in self.terms)

    @property
    def shares_card(self) -> bool:
        """Whether the watched call took so much longer that others were on its card."""
        return self.timed_ms is not None and self.whole_ms > (1 + _ODD) * self.timed_ms

    @property
    def misses_time(self) -> bool:
        """Whether its kernels take so much less than a timed call that something is not in them."""
        return self.timed_ms is not None and self.whole_ms < (1 - _ODD) * self.timed_ms

    @property
    def next_step(self) -> str:
        """The term that is most over its floor, in one sentence."""
        worst = max(self.terms, key=lambda term: term.over_floor_ms)
        if worst.over_floor_ms <= 0.0:
            return "nothing: no kernel takes longer than its floor."
        where = ", perhaps on a shared card" if self.shares_card else ""
        whose = "" if worst.is_own else f" ({worst.maker})"
        taken = f"`{shortened(worst.name)}`{whose} takes {_ms(worst.milliseconds)}{where}"
        if worst.floor_ms is None:
            return f"{taken}; its floor is not known."
        over, floor = _ms(worst.over_floor_ms), _ms(worst.floor_ms)
        return f"{taken}, {over} over its floor of {floor}."

    def to_json(self) -> dict[str, Any]:
        """The largest terms, and what they are parts of."""
        return {
            "watched_ms": _rounded(self.whole_ms),
            "shared_card": self.shares_card,
            "kernels": [term.to_json() for term in self.shown],
            "others": len(self.others),
        }


def breakdown_of(row: Row, details: Mapping[str, Any]) -> Breakdown | None:
    """The terms of a problem; None where no call was watched, or without times as on the CPU."""
    ran = (details.get("verdict", {}).get("ran") or {}).get("kernels", ())
    if not ran or any(kernel["milliseconds"] is None for kernel in ran):
        return None
    planned = {kernel["name"]: kernel for kernel in details.get("plan", {}).get("kernels", ())}
    printed = details.get("graphs", {}).get("planned", "")
    floors = {name: _floor_ms(kernel, printed) for name, kernel in planned.items()}
    found: dict[tuple[str, str], list[Part]] = {}
    for kernel in ran:
        name, maker = kernel["name"], kernel["maker"]
        if maker == Maker.OWN.value:
            name = _planned_name(name, planned) or name
        part = Part(name=kernel["name"], calls=kernel["calls"], milliseconds=kernel["milliseconds"])
        found.setdefault((name, maker), []).append(part)
    terms = [
        Term(
            name=name,
            maker=maker,
            family=planned[name]["family"] if is_planned else "",
            parts=tuple(sorted(parts, key=lambda part: -part.milliseconds)),
            floor_ms=floors[name] if is_planned else None,
        )
        for (name, maker), parts in found.items()
        for is_planned in (maker == Maker.OWN.value and name in planned,)
    ]
    terms.sort(key=lambda term: -term.milliseconds)
    return Breakdown(terms=tuple(terms), timed_ms=row.device_ms)


def families_of(row: Row, details: Mapping[str, Any]) -> tuple[str, ...]:
    """Families of the kernels of a problem, each once, and `LIBRARY` where calls stay PyTorch's."""
    kernels = details.get("plan", {}).get("kernels", ())
    library = (LIBRARY,) if row.left_to_pytorch else ()
    return tuple(dict.fromkeys((*(kernel["family"] for kernel in kernels), *library)))


def count_families(families: Iterable[Sequence[str]]) -> dict[str, int]:
    """How many problems have each family, the most frequent first, `LIBRARY` last."""
    counts: dict[str, int] = {}
    for own in families:
        for family in own:
            counts[family] = counts.get(family, 0) + 1
    order = sorted(counts, key=lambda family: (family == LIBRARY, -counts[family], family))
    return {family: counts[family] for family in order}


def _planned_name(name: str, planned: Iterable[str]) -> str | None:
    """The planned kernel that a launch belongs to: `sum_kernel` of `sum_fold_kernel`.

    The longest that fits, as `sum_2_fold_kernel` is no part of `sum_kernel` where there is a
    `sum_2_kernel`.
    """
    fitting = [it for it in planned if it == name or name.startswith(_stem(it) + "_")]
    return name if name in fitting else max(fitting, key=len, default=None)


def _stem(name: str) -> str:
    return name.removesuffix(_KERNEL)


def _floor_ms(planned: Mapping[str, Any], printed: str) -> float | None:
    """Floor of all launches. Plans once had that of the first only, which are all where the
    printed plan has one; others may be larger."""
    if "launches_floor_seconds" in planned:
        return float(planned["launches_floor_seconds"]) * 1e3
    if printed.count(f"= launch {_stem(planned['name'])}(") == 1:
        return float(planned["floor_seconds"]) * 1e3
    return None


def shortened(name: str) -> str:
    """A name for a line: those of libraries have some hundred characters."""
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"


def _rounded(milliseconds: float) -> float:
    return float(f"{milliseconds:.4g}")


def _ms(milliseconds: float) -> str:
    return f"{milliseconds:.3g} ms"
