"""The tuner: compile variants side by side, time them one at a time, keep the best so far.

    result = tune(variants, measure, budget_seconds=30.0, finalists=2)
    database.add(rows_of(key, result))

Compiling needs all the cores and no GPU, timing needs the GPU for itself and no core: so both go on
at once, and the wall time is about that of the longer one. The tuner knows nothing of CUDA: how a
variant is compiled and measured is handed in.
"""

import math
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from kernelwright.errors import KernelwrightError, NoCompilerError
from kernelwright.toolchain.cuda import compile_libraries


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One way to write a kernel."""

    config: Mapping[str, object]
    """Its tunables, as plain JSON values."""
    source: str
    """CUDA text with an `extern "C"` launcher."""
    function: str
    """Name of the launcher."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """A variant that ran, and computed what it has to."""

    seconds: float
    """Median time of one launch."""
    samples: int
    """Launches that the median is over."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.seconds) and self.seconds > 0.0 and self.samples > 0):
            raise ValueError(f"not a measured time: {self}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A variant that did not compile, run, or compute what it has to."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A variant and what became of it."""

    variant: Variant
    outcome: Timing | Failure


class Ending(StrEnum):
    """Why tuning ended."""

    COMPLETE = "complete"
    """Every variant was tried."""
    BUDGET = "budget"
    """The time was used up."""
    INTERRUPTED = "interrupted"
    """Ctrl-C."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningResult:
    """All that was learned, however tuning ended."""

    trials: tuple[Trial, ...]
    """In the order in which they were first timed; a finalist's two timings are one here."""
    ending: Ending
    untried: int
    """Variants that no time was left for."""
    seconds: float
    """Wall time."""

    def of(self, function: str) -> "TuningResult":
        """What was learned of one function's variants."""
        trials = tuple(it for it in self.trials if it.variant.function == function)
        return replace(self, trials=trials)

    @property
    def best(self) -> Trial | None:
        """The fastest, None if no variant ran."""
        timed = [(t.outcome.seconds, t) for t in self.trials if isinstance(t.outcome, Timing)]
        return min(timed, key=lambda entry: entry[0])[1] if timed else None


Measure = Callable[[Variant, Path], Timing | Failure]
"""Times one variant, given its compiled library; alone on the GPU for as long as it takes."""
CompileAll = Callable[
    [Sequence[str], float], Generator[tuple[int, Path | KernelwrightError], None, None]
]
"""Compiles source texts within so many seconds; yields indices and libraries as they are ready."""


def tune(
    variants: Sequence[Variant],
    measure: Measure,
    *,
    budget_seconds: float,
    finalists: int = 0,
    compile_all: CompileAll = compile_libraries,
    on_trial: Callable[[Trial], None] = lambda trial: None,
    clock: Callable[[], float] = time.monotonic,
) -> TuningResult:
    """Compile and time `variants`, best-ranked first, until all are tried or the budget is spent.

    Variants of several functions are as many races, in one go; `finalists` are those of each.

    What `measure` raises as a KernelwrightError makes the variant a failure. Ctrl-C ends tuning and
    keeps what was timed. `on_trial` hears of each trial as it ends. `clock` is what the budget is
    counted by.

    Raises NoCompilerError where nothing can be compiled.
    """
    started = clock()
    race = _Race(variants, measure, on_trial, clock, deadline=started + budget_seconds)
    ending = Ending.COMPLETE
    try:
        with closing(compile_all([v.source for v in variants], budget_seconds)) as libraries:
            race.run(libraries)
        race.run_again(finalists)
    except KeyboardInterrupt:
        ending = Ending.INTERRUPTED
    trials = tuple(race.trials.values())
    untried = len(variants) - len(trials)
    if untried and ending is Ending.COMPLETE:
        ending = Ending.BUDGET
    seconds = clock() - started
    return TuningResult(trials=trials, ending=ending, untried=untried, seconds=seconds)


class _Race:
    """The trials so far, which are there to take whenever the race is broken off."""

    def __init__(
        self,
        variants: Sequence[Variant],
        measure: Measure,
        on_trial: Callable[[Trial], None],
        clock: Callable[[], float],
        *,
        deadline: float,
    ) -> None:
        self.trials: dict[int, Trial] = {}
        """By index in `variants`."""
        self._variants = variants
        self._measure = measure
        self._on_trial = on_trial
        self._clock = clock
        self._deadline = deadline
        self._libraries: dict[int, Path] = {}

    def run(self, libraries: Iterable[tuple[int, Path | KernelwrightError]]) -> None:
        """Time each variant as its library gets ready, while there is time."""
        for index, library in libraries:
            match library:
                case NoCompilerError():
                    raise library
                case KernelwrightError():
                    self._note(index, Failure(reason=library.message))
                case _:
                    self._libraries[index] = library
                    self._note(index, self._time(index))
            if self._late():
                return

    def run_again(self, finalists: int) -> None:
        """Time the fastest few of each function once more, while there is time, and pool times."""
        of_function: dict[str, list[tuple[int, Timing]]] = {}
        for index, timing in sorted(self._timed(), key=lambda entry: entry[1].seconds):
            of_function.setdefault(self._variants[index].function, []).append((index, timing))
        # A race of one is decided.
        races = [it[:finalists] for it in of_function.values() if len(it[:finalists]) > 1]
        for index, first in (entry for race in races for entry in race):
            if self._late():
                return
            match self._time(index):
                case Timing() as second:
                    self._note(index, _pool(first, second))
                case Failure() as failure:
                    self._note(index, failure)

    def _timed(self) -> list[tuple[int, Timing]]:
        return [
            (index, trial.outcome)
            for index, trial in self.trials.items()
            if isinstance(trial.outcome, Timing)
        ]

    def _time(self, index: int) -> Timing | Failure:
        try:
            return self._measure(self._variants[index], self._libraries[index])
        except KernelwrightError as error:
            return Failure(reason=error.message)

    def _note(self, index: int, outcome: Timing | Failure) -> None:
        self.trials[index] = Trial(variant=self._variants[index], outcome=outcome)
        self._on_trial(self.trials[index])

    def _late(self) -> bool:
        return self._clock() >= self._deadline


def _pool(first: Timing, second: Timing) -> Timing:
    """Both timings as one, each with the weight of its samples."""
    samples = first.samples + second.samples
    total = first.seconds * first.samples + second.seconds * second.samples
    return Timing(seconds=total / samples, samples=samples)
