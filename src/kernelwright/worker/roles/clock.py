"""The timer: a trusted child that owns the inputs, opens the gate, and takes the time.

It runs no module. For each timed call it writes inputs that nobody has seen, *after* the call was
launched behind a closed gate of the device; flushes the L2; opens the gate; and stamps its own
clock then and when the device has nothing left to do. Then it reads the results where they lie and
compares all of them. What a candidate says about its own time is only believed if it fits.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from kernelwright.problem import Problem
from kernelwright.verify.bounds import Expected
from kernelwright.verify.compare import compare
from kernelwright.verify.nesting import named_tensors
from kernelwright.verify.records import from_plain
from kernelwright.verify.tolerance import ErrorMetrics
from kernelwright.worker.roles.subject import Subject
from kernelwright.worker.timer.core_waits import HERE, waited_ms
from kernelwright.worker.timer.driver import Driver
from kernelwright.worker.timer.memory import Mappings, extent_of, lay_out, view_at
from kernelwright.worker.timer.records import (
    CheckReply,
    CheckRequest,
    DrawRequest,
    ExpectRequest,
    FillRequest,
    LendRequest,
    Lent,
    Look,
    Part,
    Take,
    TensorForm,
    Watched,
    WatchRequest,
)
from kernelwright.worker.timer.words import Word, Words

_ROOM = 32 << 20
"""Bytes that inputs move by from call to call."""
_PATIENCE = 0.03
"""Seconds for everything of a call to be launched; then the gate opens all the same."""
_START_SECONDS = 60.0
_LARGE = 1 << 30
"""Bytes of inputs from which on no memory is kept for the next ones."""


Measure = Callable[[Expected, torch.Tensor], ErrorMetrics]
"""From what is expected and what was found to the errors."""


class Timer:
    """Inputs of one problem on one device, and the clock."""

    def __init__(self, problem: Problem, device: torch.device) -> None:
        self._subject = Subject(problem, device)
        self._driver = Driver(device)
        self._words: dict[str, Words] = {}
        self._drawn: list[torch.Tensor] = []
        self._forms: tuple[TensorForm, ...] = ()
        self._memory = 0
        self._expected: dict[str, Expected] = {}
        self._mappings = Mappings(self._driver)
        self._handles: frozenset[str] = frozenset()
        """Handles of the allocations that `_expected` lies in."""
        self._flush = self._driver.allocate(self._driver.flush_bytes)

    @torch.no_grad()
    def lend(self, body: dict[str, Any]) -> Lent:
        """Make the memory that the arguments of a case lie in; they lie there, at 0, already."""
        arguments = self._subject.arguments(from_plain(LendRequest, body).case)
        forms, template, size = lay_out(arguments)
        self._forms = tuple(forms)
        self._drawn = [tensor for _, tensor in named_tensors(arguments, "input")]
        self._memory = self._driver.allocate(size + _ROOM)
        self._write(0)
        handle, _ = self._driver.share(self._memory)
        return Lent(handle=handle, bytes=size, room=_ROOM, forms=self._forms, template=template)

    @torch.no_grad()
    def draw(self, body: dict[str, Any]) -> dict[str, bool]:
        """Draw other inputs and write them; whether they have the form of the first.

        What was expected of the ones before is given back.
        """
        request = from_plain(DrawRequest, body)
        self._forget()
        arguments = self._subject.arguments(request.case)
        self._drawn = [tensor for _, tensor in named_tensors(arguments, "input")]
        forms, _, size = lay_out(arguments)
        del arguments
        if size > _LARGE:
            self._subject.release()  # what drawing them needed besides
        same = tuple(forms) == self._forms
        if same:
            self._write(request.place)
        return {"same": same}

    @torch.no_grad()
    def fill(self, body: dict[str, Any]) -> dict[str, int]:
        """Write the inputs."""
        self._write(from_plain(FillRequest, body).place)
        return {}

    @torch.no_grad()
    def watch(self, body: dict[str, Any]) -> Watched:
        """Take the time of one call that another child makes meanwhile."""
        request = from_plain(WatchRequest, body)
        words = self._words_of(request.words)
        if not words.wait(Word.READY, request.turn, _START_SECONDS):
            raise TimeoutError("the call was not begun")
        late = False
        if request.take is Take.DEVICE:
            late = not words.wait(Word.QUEUED, request.turn, _PATIENCE)
        self._write(request.place)
        self._driver.fill(self._flush, 0, self._driver.flush_bytes)
        self._driver.synchronize()
        start_word = Word.GATE
        if request.take is Take.HOST:
            # The device changes over to the other process first, which takes it a while.
            words.set(Word.GATE, request.turn)
            if not words.wait(Word.QUEUED, request.turn, _START_SECONDS):
                raise TimeoutError("the call was not begun")
            start_word = Word.GO
        threads = [HERE, str(request.process)] if request.process else [HERE]
        waited = waited_ms(threads)
        start = time.perf_counter_ns()
        words.set(start_word, request.turn)
        if not words.wait(Word.DONE, request.turn, request.seconds):
            raise TimeoutError(f"the call did not end in {request.seconds:g} s")
        outside_ms = (time.perf_counter_ns() - start) * 1e-6
        waited = waited_ms(threads) - waited
        return Watched(outside_ms=outside_ms, late=late, waited_ms=max(0.0, waited))

    def expect(self, body: dict[str, Any]) -> dict[str, int]:
        """Hold on to what the reference gave, where it lies, until other inputs are drawn."""
        shared = from_plain(ExpectRequest, body).tensors
        tensors = self._mappings.borrow(shared)
        self._handles = frozenset(it.handle for it in shared)
        self._expected = {
            it.name: Expected(it.name, tensor) for it, tensor in zip(shared, tensors, strict=True)
        }
        return {}

    @torch.no_grad()
    def check(self, body: dict[str, Any]) -> CheckReply:
        """Every element of results against the reference's for the same inputs."""
        request = from_plain(CheckRequest, body)
        measure = _MEASURES[request.look]
        comparisons, stale = [], []
        copies = [part.copy for part in request.parts]
        asked = [*(it for found in request.results for it in found), *copies]
        if request.look is Look.EXACT:  # nor is it due to a mapping of what lay there before
            self._mappings.drop({it.handle for it in asked} - self._handles)
        left = iter(self._mappings.borrow(asked))
        groups = []
        for found in request.results:
            groups.append({it.name: next(left) for it in found})
            comparisons.append(tuple(self._compared(groups[-1], measure)))
        for part, copy in zip(request.parts, left, strict=True):
            if not self._is_current(part, copy, groups[0].get(part.copy.name)):
                stale.append(part.copy.name)
        self._driver.synchronize()
        return CheckReply(comparisons=tuple(comparisons), stale=tuple(stale))

    def rest(self, body: dict[str, Any]) -> dict[str, int]:
        """Give the memory back that is not lent: nobody is timed any more."""
        del body
        self._forget()
        self._subject.release()
        return {}

    def _forget(self) -> None:
        """Drop the inputs, and what was expected of them."""
        self._expected, self._handles, self._drawn = {}, frozenset(), []
        self._mappings.drop_unused()

    def _is_current(self, part: Part, copy: torch.Tensor, result: torch.Tensor | None) -> bool:
        """Whether the copy is, bit for bit, what lies in the result now."""
        if result is None:
            return False
        extent = extent_of(tuple(result.shape), tuple(result.stride()), result.dtype)
        if part.at < 0 or part.at + copy.numel() > extent:
            return False
        return torch.equal(copy, self._driver.bytes_at(result.data_ptr() + part.at, copy.numel()))

    def _compared(
        self, given: Mapping[str, torch.Tensor], measure: Measure
    ) -> Iterator[ErrorMetrics]:
        """What has another form than expected is left out."""
        for name, expected in self._expected.items():
            found = given.get(name)
            wanted = expected.tensor
            if found is not None and (found.dtype, found.shape) == (wanted.dtype, wanted.shape):
                yield measure(expected, found)

    def _write(self, place: int) -> None:
        for tensor, form in zip(self._drawn, self._forms, strict=True):
            _once_each(view_at(self._driver, self._memory + place, form)).copy_(_once_each(tensor))
        self._driver.synchronize()

    def _words_of(self, path: str) -> Words:
        if path not in self._words:
            self._words[path] = Words(Path(path))
        return self._words[path]


def _exact(expected: Expected, found: torch.Tensor) -> ErrorMetrics:
    return compare(expected.name, found, expected.tensor, None)


def _bounded(expected: Expected, found: torch.Tensor) -> ErrorMetrics:
    return expected.bound(found) or _exact(expected, found)


_MEASURES: Mapping[Look, Measure] = {Look.BOUNDED: _bounded, Look.EXACT: _exact}


def _once_each(tensor: torch.Tensor) -> torch.Tensor:
    """A view with one element of each that `expand` repeats."""
    for dim, stride in enumerate(tensor.stride()):
        if stride == 0 and tensor.shape[dim] > 1:
            tensor = tensor.narrow(dim, 0, 1)
    return tensor
