"""What commands print: lines or JSON on standard output, progress on standard error."""

import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape


class ProgressLine:
    """What is going on, in one line: the stage, how far it is, how long it will take, what follows.

    Where standard error is no terminal, a stage is a line of its own and its steps are not told.
    """

    def __init__(
        self,
        update: Callable[[str], None],
        say: Callable[[str], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`update` replaces the line; `say` writes one that stays, where there is no terminal."""
        self._update = update
        self._say = say
        self._clock = clock
        self._stage = ""
        self._began = 0.0
        self._before = 0
        """Steps of the stage that were done when it was first heard of."""

    def begin(self, stage: str, message: str) -> None:
        """A stage of one step."""
        self._tell(stage, message, 0, 1)

    def event(self, event: Any) -> None:
        """A step of a stage: a `kernelwright.verify.verification.Event`."""
        self._tell(event.stage, event.message, event.done, event.total)

    def _tell(self, stage: str, message: str, done: int, total: int) -> None:
        if stage != self._stage:
            self._stage, self._began, self._before = stage, self._clock(), done
            if self._say is not None:
                self._say(f"{stage}: {message}")
        steps = f" {min(done + 1, total)}/{total}" if total > 1 else ""
        left = self._left(done, total)
        self._update(escape(f"{stage}{steps}: {message}{left}{_after(stage)}"))

    def _left(self, done: int, total: int) -> str:
        finished = done - self._before
        if finished <= 0:
            return ""
        seconds = (self._clock() - self._began) / finished * (total - done)
        return f", about {seconds:.0f} s left" if seconds >= 1.0 else ""


_STAGES = ("capture", "tune", "build", "verify", "time")
"""In the order in which a command comes to them."""


def _after(stage: str) -> str:
    """What follows a stage."""
    following = _STAGES[_STAGES.index(stage) + 1 :] if stage in _STAGES else ()
    return f"; then {', '.join(following)}" if following else ""


@contextmanager
def progress_line() -> Iterator[ProgressLine]:
    """A line on standard error, which is gone at the end."""
    console = Console(stderr=True)
    with console.status("starting") as status:
        say = None if console.is_terminal else partial(_say, console)
        yield ProgressLine(lambda message: status.update(message), say)


def _say(console: Console, message: str) -> None:
    console.print(escape(message), soft_wrap=True)


def print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        typer.echo(line)


def print_json(fields: dict[str, Any]) -> None:
    typer.echo(json.dumps(fields, indent=2))
