"""What a suite shows while it works: what runs where, what is done, how long it will take."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from kernelwright.report.row import BEST, Row
from kernelwright.suite.task import Task

_REFRESH_PER_SECOND = 2
_HALF_A_MINUTE = 30.0


class Progress:
    """Counts and shows; its methods may be called from any thread."""

    def __init__(self, total: int, done: int, console: Console) -> None:
        self._total = total
        self._console = console
        self._lock = threading.Lock()
        self._running: dict[str, tuple[str, str, float]] = {}
        """Card, stage and begin of each problem in work."""
        self._begun = time.monotonic()
        self._before = done
        self._done = done
        self._verified = 0

    def on_stage(self, task: Task, card: str, stage: str, message: str) -> None:
        """`task` is at `stage` on `card`."""
        with self._lock:
            _, _, since = self._running.get(task.problem, ("", "", time.monotonic()))
            self._running[task.problem] = card, f"{stage} {message}".strip(), since

    def on_row(self, row: Row) -> None:
        """A problem is done."""
        with self._lock:
            self._running.pop(row.problem, None)
            self._done += 1
            self._verified += row.verified
        if not self._console.is_terminal:
            self._print(row)
        elif not row.verified:
            self._console.print(Text(row_line(row)), soft_wrap=True)

    def _print(self, row: Row) -> None:
        head = f"[{self._done:>{len(str(self._total))}}/{self._total}]"
        self._console.print(Text(f"{head} {row_line(row)}{self._left()}"), soft_wrap=True)

    def _left(self) -> str:
        done = self._done - self._before
        if not done:
            return ""
        seconds = (time.monotonic() - self._begun) / done * (self._total - self._done)
        if seconds < _HALF_A_MINUTE:
            return ""
        return f"  about {max(1, round(seconds / 60))} min left"

    @contextmanager
    def shown(self) -> Iterator[None]:
        """On a terminal: a table that is kept up to date."""
        if not self._console.is_terminal:
            yield
            return
        with Live(
            console=self._console,
            get_renderable=self._table,
            refresh_per_second=_REFRESH_PER_SECOND,
            transient=True,
        ):
            yield

    def _table(self) -> RenderableType:
        now = time.monotonic()
        with self._lock:
            running = sorted(
                (card, problem, stage, now - since)
                for problem, (card, stage, since) in self._running.items()
            )
            failed = self._done - self._before - self._verified
            head = (
                f"{self._done} of {self._total} done, {failed} not verified, "
                f"{len(running)} running{self._left()}"
            )
        table = Table(box=None, pad_edge=False, show_header=False)
        for card, problem, stage, seconds in running:
            table.add_row(
                Text(card and f"GPU {card}"), Text(problem), Text(stage), f"{seconds:.0f} s"
            )
        return Group(Text(head, style="bold"), table)


def row_line(row: Row) -> str:
    """One problem in one line: what became of it, and how fast or why not."""
    seconds = f"  {sum(row.seconds.values()):.0f} s" if row.seconds else ""
    return f"{row.problem}  {row.status}  {_speed(row) if row.verified else _why(row)}{seconds}"


def _speed(row: Row) -> str:
    if not row.speedups:
        return row.note
    parts = [f"{it.device.value:.2f}x {it.baseline}" for it in row.speedups]
    best = row.speedup(BEST)
    if best is not None:
        parts.append(f"[{best.device.low:.2f}, {best.device.high:.2f}] over {BEST}")
    if row.share_of_floor is not None:
        parts.append(f"{row.share_of_floor:.0%} of floor")
    return ", ".join(parts)


def _why(row: Row) -> str:
    trouble = row.trouble
    if trouble is None:
        return row.summary
    where = f" at {trouble.location}" if trouble.location else ""
    return f"{_first_line(trouble.message)}{where}. Next: {trouble.next_step}"


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0].rstrip(".")
