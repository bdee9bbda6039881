"""How long a call takes on a GPU: the only place where kernelwright measures time of kernels.

Two times are taken. The *device span* lies between two CUDA events around the call, recorded while
the L2 flush in front of it still runs, so that the kernels follow each other as the device lets
them. The *host time* runs from the call to the end of a synchronisation on an idle device: it has
the launch overhead in it, which is all that launch-bound models consist of.

Before each call a buffer of at least twice the L2 is written, and the inputs rotate over several
sets. `interleave` takes small batches of every contestant in turn, so that a clock that changes
changes for all.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch

from kernelwright.bench.statistics import median_interval
from kernelwright.errors import UsageError
from kernelwright.verify.verdict import Status

PROCESS_SCATTER_MS = 3e-4
"""Standard deviation of a process's median about that of all processes that run the same code; no
number of its samples shows it. On an H200 nine processes that ran three kernels of 19.2 us in all
had medians of 18.74 to 19.46 us: a third of them about 18.76, the others about 19.35. What an event
resolves (half a microsecond by the CUDA Runtime API, steps of 32 ns as seen) is part of it. It is
taken to be the same for calls of any length and of any number of kernels."""
_FLUSH_TIMES_L2 = 2.5
_HOST_SHARE = 4
"""One host sample for so many device samples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingPlan:
    """How much to measure."""

    warm_up_seconds: float = 0.5
    """Calls before the first sample, by time: clocks rise and caches fill."""
    input_sets: int = 3
    """Sets of inputs that the calls rotate over."""
    batch: int = 10
    """Device samples of one contestant before it is the next one's turn."""
    samples: int = 100
    """Device samples of each contestant, at least, unless `seconds` have passed."""
    seconds: float = 1.0
    """Time spent measuring each contestant, at least, unless there are `samples`."""
    most_samples: int = 1000
    least_samples: int = 20
    """What the medians are known from at the very least."""
    most_seconds: float = 30.0
    """Time after which `least_samples` have to do: those of a very large problem."""
    precision: float = 0.0
    """Share of the median that the ends of its interval may be away from it, for each contestant:
    then fewer samples do as well, as they do within half of `PROCESS_SCATTER_MS`. 0: never."""
    precise_samples: int = 0
    """Those that have to be there for that, besides `least_samples`."""

    def enough(
        self, taken: int, seconds: float, spans: Sequence[Sequence[Sequence[float]]]
    ) -> bool:
        """Whether to stop after `taken` samples in `seconds`.

        `spans` are the rounds of every contestant. What is reported is the interval of the ratio,
        wide or narrow; here it is only asked whether more samples are worth their time.
        """
        if taken >= self.samples:
            return True
        if taken < self.least_samples:
            return False
        if seconds >= self.most_seconds:
            return True
        asked = self.precision > 0.0 and taken >= self.precise_samples
        return asked and all(_known(rounds, self.precision) for rounds in spans)


FULL_TIMING = TimingPlan(warm_up_seconds=0.2, precision=0.003, precise_samples=60)
"""For one problem: its median may be a third of a percent away where it stops early."""
QUICK_TIMING = TimingPlan(
    warm_up_seconds=0.2, batch=4, samples=60, seconds=0.5, most_seconds=4.0, precision=0.01
)
"""For many problems, or one in a hurry: no longer than a clear time takes."""

_PLANS: Mapping[str, TimingPlan] = {"full": FULL_TIMING, "quick": QUICK_TIMING}


def timing_plan(name: str) -> TimingPlan:
    """The plan of this name; raises UsageError for another."""
    if name not in _PLANS:
        raise UsageError(f"no timing is called {name!r}", next_step=f"Use {' or '.join(_PLANS)}.")
    return _PLANS[name]


