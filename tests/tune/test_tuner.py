"""The tuner with fake compilers and clocks: order, budget, failures, Ctrl-C."""

import ctypes
import math
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path

import pytest

from kernelwright.errors import CompileError, KernelwrightError, NoCompilerError, UsageError
from kernelwright.toolchain.compilers import find_nvcc
from kernelwright.tune import effort as efforts
from kernelwright.tune.effort import effort
from kernelwright.tune.tuner import (
    Ending,
    Failure,
    Timing,
    Trial,
    TuningResult,
    Variant,
    tune,
)

Compiled = Generator[tuple[int, Path | KernelwrightError], None, None]


def _variants(count: int) -> list[Variant]:
    return [Variant(config={"tile": i}, source=f"source {i}", function="f") for i in range(count)]


def _compile_all(sources: Sequence[str], timeout: float) -> Compiled:
    for index, source in enumerate(sources):
        yield index, Path(source)


def _from(seconds: Sequence[float]) -> Callable[[Variant, Path], Timing | Failure]:
    """A clock that says `seconds[tile]`."""

    def measure(variant: Variant, library: Path) -> Timing | Failure:
        assert library == Path(variant.source)
        return Timing(seconds=seconds[int(str(variant.config["tile"]))], samples=10)

    return measure


def _tiles(result: TuningResult) -> list[object]:
    return [trial.variant.config["tile"] for trial in result.trials]


def _best_tile(result: TuningResult) -> object:
    assert result.best is not None
    return result.best.variant.config["tile"]


def test_the_fastest_wins_and_every_trial_is_told() -> None:
    heard: list[Trial] = []
    result = tune(
        _variants(3),
        _from([3e-3, 1e-3, 2e-3]),
        budget_seconds=60,
        compile_all=_compile_all,
        on_trial=heard.append,
    )
    assert _best_tile(result) == 1
    assert (result.ending, result.untried) == (Ending.COMPLETE, 0)
    assert tuple(heard) == result.trials
    assert _tiles(result) == [0, 1, 2]


def test_variants_are_timed_as_they_become_ready() -> None:
    def backwards(sources: Sequence[str], timeout: float) -> Compiled:
        yield from reversed(list(_compile_all(sources, timeout)))

    result = tune(_variants(3), _from([1, 2, 3]), budget_seconds=60, compile_all=backwards)
    assert _tiles(result) == [2, 1, 0]
    assert _best_tile(result) == 0


def test_failures_lose_and_keep_their_reason() -> None:
    def compile_all(sources: Sequence[str], timeout: float) -> Compiled:
        yield 0, CompileError("nvcc: bad")
        yield from list(_compile_all(sources, timeout))[1:]

    def measure(variant: Variant, library: Path) -> Timing | Failure:
        match variant.config["tile"]:
            case 1:
                return Failure(reason="computes something else")
            case 2:
                raise KernelwrightError("the worker died")
            case _:
                return Timing(seconds=9.0, samples=1)

    result = tune(_variants(4), measure, budget_seconds=60, compile_all=compile_all)
    reasons = [t.outcome.reason for t in result.trials if isinstance(t.outcome, Failure)]
    assert reasons == ["nvcc: bad", "computes something else", "the worker died"]
    assert _best_tile(result) == 3


def test_no_variant_ran() -> None:
    def measure(variant: Variant, library: Path) -> Timing | Failure:
        return Failure(reason="no")

    result = tune(_variants(2), measure, budget_seconds=60, compile_all=_compile_all)
    assert result.best is None and result.ending == Ending.COMPLETE
    assert tune([], measure, budget_seconds=60, compile_all=_compile_all).best is None


def test_no_compiler_is_one_error_not_a_list_of_failures() -> None:
    def compile_all(sources: Sequence[str], timeout: float) -> Compiled:
        yield 0, NoCompilerError("no nvcc")

    with pytest.raises(NoCompilerError):
        tune(_variants(2), _from([1, 1]), budget_seconds=60, compile_all=compile_all)


