"""What commands print: lines or JSON on standard output, progress on standard error."""

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape


class ProgressLine:
    """One line on standard error that says what is going on; nothing where that is no terminal."""

    def __init__(self, update: Callable[[str], None]) -> None:
        self._update = update

    def event(self, event: Any) -> None:
        self._update(escape(f"{event.stage} {event.done + 1}/{event.total}: {event.message}"))


@contextmanager
def progress_line() -> Iterator[ProgressLine]:
    console = Console(stderr=True)
    with console.status("starting") as status:
        yield ProgressLine(lambda message: status.update(message))


def print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        typer.echo(line)


def print_json(fields: dict[str, Any]) -> None:
    typer.echo(json.dumps(fields, indent=2))
