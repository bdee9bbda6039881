"""The command line: parse, run the line, print, exit with the code that says how it went."""

import importlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from kernelwright import __version__, env
from kernelwright.errors import ExitCode, KernelwrightError, UsageError, writing

app = typer.Typer(
    name="kernelwright",
    help="Turn a PyTorch module into one file of CUDA kernels, and prove that it is right.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

# Recent releases of typer carry a click of their own; this is the class that either one raises.
_WrongWords: Any = typer.BadParameter.__base__

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on standard output.")]
TargetName = Annotated[
    str | None, typer.Option("--target", help="cuda, or cpu: the emulator. Default: what works.")
]
Select = Annotated[
    list[str] | None, typer.Option(help="Names to take: 'level1/*', '*relu*'; repeatable.")
]
Candidates = Annotated[
    Path | None, typer.Option(help="Judge the files of this folder instead of making any.")
]
Like = Annotated[
    Path | None,
    typer.Option(
        help="An earlier run, or its results as JSON: what took longest there begins first."
    ),
]
RunFolder = Annotated[
    Path | None, typer.Option("--run", help="Folder of the run: new in runs/, or one to continue.")
]
Seeds = Annotated[int, typer.Option(help="Seeds of each kind of input.", min=1)]


def main() -> None:
    """Entry point of the `kernelwright` script."""
    try:
        code = app(standalone_mode=False) or ExitCode.VERIFIED
    except KernelwrightError as error:
        code = error.exit_code
        _print_error(error.to_json(), str(error))
    except _WrongWords as error:
        code = ExitCode.USAGE
        if message := _words_of(error):  # Without any, the help has been printed.
            wrong = UsageError(message)
            _print_error(wrong.to_json(), str(wrong))
    except (KeyboardInterrupt, typer.Abort):
        typer.echo("interrupted", err=True)
        sys.exit(130)
    sys.exit(int(code))


def script() -> None:
    """The `kernelwright` script: `main`, and an end at once.

    Python takes a second to take PyTorch apart, for nobody: the system frees what a process has.
    """
    code: object = ExitCode.VERIFIED
    try:
        main()
    except SystemExit as end:
        code = end.code
    with suppress(OSError):  # nobody reads any more
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code if isinstance(code, int) else ExitCode.VERIFIED)


_COMPILERS = (
    *("torch._dynamo.callback", "torch.export", "torch.fx.experimental.symbolic_shapes"),
    "kernelwright.pipeline",
)
"""What capturing imports in any case, before anything can be judged."""


_ROLES = "kernelwright.worker.roles"
_DRIVER = Path("/dev/nvidiactl")
"""What is there where there is a card."""


@contextmanager
def _children(modules: Sequence[str] = ()) -> Iterator[None]:
    """Children in the block are forks of this process, which saves each the seconds of its imports.

    What is forked has imported what all of them need, and `modules`, and done no more: it has one
    thread and no card.
    """
    from kernelwright.worker.nursery import Nursery, employed, may_fork

    needed = (*modules, _ROLES)
    with env.present({env.BLAS_THREADS.name: "1", env.CUDA_CHECK.name: "1"}):
        # Those that count launches load a library first: theirs imports beside this one.
        listening = Nursery.listening([_ROLES], os.environ) if _DRIVER.exists() else None
        for name in needed:
            importlib.import_module(name)
        forks = employed(Nursery.forked(), listening) if may_fork() else nullcontext()
    with forks:
        yield


def _words_of(error: Any) -> str:
    return str(error.format_message())


def _print_error(plain: dict[str, Any], text: str) -> None:
    if "--json" in sys.argv:
        typer.echo(json.dumps(plain, indent=2))
    else:
        typer.echo(f"error: {text}", err=True)