def test_the_budget_ends_it() -> None:
    closed: list[bool] = []

    def compile_all(sources: Sequence[str], timeout: float) -> Compiled:
        assert timeout == pytest.approx(0.05)
        try:
            yield from _compile_all(sources, timeout)
        finally:
            closed.append(True)

    def measure(variant: Variant, library: Path) -> Timing | Failure:
        time.sleep(0.03)
        return Timing(seconds=1.0, samples=1)

    result = tune(_variants(50), measure, budget_seconds=0.05, compile_all=compile_all, finalists=2)
    assert result.ending == Ending.BUDGET
    assert 1 <= len(result.trials) <= 2 and result.untried == 50 - len(result.trials)
    assert closed == [True], "the compilers were not told to stop"
    assert 0.05 <= result.seconds < 1.4, "timed far more than the budget allows"


def test_ctrl_c_keeps_the_best_so_far() -> None:
    def measure(variant: Variant, library: Path) -> Timing | Failure:
        if variant.config["tile"] == 2:
            raise KeyboardInterrupt
        return Timing(seconds=1.0 + int(str(variant.config["tile"])), samples=1)

    result = tune(_variants(5), measure, budget_seconds=60, compile_all=_compile_all)
    assert (result.ending, result.untried) == (Ending.INTERRUPTED, 3)
    assert _best_tile(result) == 0


def test_ctrl_c_while_waiting_for_a_compiler() -> None:
    def compile_all(sources: Sequence[str], timeout: float) -> Compiled:
        yield 0, Path(sources[0])
        raise KeyboardInterrupt

    result = tune(_variants(2), _from([1, 1]), budget_seconds=60, compile_all=compile_all)
    assert (result.ending, _best_tile(result)) == (Ending.INTERRUPTED, 0)


def test_a_lucky_first_time_does_not_win() -> None:
    times = {0: [1.0, 3.0], 1: [1.5, 1.5], 2: [9.0]}

    def measure(variant: Variant, library: Path) -> Timing | Failure:
        return Timing(seconds=times[int(str(variant.config["tile"]))].pop(0), samples=10)

    result = tune(_variants(3), measure, budget_seconds=60, finalists=2, compile_all=_compile_all)
    assert times == {0: [], 1: [], 2: []}
    assert _best_tile(result) == 1
    assert [t.outcome for t in result.trials] == [
        Timing(seconds=2.0, samples=20),
        Timing(seconds=1.5, samples=20),
        Timing(seconds=9.0, samples=10),
    ]


def test_a_finalist_that_fails_the_second_time_loses() -> None:
    outcomes: dict[int, list[Timing | Failure]] = {
        0: [Timing(seconds=1.0, samples=1), Failure(reason="flaky")],
        1: [Timing(seconds=2.0, samples=1)] * 2,
    }

    def measure(variant: Variant, library: Path) -> Timing | Failure:
        return outcomes[int(str(variant.config["tile"]))].pop(0)

    result = tune(_variants(2), measure, budget_seconds=60, finalists=2, compile_all=_compile_all)
    assert _best_tile(result) == 1


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan, math.inf])
def test_times_are_times(seconds: float) -> None:
    with pytest.raises(ValueError, match="not a measured time"):
        Timing(seconds=seconds, samples=1)


def test_efforts_are_ordered() -> None:
    assert [profile.name for profile in efforts.PROFILES] == ["none", "quick", "full"]
    for less, more in zip(efforts.PROFILES, efforts.PROFILES[1:], strict=False):
        assert less.variants < more.variants and less.budget_seconds < more.budget_seconds
    assert effort("quick") is efforts.QUICK
    among_many = [efforts.effort_among_many(profile.name) for profile in efforts.PROFILES]
    assert [it.name for it in among_many] == [it.name for it in efforts.PROFILES]
    assert among_many[1].variants == 0 and among_many[1].timing == efforts.QUICK.timing
    assert among_many[2] is efforts.FULL
    with pytest.raises(UsageError, match="'hard'"):
        effort("hard")


@pytest.mark.skipif(find_nvcc() is None, reason="needs nvcc")
def test_with_a_real_compiler() -> None:
    """Libraries that nvcc made, called through ctypes; the "time" is what the variant returns."""
    source = 'extern "C" int cost(const long* words) {{ return {cost}; }}'
    variants = [
        Variant(config={"cost": cost}, source=source.format(cost=cost), function="cost")
        for cost in (30, 10)
    ]

    def measure(variant: Variant, library: Path) -> Timing | Failure:
        function = getattr(ctypes.CDLL(str(library)), variant.function)
        return Timing(seconds=function(None), samples=1)

    result = tune(variants, measure, budget_seconds=60)
    assert result.best is not None and result.best.variant.config == {"cost": 10}
