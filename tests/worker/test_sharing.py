"""Leases of a card and the pool of cards."""

import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from kernelwright.problem import Problem
from kernelwright.toolchain.records import Target
from kernelwright.verify.cases import Case
from kernelwright.verify.observation import Observation, RunFacts
from kernelwright.verify.verification import BuildFacts
from kernelwright.worker.card.lease import Lease, is_locked_by_us, lock_file, open_lease
from kernelwright.worker.card.ledger import Ledger
from kernelwright.worker.card.seats import FEW, SEATS, Footprint, open_seats
from kernelwright.worker.errors import ReferenceFailedError
from kernelwright.worker.judging.judging import Sharing
from kernelwright.worker.judging.session import ChildSession
from kernelwright.worker.options import JudgeOptions
from kernelwright.worker.process.client import Answer, Raised, Replied
from kernelwright.worker.process.pool import LocalPool
from kernelwright.worker.process.requests import StartRequest


@pytest.fixture(autouse=True)
def own_locks(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path_factory.mktemp("locks")))


def test_one_alone_may_time_and_waits_for_those_who_verify() -> None:
    order: list[str] = []
    with open_lease(0) as first:
        first.share()
        with open_lease(0) as second:
            second.share()
            waiting = threading.Thread(
                target=lambda: (first.claim(lambda: order.append("waits")), order.append("has"))
            )
            waiting.start()
            while not order:
                time.sleep(0.01)
            order.append("second lets go")
        waiting.join(10)
        other = Lease(0)
        blocked = threading.Thread(target=lambda: (other.share(), order.append("third")))
        blocked.start()
        time.sleep(0.1)
        order.append("first lets go")
    blocked.join(10)
    other.release()
    assert order == ["waits", "second lets go", "has", "first lets go", "third"]


def test_who_needs_much_of_a_card_waits_for_it_and_is_not_overtaken() -> None:
    order: list[str] = []
    ledger = Ledger()

    def sit(word: str, count: int) -> threading.Thread:
        def wait() -> None:
            with open_seats(0, count, ledger) as seats:
                seats.take()
                order.append(word)

        thread = threading.Thread(target=wait)
        thread.start()
        time.sleep(0.1)
        return thread

    with open_seats(0, SEATS - 1, ledger) as first:
        first.take()
        first.take()
        with open_seats(1, SEATS, ledger) as elsewhere, open_seats(0, 0, ledger) as small:
            elsewhere.take()
            small.take()
        waiting = [sit("most", SEATS), sit("many", FEW + 1)]
        assert order == []
        waiting.append(sit("few", FEW))
        assert order == ["few"]
    for thread in waiting:
        thread.join(10)
    assert order == ["few", "most", "many"]


def test_seats_are_a_share_of_the_card() -> None:
    card = 140 << 30
    assert Footprint(bytes=64 << 20, largest=64 << 20, memory=card).seats == 0
    assert Footprint(bytes=100 << 30, largest=50 << 30, memory=card).seats == SEATS
    few, many = (Footprint(bytes=n << 30, largest=n << 29, memory=card).seats for n in (4, 12))
    assert 0 < few <= FEW < many <= SEATS // 2
    between = Footprint(bytes=4 << 30, largest=8 << 30, memory=card)
    assert few < between.seats < SEATS
    assert Footprint(bytes=card, largest=card, memory=0).seats == 0


def test_cards_do_not_disturb_each_other() -> None:
    with open_lease(0) as first, open_lease(1) as second:
        first.claim(lambda: pytest.fail("waited for another card"))
        second.claim(lambda: pytest.fail("waited for another card"))


