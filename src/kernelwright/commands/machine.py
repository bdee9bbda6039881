"""Commands about this machine and this installation."""

from typing import Annotated

import typer

from kernelwright import __version__
from kernelwright.commands.printing import print_json, print_lines
from kernelwright.commands.words import Json
from kernelwright.errors import ExitCode


def doctor(as_json: Json = False) -> ExitCode:
    """Say what works on this machine, what does not, and what to do about it."""
    from dataclasses import asdict

    from kernelwright.toolchain.doctor import Status, diagnose, worst

    checks = diagnose()
    status = worst(checks)
    if as_json:
        print_json({"status": status, "checks": [asdict(check) for check in checks]})
    else:
        print_lines(str(check) for check in checks)
    return ExitCode.UNSUPPORTED if status is Status.FAIL else ExitCode.VERIFIED


def clean(
    gigabytes: Annotated[
        float | None,
        typer.Option(help="Keep this many gigabytes, the most recently used.", min=0.0),
    ] = None,
    days: Annotated[
        float | None, typer.Option(help="Remove what was not used for this many days.", min=0.0)
    ] = None,
    as_json: Json = False,
) -> ExitCode:
    """Remove what was built from the cache: all of it, unless options say how much to keep."""
    from dataclasses import asdict

    from kernelwright.toolchain import cache

    limit = 0 if gigabytes is None and days is None else gigabytes
    done = cache.clean(
        max_bytes=None if limit is None else int(limit * 2**30),
        max_age_seconds=None if days is None else days * 86400,
    )
    if as_json:
        print_json(asdict(done))
    else:
        typer.echo(f"removed {done.removed} entries ({done.freed_bytes / 2**20:,.0f} MiB)")
        typer.echo(f"kept    {done.kept} entries ({done.kept_bytes / 2**20:,.0f} MiB)")
    return ExitCode.VERIFIED


def version(as_json: Json = False) -> ExitCode:
    """Print the version."""
    if as_json:
        print_json({"version": __version__})
    else:
        typer.echo(__version__)
    return ExitCode.VERIFIED
