"""Turns on a card: timed alone, shared while there is nothing to time."""

import threading
import time
from collections.abc import Generator, Sequence
from pathlib import Path

import pytest

from kernelwright.errors import KernelwrightError, NoCompilerError
from kernelwright.tune.tuner import Ending, Failure, Timing, Variant, tune
from kernelwright.tune.turns import Turns, in_one_turn
from kernelwright.worker.card.lease import open_lease

Compiled = Generator[tuple[int, Path | KernelwrightError], None, None]
VARIANTS = [Variant(config={"tile": i}, source=f"{i}", function="f") for i in range(3)]


@pytest.fixture(autouse=True)
def own_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def test_the_card_is_alone_while_timing_and_free_while_compiling() -> None:
    others: list[str] = []

    def look(when: str) -> None:
        """Whether somebody else could time now."""
        with open_lease(0) as other:
            other.claim(lambda: others.append(f"waits while {when}"))
            others.append(when)

    def compile_all(sources: Sequence[str], seconds: float) -> Compiled:
        yield 0, Path("0")
        time.sleep(0.1)
        look("compiling")
        yield 1, Path("1")
        yield 2, Path("2")

    helpers: list[threading.Thread] = []

    def measure(variant: Variant, library: Path) -> Timing | Failure:
        if variant.source == "1":
            helpers.append(threading.Thread(target=look, args=("timing",)))
            helpers[0].start()
            while not any(it.startswith("waits") for it in others):
                time.sleep(0.01)
        return Timing(seconds=1.0, samples=1)

    with Turns(0) as turns:
        result = tune(
            VARIANTS,
            turns.alone(measure),
            budget_seconds=60,
            compile_all=turns.while_compiling(compile_all),
            clock=turns.clock,
        )
    helpers[0].join(10)
    assert len(result.trials) == 3
    assert others == ["compiling", "waits while timing", "timing"]


def test_what_timing_needs_is_made_while_compilers_work() -> None:
    made = threading.Event()
    steps: list[str] = []

    def compile_all(sources: Sequence[str], seconds: float) -> Compiled:
        steps.append("compiling")
        assert made.wait(10)
        yield 0, Path("0")

    def make() -> None:
        while not steps:
            time.sleep(0.01)
        steps.append("made")
        made.set()

    def measure(variant: Variant, library: Path) -> Timing | Failure:
        steps.append("timed")
        return Timing(seconds=1.0, samples=1)

    with Turns(0) as turns:
        tune(
            VARIANTS[:1],
            turns.alone(measure),
            budget_seconds=60,
            compile_all=turns.while_compiling(compile_all, make),
            clock=turns.clock,
        )
    assert steps == ["compiling", "made", "timed"]


def test_waiting_for_the_card_is_not_taken_from_the_budget() -> None:
    def compile_all(sources: Sequence[str], seconds: float) -> Compiled:
        for index, source in enumerate(sources):
            yield index, Path(source)

    with open_lease(0) as other, Turns(0) as turns:
        other.share()
        threading.Timer(0.5, other.drop).start()
        result = tune(
            VARIANTS,
            turns.alone(lambda variant, library: Timing(seconds=1.0, samples=1)),
            budget_seconds=0.4,
            compile_all=turns.while_compiling(compile_all),
            clock=turns.clock,
        )
    assert result.ending is Ending.COMPLETE
    assert result.seconds < 0.4


def test_what_compiling_raises_is_raised() -> None:
    def compile_all(sources: Sequence[str], seconds: float) -> Compiled:
        yield 0, Path("0")
        raise NoCompilerError("no nvcc")

    with Turns(0) as turns, pytest.raises(NoCompilerError):
        tune(
            VARIANTS,
            turns.alone(lambda variant, library: Timing(seconds=1.0, samples=1)),
            budget_seconds=10,
            compile_all=turns.while_compiling(compile_all),
            clock=turns.clock,
        )


@pytest.mark.parametrize(("cores", "together"), [(2, True), (1, False)])
def test_few_variants_wait_for_each_other(cores: int, together: bool) -> None:
    given: list[str] = []

    def compile_all(sources: Sequence[str], seconds: float) -> Compiled:
        try:
            for index, source in enumerate(sources):
                given.append(f"compiled {source}")
                yield index, Path(source)
        finally:
            given.append("closed")

    for index, _ in in_one_turn(compile_all, cores)(["a", "b", "c"], 60.0):
        given.append(f"took {index}")
        if index == 1:
            break
    expected = ["compiled a", "compiled b", "compiled c", "closed", "took 0", "took 1"]
    assert (given == expected) is together
    assert given.count("closed") == 1
