"""Where a judgement's seconds go."""

import time

from kernelwright.worker.card.ledger import Ledger
from kernelwright.worker.timeline import Moment, age_of_this_process, waited_for


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


def test_a_wait_goes_to_what_the_child_did_meanwhile() -> None:
    moments = [Moment(step=name, at=at) for name, at in (("fork", 1.0), ("context", 4.0))]
    # It began at 0 and ended at 4; its parent had other things to do until 2.
    assert dict(waited_for(moments, 0.0, 2.0, 4.1)) == {"fork": 0.0, "context": 2.0}
    assert dict(waited_for(moments, 0.0, 0.0, 3.0)) == {"fork": 1.0, "context": 2.0}


def test_a_process_is_as_old_as_the_kernel_says() -> None:
    before = age_of_this_process()
    time.sleep(0.05)
    assert 0.02 < age_of_this_process() - before < 5


def test_a_block_that_fails_took_its_time_all_the_same() -> None:
    ledger = Ledger()
    try:
        with ledger.spending("run"):
            time.sleep(0.06)
            raise ValueError
    except ValueError:
        assert ledger.entries()["run"] >= 0.06
