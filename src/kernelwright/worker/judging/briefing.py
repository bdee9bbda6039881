"""What a candidate is asked on its target, at the sizes that the reference has found."""

from kernelwright.toolchain.records import Target
from kernelwright.verify.cases import (
    LARGE_SEEDS,
    Demand,
    PlannedCase,
    plan_cases,
    plan_constructions,
    plan_large,
)
from kernelwright.verify.tolerance import CPU_STAND_IN, NO_LESS_ACCURATE
from kernelwright.verify.verdict import Check, Outcome
from kernelwright.verify.verification import Brief
from kernelwright.worker.judging.session import ChildSession
from kernelwright.worker.options import JudgeOptions
from kernelwright.worker.process.requests import LARGE, SizesReply


def plan(
    session: ChildSession, target: Target, options: JudgeOptions, static_checks: tuple[Check, ...]
) -> Brief:
    """What to ask of the candidate on `target`, at the sizes that the session finds."""
    sizes = session.sizes()
    return Brief(
        cases=_cases(sizes, options),
        demands=options.demands,
        tolerance=CPU_STAND_IN if target is Target.CPU else NO_LESS_ACCURATE,
        target=target.value,
        sizes=dict(sizes.own),
        reduced=sizes.others[0] if _is_large(sizes) else (),
        static_checks=(*static_checks, *_coverage(sizes, options)),
        further=() if options.cases else _further(sizes, options),
        probes=0 if options.cases else _PROBES,
    )


def _further(sizes: SizesReply, options: JudgeOptions) -> tuple[PlannedCase, ...]:
    return plan_constructions(seeds=options.seeds, demands=options.demands, own_sizes=sizes.own)


_PROBES = 8
"""Cases on which wrong answers are tried; what they do not refuse, hardly any other does."""


def _is_large(sizes: SizesReply) -> bool:
    return sizes.bytes > LARGE and bool(sizes.others) and not sizes.own


def _coverage(sizes: SizesReply, options: JudgeOptions) -> tuple[Check, ...]:
    """What is not asked at full size, for a problem of gigabytes."""
    if options.cases or not _is_large(sizes):
        return ()
    reduced = ", ".join(f"{name} = {value}" for name, value in sizes.others[0])
    return (
        Check(
            name="coverage",
            outcome=Outcome.PASSED,
            evidence=f"one call touches {sizes.bytes / 1e9:.1f} GB: {LARGE_SEEDS} sets of its own "
            f"inputs and one of zero mean at full size, everything else at {reduced}",
        ),
    )


def _cases(sizes: SizesReply, options: JudgeOptions) -> tuple[PlannedCase, ...]:
    if options.cases:
        return tuple(
            PlannedCase(case=case, demand=Demand.REQUIRED, purpose="asked for")
            for case in options.cases
        )
    if _is_large(sizes):
        return plan_large(
            seeds=options.seeds,
            demands=options.demands,
            other_sizes=sizes.others,
            ragged=sizes.ragged,
        )
    return plan_cases(
        seeds=options.seeds,
        demands=options.demands,
        own_sizes=sizes.own,
        other_sizes=sizes.others,
        # Shrunk sizes stand for the file's own, which cannot be run: any of them counts.
        ragged=() if sizes.own else sizes.ragged,
    )
