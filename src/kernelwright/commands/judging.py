"""Commands that run a file: `judge` anybody's, `emulate` one's own."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from kernelwright.commands.forking import children, compiler
from kernelwright.commands.printing import print_json, print_lines, progress_line
from kernelwright.commands.words import (
    Json,
    Seeds,
    TargetName,
    parse_case,
    parse_demands,
    parse_target,
)
from kernelwright.errors import ExitCode
from kernelwright.problem import Problem, load_problem
from kernelwright.worker.card.ledger import Ledger
from kernelwright.worker.timeline import age_of_this_process


def judge(
    reference: Annotated[Path, typer.Argument(help="The problem file.")],
    candidate: Annotated[Path, typer.Argument(help="A file with ModelNew, whoever wrote it.")],
    target: TargetName = None,
    seeds: Seeds = 5,
    case: Annotated[
        list[str] | None, typer.Option(help="Run only this case, as a verdict printed it.")
    ] = None,
    demand: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[=HOW]",
            help="Make a property required, reported or skipped: 'nan=reported' accepts a file "
            "that is wrong at NaN; 'drop-in' alone is required.",
        ),
    ] = None,
    sanitize: Annotated[
        bool | None,
        typer.Option(
            help="All of compute-sanitizer's tools at small sizes, or none of them. Default: "
            "memcheck, for a file with kernels of its own."
        ),
    ] = None,
    timing: Annotated[
        str, typer.Option(help="full, or quick: stop as soon as the speedup is clear.")
    ] = "full",
    as_json: Json = False,
) -> ExitCode:
    """Verify and time a candidate against a problem."""
    before, since = Ledger(), time.monotonic()
    before.add("command: Python", age_of_this_process())
    problem = load_problem(reference)
    with compiler(problem, target), children():
        before.add("command: imports", time.monotonic() - since)
        from kernelwright.bench.timing import timing_plan
        from kernelwright.report.judgement import measurement_lines, verdict_lines
        from kernelwright.worker import JudgeOptions
        from kernelwright.worker.options import Haste

        options = JudgeOptions(
            seeds=seeds,
            demands=parse_demands(demand or ()),
            cases=tuple(parse_case(text) for text in case or ()),
            sanitizers=_sanitizers(sanitize),
            haste=Haste.AT_ONCE,
            timing=timing_plan(timing),
        )
        # Told before the processes have ended, which takes those with a card a while.
        with _judging(problem, candidate, parse_target(target), options) as (
            verdict,
            measurement,
        ):
            verdict = replace(verdict, spent=before.entries() | dict(verdict.spent))
            if as_json:
                print_json({"verdict": verdict.to_json(), "measurement": measurement.to_json()})
            else:
                print_lines(verdict_lines(verdict, reference, candidate))
                print_lines(measurement_lines(measurement))
            sys.stdout.flush()
    return ExitCode(verdict.status.exit_code)


def _sanitizers(asked: bool | None) -> Any:
    from kernelwright.worker.options import Sanitizers

    return {None: Sanitizers.MEMCHECK, True: Sanitizers.ALL, False: Sanitizers.OFF}[asked]


@contextmanager
def _judging(
    problem: Problem, candidate: Path, target: Any, options: Any
) -> Iterator[tuple[Any, Any]]:
    """Verdict and measurement; what captures the problem is imported while processes start."""
    from kernelwright.worker import judged

    def learn() -> tuple[Any, Any]:
        from kernelwright.worker.process.importing import quick_imports

        with quick_imports():
            from kernelwright.pipeline import floor_and_demands

            return floor_and_demands(problem, options.demands)

    with (
        progress_line() as progress,
        judged(
            learn,
            problem,
            candidate,
            target=target,
            options=options,
            progress=progress.event,
        ) as found,
    ):
        yield found


def emulate(
    file: Annotated[Path, typer.Argument(help="A file with ModelNew or Model, and get_inputs.")],
    case: Annotated[
        str, typer.Option(help="Inputs, as a verdict prints them: 'seed=1 size:M=33'.")
    ] = "",
    order: Annotated[
        int,
        typer.Option(
            help="Seed of the order in which threads and blocks run; 0: as numbered.", min=0
        ),
    ] = 0,
    as_json: Json = False,
) -> ExitCode:
    """Run a file's kernels once on the emulator, in this process: launches, findings, results."""
    from kernelwright.emulation import emulate as run

    with progress_line() as progress:
        progress.begin("emulate", str(file))
        done = run(file, parse_case(case), order)
    if as_json:
        print_json(done.to_json())
    else:
        print_lines(done.lines())
    return ExitCode.WRONG if done.findings else ExitCode.VERIFIED
