"""Calls of one module on the timer's inputs, behind the timer's gate.

This runs in the candidate's process as well, so nothing here can be relied on: the timer writes
the inputs, keeps the time and checks the results by itself. What is done here makes the common
case exact: events that do not go through PyTorch, a flush right in front, no part of the L2 kept
back, and a copy of the results on the caller's stream, as the next layer would read them.
"""

import time
from pathlib import Path

import torch
from torch import Tensor, nn

from kernelwright.verify.nesting import PLAIN, kind_of, named_results
from kernelwright.worker.timer.driver import Driver, DriverError
from kernelwright.worker.timer.memory import fill_in, share_tensor, view_at
from kernelwright.worker.timer.records import (
    CallReply,
    CallRequest,
    Lent,
    SharedTensor,
    Take,
)
from kernelwright.worker.timer.stream_copies import StreamCopies
from kernelwright.worker.timer.words import PAGE, Word, Words

LEAST_CALLS = 3
"""Calls that a module is warmed up with, however long they take."""
_GO_SECONDS = 60.0
_TOUCH = 4
"""Bytes whose writing makes the device turn to this process."""


class SharedCalls:
    """One module of this process and the inputs that the timer lends."""

    def __init__(self, device: torch.device, lent: Lent, words: Path) -> None:
        self._device = device
        self._driver = Driver(device)
        self._lent = lent
        self._inputs = self._driver.open(lent.handle)
        self._words = Words(words)
        self._gate = self._gate_address()
        self._events = self._driver.new_event(), self._driver.new_event()
        self._flush = self._driver.allocate(self._driver.flush_bytes)
        self._module: nn.Module = nn.Identity()
        self._copies = StreamCopies(self._driver)
        # Kept until the next call, so that the timer finds them.
        self._results: list[tuple[str, Tensor]] = []
        self._expected: list[tuple[str, Tensor]] = []

    @property
    def gated(self) -> bool:
        """Whether the device can be held until the timer lets it go."""
        return self._gate != 0

    def prepare(self, module: nn.Module, seconds: float) -> None:
        """Call `module` for `seconds` on the inputs at 0, at least `LEAST_CALLS` times."""
        self._module = module
        deadline = time.perf_counter() + seconds
        turn = 0
        while turn < LEAST_CALLS or time.perf_counter() < deadline:
            self._results = []
            self._results = self._plain(module(*self._arguments(0)))
            self._driver.synchronize()
            turn += 1
        self._copies.prepare(self._results)

    def call(self, request: CallRequest) -> CallReply:
        """One call, held until the timer writes its word."""
        self._results = []
        arguments = self._arguments(request.place)
        torch.manual_seed(request.seed)
        set_aside = self._driver.take_persisting_l2()
        self._copies.draw()
        self._driver.synchronize()
        start, end = self._events
        self._words.set(Word.READY, request.turn)
        self._hold(request)
        try:
            self._driver.record(start)
            result = self._module(*arguments)
            self._driver.record(end)
            self._results = self._plain(result)
            if request.take is Take.DEVICE:
                self._copies.take(self._results)
        finally:
            self._words.set(Word.QUEUED, request.turn)
            try:
                self._driver.synchronize()
            finally:
                self._words.set(Word.DONE, request.turn)
        return CallReply(
            span_ms=self._driver.milliseconds(start, end),
            tensors=self._shared(self._results),
            snapshot=self._copies.snapshot(),
            parts=self._copies.parts(),
            persisting_l2=set_aside,
        )

    def expect(self, request: CallRequest) -> CallReply:
        """One call at once."""
        self._expected = []
        torch.manual_seed(request.seed)
        self._expected = self._plain(self._module(*self._arguments(request.place)))
        self._driver.synchronize()
        tensors = self._shared(self._expected)
        return CallReply(span_ms=0.0, tensors=tensors, snapshot=(), parts=(), persisting_l2=0)

    def leave(self) -> None:
        """Let go of the gate: the next race's words may lie where these did."""
        if self._gate:
            self._driver.unmap_host(self._words.address)

    def _gate_address(self) -> int:
        try:
            page = self._driver.map_host(self._words.address, PAGE)
            self._driver.wait_for_word(page + self._words.place(Word.GATE), 0)
            self._driver.synchronize()
        except DriverError:
            return 0
        return page + self._words.place(Word.GATE)

    def _hold(self, request: CallRequest) -> None:
        """Let the device wait, or this thread, until it is time."""
        match request.take:
            case Take.DEVICE if self._gate:
                self._driver.wait_for_word(self._gate, request.turn)
                self._driver.fill(self._flush, 0, self._driver.flush_bytes)
            case Take.DEVICE:
                self._wait(Word.GATE, request.turn)
                self._driver.fill(self._flush, 0, self._driver.flush_bytes)
            case Take.HOST:
                self._wait(Word.GATE, request.turn)
                self._driver.fill(self._flush, 0, _TOUCH)
                self._driver.synchronize()
                self._words.set(Word.QUEUED, request.turn)
                self._wait(Word.GO, request.turn)

    def _wait(self, word: Word, turn: int) -> None:
        if not self._words.wait(word, turn, _GO_SECONDS):
            raise TimeoutError("the timer did not say go")

    def _arguments(self, place: int) -> list[object]:
        base = self._inputs + place
        tensors = [view_at(self._driver, base, form) for form in self._lent.forms]
        return fill_in(self._lent.template, tensors)

    def _plain(self, result: object) -> list[tuple[str, Tensor]]:
        """The tensors of a result, all on the device."""
        tensors = list(named_results(result, "output"))
        for name, tensor in tensors:
            if kind_of(tensor) != PLAIN:
                raise TypeError(f"{name} is a {kind_of(tensor)}")
        return [(name, tensor.to(self._device)) for name, tensor in tensors]

    def _shared(self, results: list[tuple[str, Tensor]]) -> tuple[SharedTensor, ...]:
        """How the timer finds the results; those that cannot be shared become copies."""
        shared = []
        for place, (name, tensor) in enumerate(results):
            try:
                shared.append(share_tensor(self._driver, name, tensor))
            except DriverError:  # the timer's own memory, or none of PyTorch's allocator
                results[place] = name, tensor.clone()
                self._driver.synchronize()
                shared.append(share_tensor(self._driver, *results[place]))
        return tuple(shared)