@app.command()
def optimize(
    model: Annotated[
        Path, typer.Argument(help="Problem file: Model, get_inputs, get_init_inputs.")
    ],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="File to write; MODEL_new.py by default.")
    ] = None,
    target: TargetName = None,
    effort: Annotated[str | None, typer.Option(help="Tuning: none, quick or full.")] = None,
    budget: Annotated[float | None, typer.Option(help="Seconds of tuning.", min=0.0)] = None,
    strict: Annotated[bool, typer.Option(help="Refuse to leave anything to PyTorch.")] = False,
    sizes: Annotated[
        str, typer.Option(help="any, or captured: a shorter file, for the problem's own sizes.")
    ] = "any",
    seeds: Seeds = 5,
    as_json: Json = False,
) -> ExitCode:
    """Write the file, build it, verify it, time it."""
    with _children(_COMPILERS):
        import kernelwright as kw
        from kernelwright.report.judgement import measurement_lines, verdict_lines
        from kernelwright.tune.effort import effort as profile
        from kernelwright.verify.cases import STRICT
        from kernelwright.worker import Haste

        hard = profile(effort or env.EFFORT.get())
        options = kw.OptimizeOptions(
            target=_target(target),
            rest=kw.Rest.REFUSED if strict else kw.Rest.LEFT,
            sizes=_sizes(sizes),
            effort=hard,
            budget_seconds=budget if budget is not None else env.BUDGET.get(),
            judge=kw.JudgeOptions(
                seeds=seeds, demands=STRICT, timing=hard.timing, haste=Haste.AT_ONCE
            ),
        )
        with _progress() as progress:
            done = kw.optimize(model, output, options=options, progress=progress.event)
    if as_json:
        _print_json(done.to_json())
    else:
        _print_lines(done.compiled.explanation.lines())
        _print_lines(verdict_lines(done.verdict))
        _print_lines(measurement_lines(done.measurement))
        typer.echo(f"wrote       {done.path}")
        typer.echo(f"next        kernelwright judge {model} {done.path}")
    return ExitCode(done.verdict.status.exit_code)


@app.command()
def judge(
    reference: Annotated[Path, typer.Argument(help="The problem file.")],
    candidate: Annotated[Path, typer.Argument(help="A file with ModelNew, whoever wrote it.")],
    target: TargetName = None,
    seeds: Seeds = 5,
    case: Annotated[
        list[str] | None, typer.Option(help="Run just this case, as a verdict printed it.")
    ] = None,
    demand: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[=HOW]",
            help="What is required, reported or skipped instead of the usual: 'nan=reported'; "
            "'drop-in' alone requires it.",
        ),
    ] = None,
    sanitize: Annotated[
        bool | None,
        typer.Option(
            help="All of compute-sanitizer's tools at small sizes, or none; else memcheck, for a "
            "file with kernels of its own."
        ),
    ] = None,
    timing: Annotated[
        str, typer.Option(help="full, or quick: no longer than a clear time takes.")
    ] = "full",
    as_json: Json = False,
) -> ExitCode:
    """Verify and time a candidate against a problem."""
    with _children():
        from kernelwright.bench.timing import timing_plan
        from kernelwright.report.judgement import measurement_lines, verdict_lines
        from kernelwright.worker import JudgeOptions
        from kernelwright.worker.options import Haste, Sanitizers

        tools = {None: Sanitizers.MEMCHECK, True: Sanitizers.ALL, False: Sanitizers.OFF}
        options = JudgeOptions(
            seeds=seeds,
            demands=_demands(demand or ()),
            cases=tuple(_case(text) for text in case or ()),
            sanitizers=tools[sanitize],
            haste=Haste.AT_ONCE,
            timing=timing_plan(timing),
        )
        # Told before the processes have ended, which takes those with a card a while.
        with _judging(reference, candidate, _target(target), options) as (verdict, measurement):
            if as_json:
                _print_json({"verdict": verdict.to_json(), "measurement": measurement.to_json()})
            else:
                _print_lines(verdict_lines(verdict))
                _print_lines(measurement_lines(measurement))
            sys.stdout.flush()
    return ExitCode(verdict.status.exit_code)


