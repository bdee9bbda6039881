"""The command line: parse, run the line, print, exit with the code that says how it went."""

import json
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import Any

import typer

from kernelwright.commands.judging import emulate, judge
from kernelwright.commands.machine import clean, doctor, version
from kernelwright.commands.making import explain, optimize
from kernelwright.commands.runs import report, suite
from kernelwright.errors import ExitCode, KernelwrightError, UsageError

app = typer.Typer(
    name="kernelwright",
    help="Turn a PyTorch module into one file of CUDA kernels, and verify that it is right.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

# Recent releases of typer carry a click of their own; this is the class that either one raises.
_WrongWords: Any = typer.BadParameter.__base__


class _InterruptedError(Exception):
    """Ctrl-C, with what it says of what is there; typer keeps no word of a KeyboardInterrupt."""


def _telling(command: Callable[..., ExitCode]) -> Callable[..., ExitCode]:
    """The command, whose Ctrl-C typer lets pass."""

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> ExitCode:
        try:
            return command(*args, **kwargs)
        except KeyboardInterrupt as end:
            raise _InterruptedError(*end.args) from end

    return run


for _command in (optimize, judge, explain, emulate, suite, report, doctor, clean, version):
    app.command()(_telling(_command))


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
    except (_InterruptedError, KeyboardInterrupt, typer.Abort) as end:
        typer.echo(": ".join(["interrupted", *map(str, end.args)]), err=True)
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


def _words_of(error: Any) -> str:
    return str(error.format_message())


def _print_error(plain: dict[str, Any], text: str) -> None:
    if "--json" in sys.argv:
        typer.echo(json.dumps(plain, indent=2))
    else:
        typer.echo(f"error: {text}", err=True)
