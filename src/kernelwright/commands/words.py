"""Options that several commands have, and what their words mean."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from kernelwright import env
from kernelwright.errors import UsageError

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on standard output.")]
TargetName = Annotated[
    str | None,
    typer.Option("--target", help="cuda, or cpu (the emulator). Default: cuda where it works."),
]
Select = Annotated[
    list[str] | None,
    typer.Option(help="Problems to take, by name: 'level1/*', '*relu*'; repeatable."),
]
Candidates = Annotated[
    Path | None, typer.Option(help="Judge the files of this folder instead of writing new ones.")
]
Like = Annotated[
    Path | None,
    typer.Option(
        help="An earlier run, or its results as JSON: the longest problems of it begin first."
    ),
]
RunFolder = Annotated[
    Path | None,
    typer.Option(
        "--run", help="Folder of the run: a new one in runs/ by default, or one to continue."
    ),
]
Seeds = Annotated[int, typer.Option(help="How many seeds each kind of input is made with.", min=1)]


def parse_case(text: str) -> Any:
    from kernelwright.verify.cases import Case

    try:
        return Case.parse(text)
    except ValueError as error:
        step = "Copy the text between the quotes of a verdict's --case."
        raise UsageError(f"--case {text!r}: {error}", next_step=step) from None


def parse_demands(words: Iterable[str]) -> Any:
    from kernelwright.verify.cases import Demands

    try:
        return Demands().asking(words)
    except ValueError as error:
        step = "Write it as 'nan=reported'; NAME is a field of kernelwright.verify.Demands."
        raise UsageError(f"--demand: {error}", next_step=step) from None


def parse_sizes(name: str) -> Any:
    from kernelwright.compiling import Sizes

    if name not in [it.value for it in Sizes]:
        raise UsageError(f"no sizes are called {name!r}", next_step="Use any or captured.")
    return Sizes(name)


def parse_target(name: str | None) -> Any:
    from kernelwright.errors import NoGpuError
    from kernelwright.toolchain.records import Target
    from kernelwright.worker.judging.judging import default_target

    match name or env.TARGET.get():
        case "auto":
            return default_target()
        case "cuda" if default_target() is not Target.CUDA:
            raise NoGpuError("no CUDA GPU is visible to PyTorch")
        case "cuda" | "cpu" as known:
            return Target(known)
        case other:
            raise UsageError(f"no target is called {other!r}", next_step="Use cuda or cpu.")