@contextmanager
def _judging(
    reference: Path, candidate: Path, target: Any, options: Any
) -> Iterator[tuple[Any, Any]]:
    """Verdict and measurement; what captures the problem is imported while processes start."""
    from kernelwright.problem import load_problem
    from kernelwright.worker import judged

    problem = load_problem(reference)

    def learn() -> tuple[Any, Any]:
        from kernelwright.pipeline import floor_and_demands

        return floor_and_demands(problem, options.demands)

    with (
        _progress() as progress,
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


@app.command()
def explain(
    model: Annotated[Path, typer.Argument(help="Problem file.")],
    graphs: Annotated[bool, typer.Option(help="Print the graph before and after.")] = True,
    check: Annotated[
        bool, typer.Option("--check", help="Compute graph and plan, small, against the module.")
    ] = False,
    as_json: Json = False,
) -> ExitCode:
    """Say what would be rewritten and fused, what not and why. Runs nothing but what is checked."""
    import kernelwright as kw

    facts = kw.explain(model)
    checks = kw.check(model) if check else ()
    code = ExitCode.VERIFIED if all(it.agrees for it in checks) else ExitCode.WRONG
    if as_json:
        plain = [{"stage": it.stage, "difference": it.difference} for it in checks]
        _print_json({**facts.to_json(), "checks": plain} if check else facts.to_json())
        return code
    if graphs:
        typer.echo(f"--- before\n{facts.captured}")
        typer.echo(f"--- after\n{facts.rewritten}")
    _print_lines(facts.lines())
    _print_lines(f"checked     {it}" for it in checks)
    return code


@app.command()
def emulate(
    file: Annotated[Path, typer.Argument(help="A file with ModelNew or Model, and get_inputs.")],
    case: Annotated[
        str, typer.Option(help="Inputs, as a verdict prints them: 'seed=1 size:M=33'.")
    ] = "",
    order: Annotated[
        int, typer.Option(help="Seed of the order of threads and blocks; 0: as numbered.", min=0)
    ] = 0,
    as_json: Json = False,
) -> ExitCode:
    """Run a file's kernels once on the emulator, in this process: launches, findings, results."""
    from kernelwright.emulation import emulate as run

    done = run(file, _case(case), order)
    if as_json:
        _print_json(done.to_json())
    else:
        _print_lines(done.lines())
    return ExitCode.WRONG if done.findings else ExitCode.VERIFIED


@app.command()
def suite(
    places: Annotated[
        list[Path], typer.Argument(metavar="DIR", help="A folder of problem files, or the files.")
    ],
    select: Select = None,
    candidates: Candidates = None,
    run: RunFolder = None,
    like: Like = None,
    gpus: Annotated[str, typer.Option(help="How many cards of this machine, or all.")] = "all",
    slots: Annotated[
        int | None, typer.Option(help="Problems in flight on each card.", min=1)
    ] = None,
    target: TargetName = None,
    effort: Annotated[str | None, typer.Option(help="Tuning: none, quick or full.")] = None,
    seeds: Seeds = 5,
    timeout: Annotated[float, typer.Option(help="Seconds for one problem.", min=1.0)] = 600.0,
    baselines: Annotated[
        str, typer.Option(help="To time against: eager, compile, max-autotune.")
    ] = "eager,compile",
    ray: Annotated[
        str | None, typer.Option(help="Work on a Ray cluster: its address, or local.")
    ] = None,
    shard: Annotated[str, typer.Option(help="I/N: every N-th problem, from number I.")] = "0/1",
    commit: Annotated[
        str, typer.Option(help="What to record as the commit where there is no git.")
    ] = "",
    as_json: Json = False,
) -> ExitCode:
    """Work through a folder of problems over all GPUs; goes on where it was interrupted."""
    from kernelwright.suite.command import Request, run_suite

    request = Request(
        places=tuple(places),
        select=tuple(select or ()),
        candidates=candidates,
        folder=run,
        like=like,
        gpus=gpus,
        slots=slots,
        target=_target(target).value,
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

        _print_lines(summary_lines(done.summary))
        typer.echo(f"wrote       {done.folder}")
        typer.echo(f"next        kernelwright report {done.folder}")
    everything = done.summary.all
    return ExitCode.VERIFIED if everything.verified == everything.problems else ExitCode.WRONG


@app.command()
def report(
    run: Annotated[Path, typer.Argument(help="Folder of a run, as runs/latest.")],
    against: Annotated[Path | None, typer.Option(help="An older run to compare with.")] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="File; report.html in the run by default.")
    ] = None,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Markdown instead.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Comma-separated values instead.")] = False,
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
        _print_json({"file": str(path), "bytes": size})
    else:
        typer.echo(f"wrote       {path} ({size / 2**20:.1f} MiB)")
    return ExitCode.VERIFIED


@app.command()
def doctor(as_json: Json = False) -> ExitCode:
    """Say what works on this machine, what does not, and what to do about it."""
    from dataclasses import asdict

    from kernelwright.toolchain.doctor import Status, diagnose, worst

    checks = diagnose()
    status = worst(checks)
    if as_json:
        _print_json({"status": status, "checks": [asdict(check) for check in checks]})
    else:
        _print_lines(str(check) for check in checks)
    return ExitCode.UNSUPPORTED if status is Status.FAIL else ExitCode.VERIFIED


@app.command()
def clean(
    gigabytes: Annotated[
        float | None, typer.Option(help="Keep the most recently used so many gigabytes.", min=0.0)
    ] = None,
    days: Annotated[
        float | None, typer.Option(help="Remove what lay idle so long.", min=0.0)
    ] = None,
    as_json: Json = False,
) -> ExitCode:
    """Remove what was built from the cache: all of it, unless told how much or how old."""
    from dataclasses import asdict

    from kernelwright.toolchain import cache

    limit = 0 if gigabytes is None and days is None else gigabytes
    done = cache.clean(
        max_bytes=None if limit is None else int(limit * 2**30),
        max_age_seconds=None if days is None else days * 86400,
    )
    if as_json:
        _print_json(asdict(done))
    else:
        typer.echo(f"removed {done.removed} entries ({done.freed_bytes / 2**20:,.0f} MiB)")
        typer.echo(f"kept    {done.kept} entries ({done.kept_bytes / 2**20:,.0f} MiB)")
    return ExitCode.VERIFIED


@app.command()
def version(as_json: Json = False) -> ExitCode:
    """Print the version."""
    if as_json:
        _print_json({"version": __version__})
    else:
        typer.echo(__version__)
    return ExitCode.VERIFIED


def _case(text: str) -> Any:
    from kernelwright.verify.cases import Case

    try:
        return Case.parse(text)
    except ValueError as error:
        step = "Copy the text between the quotes of a verdict's --case."
        raise UsageError(f"--case {text!r}: {error}", next_step=step) from None


def _demands(words: Iterable[str]) -> Any:
    from kernelwright.verify.cases import Demands

    try:
        return Demands().asking(words)
    except ValueError as error:
        step = "Write it as 'nan=reported'; NAME is a field of kernelwright.verify.Demands."
        raise UsageError(f"--demand: {error}", next_step=step) from None


def _sizes(name: str) -> Any:
    from kernelwright.pipeline import Sizes

    if name not in [it.value for it in Sizes]:
        raise UsageError(f"no sizes are called {name!r}", next_step="Use any or captured.")
    return Sizes(name)


def _target(name: str | None) -> Any:
    from kernelwright.errors import NoGpuError
    from kernelwright.toolchain.records import Target
    from kernelwright.worker.judging import default_target

    match name or env.TARGET.get():
        case "auto":
            return default_target()
        case "cuda" if default_target() is not Target.CUDA:
            raise NoGpuError("no CUDA GPU is visible to PyTorch")
        case "cuda" | "cpu" as known:
            return Target(known)
        case other:
            raise UsageError(f"no target is called {other!r}", next_step="Use cuda or cpu.")


class _Progress:
    """One line on standard error that says what is going on; nothing where that is no terminal."""

    def __init__(self, update: Callable[[str], None]) -> None:
        self._update = update

    def event(self, event: Any) -> None:
        self._update(escape(f"{event.stage} {event.done + 1}/{event.total}: {event.message}"))


@contextmanager
def _progress() -> Iterator[_Progress]:
    console = Console(stderr=True)
    with console.status("starting") as status:
        yield _Progress(lambda message: status.update(message))


def _print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        typer.echo(line)


def _print_json(fields: dict[str, Any]) -> None:
    typer.echo(json.dumps(fields, indent=2))
