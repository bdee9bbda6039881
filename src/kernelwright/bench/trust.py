"""Whether a time can be believed: a candidate's samples against what is known from outside."""

from collections.abc import Iterator
from dataclasses import dataclass

from kernelwright.bench.outside import Outside, Standing
from kernelwright.bench.roofline import Floor
from kernelwright.bench.statistics import median
from kernelwright.bench.timing import Rounds
from kernelwright.machine import Machine
from kernelwright.verify.verdict import Check, Outcome, Status

_WRITE_MARGIN = 0.9
"""Share of the time that writing the results takes at the measured rate: the rate may be beaten."""
_FLOOR_MARGIN = 0.9
"""That share for the floor of the plan, which is only a model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What one call cannot do without, in bytes."""

    written: int
    """Bytes of the results: each call fills memory of its own."""
    floor: Floor | None
    """What our own plan for the problem needs; None without one."""


def examine_times(
    candidate: Rounds,
    reference: Rounds | None,
    outside: Outside | None,
    work: Work,
    machine: Machine,
) -> Iterator[Check]:
    """All checks of the candidate's samples."""
    yield from _results_check(candidate)
    if candidate.lost and not candidate.wrong:
        yield lost_check(candidate.lost, candidate.lost_as)
    if outside is not None:
        yield _outside_check(candidate, outside)
    if candidate.device_ms:
        yield _speed_check(median(candidate.device_ms), work, machine)
    # CUDA itself sets some aside when it starts: as much as in the reference's process.
    usual = 0 if reference is None else reference.persisting_l2
    if reference is not None and candidate.persisting_l2 > usual:
        yield Check(
            name="L2 cache",
            outcome=Outcome.FAILED,
            evidence=f"it set {candidate.persisting_l2 / 2**20:.1f} MB of the L2 aside for data "
            f"that survives the flush between timed calls, where {usual / 2**20:.1f} MB are usual "
            "(the judge took them back)",
            status=Status.CHEATING,
        )
    if candidate.late * 2 > sum(map(len, candidate.device_ms)) > 0:
        yield Check(
            name="launches",
            outcome=Outcome.WARNING,
            evidence=f"{candidate.late} calls waited for the device before all was launched: "
            "their time has the host's in it",
        )


def lost_check(reason: str, status: Status) -> Check:
    """The candidate could not be timed to the end, though all its verified calls ended."""
    return Check(
        name="timed calls",
        outcome=Outcome.FAILED,
        evidence=f"while it was timed: {reason}",
        status=status,
    )


def _results_check(rounds: Rounds) -> Iterator[Check]:
    name = "timed results"
    if len(rounds.wrong) > 1:
        text = (
            f"right when it was verified, wrong when it was timed: {len(rounds.wrong)} of "
            f"{rounds.checked} results, the first on {rounds.wrong[0]}"
        )
        yield Check(name=name, outcome=Outcome.FAILED, evidence=text, status=Status.CHEATING)
    elif rounds.wrong:
        text = f"one of {rounds.checked} timed results is wrong: {rounds.wrong[0]}"
        status = Status.NOT_DETERMINISTIC
        yield Check(name=name, outcome=Outcome.FAILED, evidence=text, status=status)
    elif rounds.checked:
        text = f"all {rounds.checked} compared with the reference's, on inputs used only once"
        yield Check(name=name, outcome=Outcome.PASSED, evidence=text, status=Status.CHEATING)


def _outside_check(candidate: Rounds, outside: Outside) -> Check:
    """What the other clock says of the candidate's events."""
    span, seen = median(candidate.device_ms), median(candidate.outside_ms)
    text = (
        f"{span:.4f} ms between its events, {seen:.4f} ms by the clock of another process, of "
        f"which {outside.usual:.4f} ms are the judge's own"
    )
    outcome = Outcome.PASSED
    match outside.standing:
        case Standing.HIDDEN:
            outcome = Outcome.FAILED
            text += (
                f": in nearly every call {outside.certain:.4f} ms of work or more lie outside the "
                "events (a stream that is not joined, or events that lie)"
            )
        case Standing.LONGER:
            text += f": {outside.beyond:.4f} ms more than its events say, and these count"
        case Standing.PARTLY:
            text += ": the machine is busy, and the calls count that were seen as soon as usual"
        case Standing.UNKNOWN:
            outcome = Outcome.WARNING
            text = (
                f"{span:.4f} ms between its events; the clock of another process was too late to "
                f"confirm that: in {outside.on_time} of {outside.calls} calls nobody waited for a "
                "core. Is the machine busy?"
            )
    return Check(name="time from outside", outcome=outcome, evidence=text, status=Status.CHEATING)


def _speed_check(milliseconds: float, work: Work, machine: Machine) -> Check:
    """Nobody writes faster than the card; nobody does the plan's work faster than its rates."""
    name = "possible speed"
    # What stays in the L2 need not have reached memory when the call ends.
    written = max(0, work.written - machine.l2_bytes)
    least = written / machine.write_bandwidth * 1e3
    if milliseconds < _WRITE_MARGIN * least:
        return Check(
            name=name,
            outcome=Outcome.FAILED,
            evidence=f"{milliseconds:.4f} ms, but writing its {work.written / 1e9:.2f} GB of "
            f"results alone takes {least:.4f} ms on this card: the work was not done in that time",
            status=Status.CHEATING,
        )
    floor = work.floor
    floor_ms = None if floor is None else floor.milliseconds(machine)
    modelled = 0.0 if floor is None or floor.algebraic else _FLOOR_MARGIN * (floor_ms or 0.0)
    if milliseconds < modelled:
        # A warning and no verdict: the bytes of our plan are what we know how to do, not a bound.
        # Whoever found a shorter way to results that are all right is no cheat.
        return Check(
            name=name,
            outcome=Outcome.WARNING,
            evidence=f"{milliseconds:.4f} ms is less than the {floor_ms:.4f} ms that the bytes and "
            "operations of our own plan take at this card's rates: it does less work than that",
        )
    seen = "" if floor_ms is None else f", the modelled floor is {floor_ms:.4f} ms"
    return Check(
        name=name,
        outcome=Outcome.PASSED,
        evidence=f"{milliseconds:.4f} ms; writing the results takes {least:.4f} ms{seen}",
        status=Status.CHEATING,
    )
