"""Commands that make a file, or say what it would be."""

from pathlib import Path
from typing import Annotated

import typer

from kernelwright import env
from kernelwright.commands.forking import children
from kernelwright.commands.printing import print_json, print_lines, progress_line
from kernelwright.commands.words import Json, Seeds, TargetName, parse_sizes, parse_target
from kernelwright.errors import ExitCode

_COMPILERS = (
    *("torch._dynamo.callback", "torch.export", "torch.fx.experimental.symbolic_shapes"),
    "kernelwright.pipeline",
)
"""What capturing imports in any case, before anything can be judged."""


def optimize(
    model: Annotated[
        Path, typer.Argument(help="Problem file: Model, get_inputs, get_init_inputs.")
    ],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="File to write; MODEL_new.py by default.")
    ] = None,
    target: TargetName = None,
    effort: Annotated[
        str | None, typer.Option(help="How hard to tune: none, quick or full.")
    ] = None,
    budget: Annotated[
        float | None, typer.Option(help="Seconds of tuning, all kernels together.", min=0.0)
    ] = None,
    strict: Annotated[bool, typer.Option(help="Refuse to leave anything to PyTorch.")] = False,
    sizes: Annotated[
        str,
        typer.Option(help="any, or captured: a shorter file, only for the sizes of get_inputs."),
    ] = "any",
    seeds: Seeds = 5,
    as_json: Json = False,
) -> ExitCode:
    """Write the file, build it, verify it, time it."""
    with children(_COMPILERS):
        import kernelwright as kw
        from kernelwright.report.judgement import measurement_lines, verdict_lines
        from kernelwright.tune.effort import effort as profile
        from kernelwright.verify.cases import STRICT
        from kernelwright.worker import Haste

        hard = profile(effort or env.EFFORT.get())
        options = kw.OptimizeOptions(
            target=parse_target(target),
            rest=kw.Rest.REFUSED if strict else kw.Rest.LEFT,
            sizes=parse_sizes(sizes),
            effort=hard,
            budget_seconds=budget if budget is not None else env.BUDGET.get(),
            judge=kw.JudgeOptions(
                seeds=seeds, demands=STRICT, timing=hard.timing, haste=Haste.AT_ONCE
            ),
        )
        with progress_line() as progress:
            done = kw.optimize(model, output, options=options, progress=progress.event)
    if as_json:
        print_json(done.to_json())
    else:
        print_lines(done.compiled.explanation.lines())
        print_lines(verdict_lines(done.verdict, model, done.path))
        print_lines(measurement_lines(done.measurement))
        print_lines([f"kept        {done.kept}"] if done.kept else [])
        typer.echo(f"wrote       {done.path}")
        typer.echo(f"next        kernelwright judge {model} {done.path}")
    return ExitCode(done.verdict.status.exit_code)


def explain(
    model: Annotated[Path, typer.Argument(help="Problem file.")],
    graphs: Annotated[
        bool, typer.Option(help="Print the graph before and after the rewrites.")
    ] = True,
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Run graph and plan at small sizes and compare them with the module."
        ),
    ] = False,
    as_json: Json = False,
) -> ExitCode:
    """Say what would be rewritten and fused, what not, and why. Builds no kernel."""
    import kernelwright as kw

    with progress_line() as progress:
        progress.begin("plan", str(model))
        facts = kw.explain(model)
        if check:
            progress.begin("check", "graph and plan against the module")
        checks = kw.check(model) if check else ()
    code = ExitCode.VERIFIED if all(it.agrees for it in checks) else ExitCode.WRONG
    if as_json:
        plain = [{"stage": it.stage, "difference": it.difference} for it in checks]
        print_json({**facts.to_json(), "checks": plain} if check else facts.to_json())
        return code
    if graphs:
        typer.echo(f"--- before\n{facts.captured}")
        typer.echo(f"--- after\n{facts.rewritten}")
    print_lines(facts.lines())
    print_lines(f"checked     {it}" for it in checks)
    return code
