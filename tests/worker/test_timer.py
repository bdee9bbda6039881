"""Memory and words that several processes share, without a GPU."""

import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelwright.problem import Problem
from kernelwright.verify.cases import Case
from kernelwright.verify.records import to_plain
from kernelwright.worker.roles.clock import Timer
from kernelwright.worker.roles.reference import Reference
from kernelwright.worker.timer.memory import (
    Mappings,
    NotShareableError,
    borrowed,
    fill_in,
    lay_out,
    share_tensor,
    size_of,
    view_at,
)
from kernelwright.worker.timer.records import AttachRequest, LendRequest, TensorForm
from kernelwright.worker.timer.words import Word, Words, words_of


def test_arguments_come_back_from_the_timers_memory(shared_memory: type[Any]) -> None:
    driver = shared_memory(torch.device("cpu"))
    arguments = [
        torch.rand(3, 5).T,
        {"bias": (torch.arange(7), 2.5)},
        [torch.rand(1, 4).expand(6, 4), None, True],
        torch.tensor(1.5, dtype=torch.bfloat16),
        torch.empty(0, 3),
    ]
    forms, template, size = lay_out(arguments)
    memory = driver.allocate(size + 1024)
    tensors = [arguments[0], arguments[1]["bias"][0], arguments[2][0], arguments[3], arguments[4]]  # type: ignore[index,call-overload]
    for place in (0, 512):
        views = [view_at(driver, memory + place, form) for form in forms]
        for view, tensor in zip(views, tensors, strict=True):
            assert view.stride() == tensor.stride()
            target = view.narrow(0, 0, 1) if view.dim() and view.stride(0) == 0 else view
            target.copy_(tensor.narrow(0, 0, 1) if target is not view else tensor)
            assert torch.equal(view, tensor)
        back = fill_in(template, views)
        assert back[1]["bias"][1] == 2.5  # type: ignore[index,call-overload]
        assert back[2][1:] == [None, True]  # type: ignore[index,call-overload]
    assert size == 512 * 4  # the expanded one needs 16 bytes, the empty one none


def test_who_is_timed_twice_lets_go_of_its_first_gate(
    affine: Problem, shared_memory: type[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is mapped stays mapped on a device: another page at that address would have no gate."""
    log: list[tuple[str, int]] = []
    map_host = shared_memory.map_host

    def mapped(self: Any, address: int, size: int) -> Any:
        log.append(("map", address))
        return map_host(self, address, size)

    monkeypatch.setattr(shared_memory, "map_host", mapped)
    monkeypatch.setattr(
        shared_memory, "unmap_host", lambda self, address: log.append(("unmap", address))
    )
    timer = Timer(affine, torch.device("cpu"))
    contestant = Reference(affine, torch.device("cpu")).timed()
    for name in ("first", "second"):
        lent = timer.lend(to_plain(LendRequest(case=Case())))
        request = AttachRequest(
            case=Case(), lent=lent, words=str(words_of(tmp_path, name)), warm_up_seconds=0.0
        )
        assert contestant.attach(to_plain(request)).gated
    (first, address), (then, left), (last, _) = log
    assert (first, then, last) == ("map", "unmap", "map")
    assert address == left


@pytest.mark.parametrize("argument", [torch.nn.ReLU(), {1: 2}, torch.eye(2).to_sparse(), 1j])
def test_what_cannot_be_shared_is_named(argument: object) -> None:
    with pytest.raises(NotShareableError, match="an argument is a"):
        lay_out([argument])


def test_results_are_read_where_they_lie(shared_memory: type[Any]) -> None:
    driver = shared_memory(torch.device("cpu"))
    result = torch.rand(8, 6)[2:, ::2]
    shared = share_tensor(driver, "output", result)
    with borrowed(driver, [shared]) as (view,):
        assert torch.equal(view, result)
    assert size_of(shared) == 6 * 3 * 4


@pytest.mark.parametrize(
    "lie",
    [
        {"place": 1 << 50},
        {"place": -4},
        {"shape": (1 << 50, 3)},
        {"strides": (1 << 45, 1)},
        {"strides": (-3, 1)},
        {"strides": (1,)},
        {"dtype": "torch.void"},
        {"handle": "no hexadecimal"},
    ],
)
def test_results_that_lie_about_themselves_are_not_read(
    shared_memory: type[Any], lie: dict[str, Any]
) -> None:
    driver = shared_memory(torch.device("cpu"))
    shared = replace(share_tensor(driver, "output", torch.rand(6, 3)), **lie)
    with pytest.raises(ValueError), borrowed(driver, [shared]):
        pytest.fail("it was read")


def test_an_allocation_stays_mapped_while_results_lie_in_it(
    shared_memory: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = shared_memory(torch.device("cpu"))
    log: list[str] = []
    opening = shared_memory.open
    monkeypatch.setattr(
        driver, "open", lambda handle: log.append("open") or opening(driver, handle), raising=False
    )
    monkeypatch.setattr(driver, "close", lambda address: log.append("close"), raising=False)
    mappings = Mappings(driver)
    result, other = torch.rand(6, 3), torch.rand(4)
    shared, elsewhere = (share_tensor(driver, "output", it) for it in (result, other))
    for turn in range(3):
        result.fill_(turn)
        for view in mappings.borrow([shared, shared]):
            assert torch.equal(view, result)
        mappings.drop_unused()
    assert log == ["open"]
    assert torch.equal(mappings.borrow([elsewhere])[0], other)
    mappings.drop_unused()
    assert log == ["open", "open", "close"]
    mappings.drop({shared.handle, elsewhere.handle})
    assert torch.equal(mappings.borrow([elsewhere])[0], other)
    assert log == ["open", "open", "close", "close", "open"]


def test_words_pass_between_two_that_map_them(tmp_path: Path) -> None:
    path = words_of(tmp_path, "candidate")
    ours, theirs = Words(path), Words(words_of(tmp_path, "candidate"))
    assert not ours.wait(Word.DONE, 1, 0.01)

    def answer() -> None:
        assert theirs.wait(Word.GATE, 7, 10.0)
        theirs.set(Word.DONE, 7)

    thread = threading.Thread(target=answer)
    thread.start()
    start = time.monotonic()
    ours.set(Word.GATE, 7)
    assert ours.wait(Word.DONE, 7, 10.0)
    assert time.monotonic() - start < 5
    thread.join()
    assert not ours.wait(Word.GO, 7, 0.0)


def test_forms_do_not_overlap() -> None:
    forms, _, size = lay_out([torch.rand(129), torch.rand(3), torch.rand(1000).half()])
    ends = [form.place + form.extent for form in forms]
    assert all(end <= later.place for end, later in zip(ends, forms[1:], strict=False))
    assert ends[-1] <= size
    assert forms[0] == TensorForm(
        dtype="torch.float32", shape=(129,), strides=(1,), place=0, extent=516
    )