def _known(rounds: Sequence[Sequence[float]], precision: float) -> bool:
    interval = median_interval(rounds)
    away = max(interval.high - interval.value, interval.value - interval.low)
    return away <= max(precision * interval.value, PROCESS_SCATTER_MS / 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """One batch of one contestant, in milliseconds."""

    device_ms: tuple[float, ...]
    host_ms: tuple[float, ...]


class Stopwatch:
    """Times calls on one CUDA device; holds the buffer that flushes its L2."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        l2_bytes = int(torch.cuda.get_device_properties(device).L2_cache_size)
        size = int(l2_bytes * _FLUSH_TIMES_L2)
        self._flush_buffer = torch.empty(size, dtype=torch.uint8, device=device)

    def warm_up(self, call: Callable[[int], object], seconds: float) -> None:
        """Call for `seconds`, at least twice."""
        deadline = time.perf_counter() + seconds
        turn = 0
        while turn < 2 or time.perf_counter() < deadline:
            call(turn)
            torch.cuda.synchronize(self._device)
            turn += 1

    def sample(self, call: Callable[[int], object], count: int) -> Samples:
        """`count` device samples and a quarter as many host samples of `call(turn)`."""
        device_ms = tuple(self._device_span(call, turn) for turn in range(count))
        host_turns = range(count, count + max(1, count // _HOST_SHARE))
        return Samples(
            device_ms=device_ms, host_ms=tuple(self._host_time(call, turn) for turn in host_turns)
        )

    def _device_span(self, call: Callable[[int], object], turn: int) -> float:
        start, end = (
            torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            for _ in range(2)
        )
        self._flush_buffer.zero_()
        start.record()
        result = call(turn)
        end.record()
        torch.cuda.synchronize(self._device)
        del result  # kept until here: freeing it earlier would hand its memory to the call itself
        return float(start.elapsed_time(end))

    def _host_time(self, call: Callable[[int], object], turn: int) -> float:
        self._flush_buffer.zero_()
        torch.cuda.synchronize(self._device)
        start = time.perf_counter()
        result = call(turn)
        torch.cuda.synchronize(self._device)
        seconds = time.perf_counter() - start
        del result
        return seconds * 1e3


class Contestant(Protocol):
    """Something that gives batches of samples when asked; it runs only then."""

    def take(self, count: int) -> Samples:
        """The next `count` device samples; raises `ContestantLostError` if there are no more."""
        ...


class ContestantLostError(Exception):
    """A contestant cannot be measured any more; the message says why."""

    status = Status.CRASHED
    """What that makes of a candidate."""


class ContestantHungError(ContestantLostError):
    """A contestant did not end in time."""

    status = Status.TIMED_OUT


@dataclass(slots=True)
class Rounds:
    """The batches of one contestant so far, in milliseconds."""

    device_ms: list[tuple[float, ...]] = field(default_factory=list)
    host_ms: list[tuple[float, ...]] = field(default_factory=list)
    outside_ms: list[tuple[float, ...]] = field(default_factory=list)
    """Milliseconds of the calls in `device_ms`, by the clock of the timer's process."""
    other_ms: list[tuple[float, ...]] = field(default_factory=list)
    """Device spans on zero-mean inputs."""
    waited_ms: list[tuple[float, ...]] = field(default_factory=list)
    """How long in the calls of `outside_ms` threads waited for a core, by the kernel's account."""
    late: int = 0
    """Calls that were not launched at once: they wait for the device themselves."""
    persisting_l2: int = 0
    """Most bytes of the L2 that it had set aside for what survives a flush."""
    checked: int = 0
    """Results that were compared."""
    wrong: list[str] = field(default_factory=list)
    """Those that were wrong, a sentence each."""
    lost: str = ""
    """Why it fell out, or empty."""
    lost_as: Status = ContestantLostError.status
    """What that makes of a candidate."""

    def add(
        self,
        device_ms: Sequence[float],
        host_ms: Sequence[float],
        outside_ms: Sequence[float] = (),
        other_ms: Sequence[float] = (),
        waited_ms: Sequence[float] = (),
    ) -> None:
        """One more batch."""
        self.device_ms.append(tuple(device_ms))
        self.host_ms.append(tuple(host_ms))
        self.outside_ms.append(tuple(outside_ms))
        self.other_ms.append(tuple(other_ms))
        self.waited_ms.append(tuple(waited_ms))

    def lose(self, error: ContestantLostError) -> None:
        """Fall out: what was measured so far does not count."""
        self.lost, self.lost_as = str(error), error.status
        for batches in (
            self.device_ms,
            self.host_ms,
            self.outside_ms,
            self.other_ms,
            self.waited_ms,
        ):
            batches.clear()


def interleave(
    contestants: Mapping[str, Contestant],
    plan: TimingPlan,
    on_round: Callable[[int], None],
) -> dict[str, Rounds]:
    """Batches of all contestants in turn, A B C A B C, until each has enough.

    One that fails falls out with its reason; its rounds are dropped, the others go on.
    """
    rounds = {name: Rounds() for name in contestants}
    start = time.perf_counter()
    taken = 0
    while taken < plan.most_samples:
        racing = [name for name in contestants if not rounds[name].lost]
        if not racing:
            break
        for name in racing:
            _take(contestants[name], rounds[name], plan.batch)
        taken += plan.batch
        on_round(taken)
        seconds = time.perf_counter() - start
        spans = [it.device_ms for it in rounds.values() if not it.lost]
        enough_time = seconds >= plan.seconds * len(racing) and taken >= 2 * plan.batch
        if enough_time or plan.enough(taken, seconds, spans):
            break
    return rounds


def _take(contestant: Contestant, rounds: Rounds, count: int) -> None:
    try:
        samples = contestant.take(count)
    except ContestantLostError as error:
        rounds.lose(error)
        return
    rounds.add(samples.device_ms, samples.host_ms)


def rotate(
    call: Callable[..., object], sets: Sequence[Sequence[object]]
) -> Callable[[int], object]:
    """`call` on the set of arguments whose turn it is."""
    return lambda turn: call(*sets[turn % len(sets)])
