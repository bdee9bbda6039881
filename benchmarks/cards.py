"""Judgements side by side on the cards of a machine; some have a card to themselves."""

import atexit
import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, ProcessPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from kernelwright import env
from kernelwright.suite.child import keep_to
from kernelwright.suite.pool import places_of
from kernelwright.suite.process import IMPORTED
from kernelwright.suite.task import Place
from kernelwright.verify.verification import Event
from kernelwright.worker.options import JudgeOptions
from kernelwright.worker.process.nursery import Nursery, employed


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One judgement to make."""

    part: str
    """Of the record."""
    name: str
    run: Callable[..., dict[str, Any]]
    argument: Any
    alone: bool = False
    """Whether it needs a card that nobody else uses."""


class Cards:
    """Some judgements side by side on each of some cards, each card with its share of the cores."""

    def __init__(self, cards: Sequence[str], jobs: int) -> None:
        threads = max(1, env.usable_cores() * 2 // (len(cards) * jobs))
        self._jobs = jobs
        self._places = places_of(cards, threads)
        self._pools = {card: self._new_pool(place) for card, place in self._places.items()}
        self._free = dict.fromkeys(cards, jobs)
        self.running: dict[Future[dict[str, Any]], tuple[Task, str]] = {}

    def room(self, task: Task) -> bool:
        """Whether this can begin."""
        return max(self._free.values()) >= self._slots(task)

    def _slots(self, task: Task) -> int:
        return self._jobs if task.alone else 1

    def begin(self, task: Task, options: JudgeOptions) -> None:
        """Start a judgement on the card with the fewest of them."""
        card = max(self._free, key=lambda name: self._free[name])
        self._free[card] -= self._slots(task)
        place = self._places[card]
        try:
            future = self._pools[card].submit(_judge_at, place, task, options)
        except BrokenExecutor:  # a judgement has ended its process; it is a row by then
            self._pools[card] = self._new_pool(place)
            future = self._pools[card].submit(_judge_at, place, task, options)
        self.running[future] = task, card

    def _new_pool(self, place: Place) -> ProcessPoolExecutor:
        spawning = multiprocessing.get_context("spawn")
        return ProcessPoolExecutor(
            self._jobs, mp_context=spawning, initializer=_settle, initargs=(place,)
        )

    def wait(self, seconds: float) -> list[tuple[Task, "Future[dict[str, Any]]"]]:
        """Those that have ended, one at least unless that takes longer."""
        done, _ = wait(self.running, timeout=seconds, return_when=FIRST_COMPLETED)
        ended = []
        for future in done:
            task, card = self.running.pop(future)
            self._free[card] += self._slots(task)
            ended.append((task, future))
        return ended

    def close(self) -> None:
        """End all, whatever they are doing."""
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)
        for process in multiprocessing.active_children():
            process.kill()


def _settle(place: Place) -> None:
    """Let this process have the place's card, before anything looks for one, and its compilers."""
    if place.card:
        os.environ[env.CUDA_VISIBLE_DEVICES.name] = place.card
    for variable in (env.THREADS, env.COMPILE_THREADS):
        os.environ[variable.name] = str(place.threads)
    os.environ |= {env.BLAS_THREADS.name: "1", env.CUDA_CHECK.name: "1"}
    # Children of all judgements of this process are forks of one that has imported what they need.
    forks = ExitStack()
    forks.enter_context(employed(Nursery.listening(IMPORTED, os.environ)))
    atexit.register(forks.close)


def _judge_at(place: Place, task: Task, options: JudgeOptions) -> dict[str, Any]:
    """Make a judgement; what is being timed moves to cores where nobody else is."""
    if place.cores:
        os.sched_setaffinity(0, place.cores)
    row: dict[str, Any] = task.run(task.argument, options, partial(_make_way, place))
    return row


def _make_way(place: Place, event: Event) -> None:
    if place.timing_cores and event.stage == "time" and event.message.startswith("timing"):
        keep_to(place.timing_cores)