def test_the_card_is_told_by_its_name_and_not_by_its_index(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    with open_lease(0) as first:
        first.claim(lambda: pytest.fail("waited for nobody"))
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
        with open_lease(0) as other:
            other.claim(lambda: pytest.fail("waited for another card"))
        same = Lease(1)
        order: list[str] = []
        waiting = threading.Thread(target=lambda: (same.share(), order.append("has")))
        waiting.start()
        time.sleep(0.1)
        assert order == []
    waiting.join(10)
    same.release()
    assert order == ["has"]


def test_whoever_wants_to_time_is_not_overtaken_by_those_who_verify() -> None:
    order: list[str] = []
    with open_lease(0) as timing, open_lease(0) as verifying, open_lease(0) as later:
        verifying.share()
        claimed = threading.Thread(
            target=lambda: (timing.claim(lambda: order.append("waits")), order.append("times"))
        )
        claimed.start()
        while not order:
            time.sleep(0.01)
        time.sleep(0.05)
        shared = threading.Thread(target=lambda: (later.share(), order.append("verifies")))
        shared.start()
        time.sleep(0.1)
        assert order == ["waits"]
        verifying.drop()
        claimed.join(10)
        assert order == ["waits", "times"]
        timing.drop()
        shared.join(10)
        assert order == ["waits", "times", "verifies"]


def test_those_who_time_go_one_after_the_other_before_who_verifies() -> None:
    order: list[str] = []
    with open_lease(0) as first, open_lease(0) as second, open_lease(0) as verifying:
        first.claim(lambda: pytest.fail("waited for nobody"))
        claimed = threading.Thread(
            target=lambda: (second.claim(lambda: order.append("waits")), order.append("times"))
        )
        shared = threading.Thread(target=lambda: (verifying.share(), order.append("verifies")))
        shared.start()
        time.sleep(0.05)
        claimed.start()
        while not order:
            time.sleep(0.01)
        first.drop()
        claimed.join(10)
        time.sleep(0.05)
        assert order == ["waits", "times"]
        second.drop()
        shared.join(10)
    assert order == ["waits", "times", "verifies"]


def test_who_waited_long_is_not_overtaken_by_more_who_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kernelwright.worker.card.lease._PATIENCE", 0.05)
    order: list[str] = []
    with open_lease(0) as first, open_lease(0) as second, open_lease(0) as verifying:
        first.claim(lambda: pytest.fail("waited for nobody"))
        shared = threading.Thread(target=lambda: (verifying.share(), order.append("verifies")))
        shared.start()
        time.sleep(0.2)
        claimed = threading.Thread(
            target=lambda: (second.claim(lambda: order.append("waits")), order.append("times"))
        )
        claimed.start()
        while not order:
            time.sleep(0.01)
        first.drop()
        shared.join(10)
        time.sleep(0.05)
        assert order == ["waits", "verifies"]
        verifying.drop()
        claimed.join(10)
    assert order == ["waits", "verifies", "times"]


class WatchedChild:
    """Says who could time while it works, and fails at everything but making its module."""

    def __init__(self, start: StartRequest, free: dict[str, bool]) -> None:
        self._name = start.role.value
        self._free = free
        self._asked = ""

    def launch(self) -> None:
        """It is there."""

    def post(self, operation: str, body: Any) -> None:
        self._asked = operation

    def wait(self, seconds: float, patience: object = None) -> Answer:
        waited = threading.Event()
        other = Lease(0)
        claim = threading.Thread(target=lambda: (other.claim(waited.set), other.release()))
        claim.start()
        self._free[f"{self._name}: {self._asked}"] = not waited.wait(0.05)
        if self._asked == "make":
            return Replied(body=None)
        return Raised(message="fails", location=None, next_step=None)

    def ask(self, operation: str, body: Any, seconds: float) -> Answer:
        self.post(operation, body)
        return self.wait(seconds)

    def freeze(self) -> None:
        """It runs only when it is asked."""

    thaw = dismiss = close = freeze


def test_the_card_is_shared_only_while_it_is_used(
    affine: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free: dict[str, bool] = {}
    monkeypatch.setattr(ChildSession, "spawn", lambda _, start: WatchedChild(start, free))
    case = Case()
    with (
        open_lease(0) as lease,
        ChildSession(affine, Target.CUDA, JudgeOptions(), tmp_path) as session,
    ):
        session.admit(tmp_path / "candidate.py")
        session.using_card = lease.shared
        session.build()
        for ask in (
            lambda: session.run(case),
            lambda: session.compare(case, (), session.candidate),
            lambda: session.probe(case),
        ):
            with pytest.raises(ReferenceFailedError):
                ask()
    alone = {"candidate: build", "candidate: make", "reference: make"}
    shared = {"reference: run", "candidate: run", "reference: compare", "reference: probe"}
    assert free == dict.fromkeys(alone, True) | dict.fromkeys(shared, False)


class RightSession:
    """Says how many seats of the card were free while it ran a case."""

    def __init__(self) -> None:
        self.free: list[int] = []

    def build(self) -> BuildFacts:
        raise NotImplementedError

    def probe(self, case: Case) -> tuple[str, ...]:
        raise NotImplementedError

    def run(self, case: Case) -> Observation:
        self.free.append(free_seats())
        facts = RunFacts(structure="T", outputs=(), inputs=(), changed=(), aliases=(), seconds=0.0)
        return Observation(
            case=case,
            reference=facts,
            candidate=facts,
            reference_state=None,
            candidate_state=None,
            comparisons=(),
            repeats=None,
            findings=(),
        )


def free_seats() -> int:
    files = [lock_file(0, f"many-{place}.lock") for place in range(SEATS)]
    free = sum(is_locked_by_us(file) for file in files)
    for file in files:
        os.close(file)
    return free


def test_a_large_problem_gives_memory_back_while_it_is_asked_at_reduced_sizes() -> None:
    session, reduced = RightSession(), (("batch", 2),)
    with open_seats(0, 11, Ledger()) as seats:
        sharing = Sharing(session, seats, reduced)
        for sizes in ((), (), reduced, reduced, (("batch", 3),), ()):
            sharing.run(Case(sizes=sizes))
        assert session.free == [SEATS - 11] * 3 + [SEATS - 6] * 2 + [SEATS - 11]


def test_who_waits_for_more_memory_has_none_meanwhile() -> None:
    with open_seats(0, 11, Ledger()) as seats:
        seats.take()
        seats.halve()
        turn = lock_file(0, "many-seats.lock")
        assert is_locked_by_us(turn)
        again = threading.Thread(target=seats.take)
        again.start()
        time.sleep(0.1)
        assert free_seats() == SEATS
        os.close(turn)
        again.join(10)
        assert seats.has_all


def test_a_problem_that_is_not_large_keeps_its_share_of_the_memory() -> None:
    session = RightSession()
    with open_seats(0, 5, Ledger()) as seats:
        sharing = Sharing(session, seats, ())
        for sizes in ((), (("batch", 3),)):
            sharing.run(Case(sizes=sizes))
        assert session.free == [SEATS - 5] * 2


def test_the_pool_runs_one_job_on_each_device() -> None:
    running: set[int] = set()
    lock = threading.Lock()

    def job(device: int, item: int) -> int:
        with lock:
            assert device not in running
            running.add(device)
        time.sleep(0.01)
        with lock:
            running.remove(device)
        return item * item

    results = dict(LocalPool([0, 3]).map(job, range(10)))
    assert results == {item: item * item for item in range(10)}


def test_the_pool_raises_what_a_job_raises() -> None:
    def job(device: int, item: int) -> int:
        raise ValueError(f"job {item}")

    with pytest.raises(ValueError, match="job"):
        list(LocalPool([0]).map(job, range(3)))
