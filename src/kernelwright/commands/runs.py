"""Commands about whole folders of problems."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from kernelwright import env
from kernelwright.commands.printing import print_json, print_lines
from kernelwright.commands.words import (
    Candidates,
    Json,
    Like,
    RunFolder,
    Seeds,
    Select,
    TargetName,
    parse_target,
)
from kernelwright.errors import ExitCode, UsageError, writing


def suite(
    places: Annotated[
        list[Path], typer.Argument(metavar="DIR", help="A folder of problem files, or the files.")
    ],
    select: Select = None,
    candidates: Candidates = None,
    run: RunFolder = None,
    like: Like = None,
    gpus: Annotated[str, typer.Option(help="How many cards to use, or all.")] = "all",
    slots: Annotated[
        int | None, typer.Option(help="Problems worked on at the same time on each card.", min=1)
    ] = None,
    target: TargetName = None,
    effort: Annotated[str | None, typer.Option(help="Tuning effort: none, quick, full.")] = None,
    seeds: Seeds = 5,
    timeout: Annotated[float, typer.Option(help="Most seconds for one problem.", min=1.0)] = 600.0,
    baselines: Annotated[
        str, typer.Option(help="What to time against, with commas: eager, compile, max-autotune.")
    ] = "eager,compile",
    ray: Annotated[
        str | None, typer.Option(help="Work on a Ray cluster: its address, or local.")
    ] = None,
    shard: Annotated[
        str, typer.Option(help="I/N: every N-th problem, beginning with number I, counted from 0.")
    ] = "0/1",
    commit: Annotated[str, typer.Option(help="The commit to record if git has none.")] = "",
    as_json: Json = False,
) -> ExitCode:
    """Work through a folder of problems over all GPUs; --run continues one that was interrupted."""
    from kernelwright.suite.command import Request, run_suite

    request = Request(
        places=tuple(places),
        select=tuple(select or ()),
        candidates=candidates,
        folder=run,
        like=like,
        gpus=gpus,
        slots=slots,
        target=parse_target(target).value,
        effort=effort or env.EFFORT.get(),
        seeds=seeds,
        timeout=timeout,
        baselines=baselines,
        ray=ray,
        shard=shard,
        commit=commit,
    )
    done = run_suite(request, Console(stderr=True), typer.echo if as_json else lambda line: None)
    if not as_json:
        from kernelwright.report.summary import summary_lines

        print_lines(summary_lines(done.summary))
        typer.echo(f"wrote       {done.folder}")
        typer.echo(f"next        kernelwright report {done.folder}")
    everything = done.summary.all
    return ExitCode.VERIFIED if everything.verified == everything.problems else ExitCode.WRONG


def report(
    run: Annotated[Path, typer.Argument(help="Folder of a run, such as runs/latest.")],
    against: Annotated[Path | None, typer.Option(help="An older run to compare with.")] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", help="File to write; report.html in the run's folder by default."
        ),
    ] = None,
    as_markdown: Annotated[
        bool, typer.Option("--markdown", help="Write Markdown instead.")
    ] = False,
    as_csv: Annotated[
        bool, typer.Option("--csv", help="Write comma-separated values instead.")
    ] = False,
    as_json: Json = False,
) -> ExitCode:
    """Write a run as one HTML file with pictures, as Markdown or as CSV."""
    from kernelwright.report.html import render_page
    from kernelwright.report.tables import comma_separated, markdown
    from kernelwright.suite.reading import read_run

    if as_markdown and as_csv:
        raise UsageError("--markdown and --csv are two files", next_step="Ask for one at a time.")
    new, old = read_run(run), read_run(against) if against else None
    if as_csv and old is not None:
        step = "Use --markdown or the page; or write both as CSV."
        raise UsageError("--csv is of one run", next_step=step)
    match as_markdown, as_csv:
        case True, _:
            text, ending = markdown(new, old), "md"
        case _, True:
            text, ending = comma_separated(new), "csv"
        case _:
            text, ending = render_page(new, old), "html"
    path = output or run / f"report.{ending}"
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    size = len(text.encode())
    if as_json:
        print_json({"file": str(path), "bytes": size})
    else:
        typer.echo(f"wrote       {path} ({size / 2**10:,.0f} KiB)")
    return ExitCode.VERIFIED
