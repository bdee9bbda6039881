"""A whole run as reports take it, wherever it was read from."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kernelwright.report.row import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class RunData:
    """Rows with what is behind them."""

    name: str
    facts: Mapping[str, Any]
    """Provenance: date, command, commit, versions, cards."""
    settings: Mapping[str, Any]
    rows: tuple[Row, ...]
    details: Mapping[str, Mapping[str, Any]]
    """By problem: verdict, measurement, plan, graphs, text, as far as they were kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One problem in two runs."""

    problem: str
    old: Row | None
    new: Row | None

    @property
    def ratio(self) -> float | None:
        """The new time over the old one; None where one of them is missing."""
        if self.old is None or self.new is None:
            return None
        before, after = self.old.device_ms, self.new.device_ms
        return after / before if before and after else None

    @property
    def lost(self) -> bool:
        """It was verified and is not any more."""
        return bool(self.old and self.old.verified and not (self.new and self.new.verified))

    @property
    def won(self) -> bool:
        """It is verified and was not before."""
        return bool(self.new and self.new.verified and not (self.old and self.old.verified))


def changes_between(old: RunData, new: RunData) -> list[Change]:
    """All problems of either run: those lost first, then the slower ones, the slowest first."""
    before = {row.problem: row for row in old.rows}
    after = {row.problem: row for row in new.rows}
    names = dict.fromkeys([*after, *before])
    changes = [Change(problem=it, old=before.get(it), new=after.get(it)) for it in names]
    return sorted(changes, key=lambda it: (not it.lost, -(it.ratio or 0.0), not it.won))
