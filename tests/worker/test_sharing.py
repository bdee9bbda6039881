"""Leases of a card and the pool of cards."""

import threading
import time

import pytest

from kernelwright.verify.cases import Case
from kernelwright.verify.observation import Observation
from kernelwright.verify.verification import BuildFacts
from kernelwright.worker.judging import Sharing
from kernelwright.worker.lease import Lease, open_lease
from kernelwright.worker.ledger import Ledger
from kernelwright.worker.pool import LocalPool
from kernelwright.worker.seats import FEW, SEATS, Footprint, open_seats


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
    monkeypatch.setattr("kernelwright.worker.lease._PATIENCE", 0.05)
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


class WatchedSession:
    """Says who could time while it works."""

    def __init__(self) -> None:
        self.free: dict[str, bool] = {}

    def build(self) -> BuildFacts:
        self._look("build")
        return BuildFacts(seconds=0.0, fault=None)

    def run(self, case: Case) -> Observation:
        self._look("run")
        raise NotImplementedError

    def probe(self, case: Case) -> tuple[str, ...]:
        self._look("probe")
        return ()

    def _look(self, when: str) -> None:
        waited = threading.Event()
        other = Lease(0)
        claim = threading.Thread(target=lambda: (other.claim(waited.set), other.release()))
        claim.start()
        self.free[when] = not waited.wait(0.1)


def test_the_card_is_shared_only_while_it_is_used() -> None:
    session = WatchedSession()
    with open_lease(0) as lease, open_seats(0, 1, Ledger()) as seats:
        sharing = Sharing(session, lease, seats)
        sharing.build()
        sharing.probe(Case())
        with pytest.raises(NotImplementedError):
            sharing.run(Case())
    assert session.free == {"build": True, "probe": False, "run": False}


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
