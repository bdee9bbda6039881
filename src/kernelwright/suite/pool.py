"""Where tasks run: the cards of this machine, or a Ray cluster.

    with LocalPool(cards, slots=6) as pool:
        future = pool.submit(task)

A task that comes back has an outcome, whatever its process did.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Protocol, Self

from kernelwright import env
from kernelwright.errors import UsageError
from kernelwright.report.row import Ending
from kernelwright.suite.process import (
    CHILD,
    IMPORTED,
    STARTING,
    Lost,
    Running,
    Source,
    lost_row,
    nursery_environment,
    run_task,
)
from kernelwright.suite.task import Outcome, Place, Task
from kernelwright.worker.process.nursery import Nursery

_CORES_PER_PROBLEM = 2
"""On a cluster, which says nothing of how many problems share a machine."""
_FEW_CORES = 5
"""Cores of a card up to which none are kept for timing."""
_TIMING_CORES = 2
"""Those who are timed take turns; beside the one that launches there is one that keeps time."""
_PROBLEMS, _ON_CORES = 3, 4
"""So many problems for so many cores: each has a thread or two, which wait for the card or for each
other a third of the time."""
_MOST_SLOTS = 10
"""Problems on one card at a time: each has five processes there, of half a gigabyte. With more a
card of 140 GB is full more often, and nothing goes faster: the driver starts so many processes."""
_LOCAL = "local"
_RAY_RETRIES = 3
"""Times that a problem is begun again whose worker or machine was lost; then it has no result."""


class Watcher(Protocol):
    """Hears what happens, in any thread."""

    def on_stage(self, task: Task, card: str, stage: str, message: str) -> None:
        """`task` is at `stage` on `card`; the first stage of all is `STARTING`."""
        ...


class Pool(Protocol):
    """Runs tasks somewhere."""

    def submit(self, task: Task) -> Future[Outcome]:
        """Run the task when there is room for it."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Wait for what was submitted; after an exception, end it instead."""
        ...


def slots_per_card(cards: int) -> int:
    """How many problems a card should have in flight: their compilers share the cores."""
    cores = env.usable_cores() // max(1, cards)
    return max(1, min(_MOST_SLOTS, cores * _PROBLEMS // _ON_CORES))


def places_of(cards: Sequence[str], threads: int) -> dict[str, Place]:
    """An even share of the cores for each card, where they suffice with some kept for timing."""
    mine = sorted(os.sched_getaffinity(0))
    each = len(mine) // len(cards)
    places = {}
    for index, card in enumerate(cards):
        share = tuple(mine[index * each : (index + 1) * each]) if each > _FEW_CORES else ()
        places[card] = Place(
            card=card,
            threads=threads,
            cores=share[_TIMING_CORES:],
            timing_cores=share[:_TIMING_CORES],
        )
    return places


class LocalPool:
    """Several problems at a time on each card of this machine.

    What they do on the CPU overlaps; what is timed takes the card for itself by its lease.
    """

    def __init__(
        self,
        cards: Sequence[str],
        slots: int,
        watcher: Watcher,
        command: Sequence[str] = CHILD,
    ) -> None:
        self._watcher = watcher
        self._nursery: Nursery | None = None
        if command == CHILD:
            environment = nursery_environment(watches=any(cards))
            self._nursery = Nursery.started(IMPORTED, environment)
        self._source: Source = self._nursery or command
        self._running = Running()
        self._free: SimpleQueue[str] = SimpleQueue()
        # Card by card, so that the first problems go to different cards.
        for card in [*cards] * slots:
            self._free.put(card)
        count = len(cards) * slots
        self._places = places_of(cards, threads=max(1, env.usable_cores() * 2 // count))
        # Never more threads than the kernel shows: a process ends with the thread that began it.
        self._executor = ThreadPoolExecutor(max_workers=count, thread_name_prefix="problem")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self._running.end()
        self._executor.shutdown(wait=True, cancel_futures=error is not None)
        if self._nursery is not None:
            self._nursery.close()

    def submit(self, task: Task) -> Future[Outcome]:
        """Run the task on the first card that has room."""
        return self._executor.submit(self._run, task)

    def _run(self, task: Task) -> Outcome:
        card = self._free.get()
        try:
            self._watcher.on_stage(task, card, STARTING, "")
            return run_task(
                task,
                self._places[card],
                on_stage=partial(self._watcher.on_stage, task, card),
                running=self._running,
                source=self._source,
            )
        finally:
            self._free.put(card)


class RayPool:
    """A pool over a Ray cluster: it places the tasks and repeats those of machines it loses."""

    def __init__(
        self,
        address: str,
        slots: int,
        target: str,
        watcher: Watcher,
        command: Sequence[str] = CHILD,
    ) -> None:
        try:
            import ray
        except ImportError:
            step = "pip install 'kernelwright[ray]'"
            raise UsageError("Ray is not installed", next_step=step) from None
        self._ray: Any = ray
        with env.present({env.RAY_USAGE.name: env.RAY_USAGE.get()}):
            ray.init(
                address=None if address == _LOCAL else address,
                include_dashboard=False,
                log_to_driver=False,
            )
        resources = {"num_gpus": 1 / slots, "num_cpus": 1} if target == "cuda" else {"num_cpus": 1}
        self._watcher = watcher
        self._command = tuple(command)
        self._remote = ray.remote(max_retries=_RAY_RETRIES, **resources)(_run_on_cluster)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ray.shutdown()

    def submit(self, task: Task) -> Future[Outcome]:
        """Run the task wherever the cluster has room; what Ray gives up has a row that says so."""
        self._watcher.on_stage(task, "", "handed to Ray", "")
        given: Future[Outcome] = Future()

        def settle(answer: Future[Outcome]) -> None:
            try:
                given.set_result(answer.result())
            except self._ray.exceptions.RayError as error:
                given.set_result(_given_up(task, error))
            except BaseException as error:
                given.set_exception(error)

        self._remote.remote(task, self._command).future().add_done_callback(settle)
        return given


def _run_on_cluster(task: Task, command: Sequence[str]) -> Outcome:
    """What a worker of the cluster does; Ray has set CUDA_VISIBLE_DEVICES for it."""
    return run_task(task, Place(threads=_CORES_PER_PROBLEM), source=command)


def _given_up(task: Task, error: Exception) -> Outcome:
    """Outcome of a task that no worker of the cluster could end."""
    reason = next(iter(str(error).splitlines()), "") or type(error).__name__
    lost = Lost(
        ending=Ending.CRASHED,
        message=f"Ray gave it up: {reason}",
        next_step="Look at the whole text below: a worker of the cluster died, or lacks a package.",
    )
    details = {"log": str(error), "stack": ""}
    return Outcome(row=lost_row(task, lost, details, 1), details=details)


MakePool = Callable[[int, Watcher], Pool]
"""Makes a pool with so many problems in flight on each card, and somebody to tell."""
