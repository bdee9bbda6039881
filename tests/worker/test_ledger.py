"""Where a judgement's seconds go."""

import time

from kernelwright.worker.ledger import Ledger


def test_words_are_added_up_the_largest_first_and_small_ones_left_out() -> None:
    ledger = Ledger()
    ledger.add("short", 0.01)
    for seconds in (1.0, 2.0):
        ledger.add("run", seconds)
    ledger.add("card", 4.0)
    assert list(ledger.entries().items()) == [("card", 4.0), ("run", 3.0)]


def test_parts_are_taken_out_of_the_whole() -> None:
    ledger = Ledger()
    ledger.add("run", 3.0)
    ledger.include("run", {"oracle": 2.0})
    assert ledger.entries() == {"run, oracle": 2.0, "run": 1.0}


def test_a_block_that_fails_took_its_time_all_the_same() -> None:
    ledger = Ledger()
    try:
        with ledger.spending("run"):
            time.sleep(0.06)
            raise ValueError
    except ValueError:
        assert ledger.entries()["run"] >= 0.06
