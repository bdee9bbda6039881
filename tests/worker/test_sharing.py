"""Leases of a card and the pool of cards."""

import threading
import time
from contextlib import ExitStack

import pytest

from kernelwright.verify.cases import Case
from kernelwright.verify.observation import Observation
from kernelwright.verify.verification import BuildFacts
from kernelwright.worker.judging import Sharing
from kernelwright.worker.lease import LARGE, SEATS, Lease, open_lease, seat
from kernelwright.worker.pool import LocalPool


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


def test_few_problems_of_gigabytes_are_on_a_card_at_a_time() -> None:
    order: list[str] = []

    def sit() -> None:
        with seat(0, LARGE):
            order.append("third")

    with ExitStack() as others:
        for _ in range(SEATS):
            others.enter_context(seat(0, LARGE))
        with seat(0, LARGE - 1), seat(1, LARGE):
            order.append("a small one, and one on another card")
        waiting = threading.Thread(target=sit)
        waiting.start()
        time.sleep(0.2)
        order.append("a seat becomes free")
    waiting.join(10)
    assert order == ["a small one, and one on another card", "a seat becomes free", "third"]


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
    with open_lease(0) as lease:
        sharing = Sharing(session, lease)
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
