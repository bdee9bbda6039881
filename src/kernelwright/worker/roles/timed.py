"""Timing inside a child: one module, called when the timer says so, on the timer's inputs.

Where memory cannot be shared between processes, "prepare" and "time" do without a timer: inputs of
its own that rotate, and the child's own clock.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from kernelwright.bench.timing import Samples, Stopwatch, TimingPlan, rotate
from kernelwright.problem import Problem
from kernelwright.verify.cases import Case
from kernelwright.verify.records import from_plain
from kernelwright.worker.card.ledger import Ledger
from kernelwright.worker.process.requests import CaseRequest
from kernelwright.worker.roles.subject import Subject
from kernelwright.worker.timer.compiling import alone, sharing_but_for_compilers
from kernelwright.worker.timer.records import AttachReply, AttachRequest, CallReply, CallRequest
from kernelwright.worker.timer.timed_calls import SharedCalls

_FIRST_TIMING_SEED = 1000
"""Inputs of timed calls are none of those that were verified."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareRequest:
    """Body of "prepare"."""

    case: Case
    plan: TimingPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeRequest:
    """Body of "time"."""

    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRequest:
    """Body of "copy": a copy that reads and writes `bytes` together."""

    bytes: int
    count: int


Preparing = Callable[[Ledger], AbstractContextManager[None]]
"""How to hold the card while a module is prepared; the ledger gets what is waited for it."""


def _unshared(ledger: Ledger) -> AbstractContextManager[None]:
    """Without a hand on the card: whoever asks holds it."""
    del ledger
    return nullcontext()


class Timed:
    """One module, made by `make_module` for a case when it is to be timed."""

    def __init__(
        self,
        subject: Subject,
        make_module: Callable[[Case], nn.Module],
        preparing: Preparing = _unshared,
        beforehand: Callable[[Case], None] = lambda case: None,
    ) -> None:
        """`beforehand` does what of making a module needs no card."""
        self._subject = subject
        self._make_module = make_module
        self._preparing = preparing
        self._beforehand = beforehand
        self._stopwatch: Stopwatch | None = None
        self._call: Callable[[int], object] | None = None
        self._shared: SharedCalls | None = None
        self._compiled: tuple[Case, nn.Module] | None = None

    @classmethod
    def compiled(cls, problem: Problem, device: torch.device, mode: str) -> "Timed":
        """The reference under torch.compile; while it is prepared it takes the card as it needs.

        What the compiler needs is imported here, before anybody waits for it.
        """
        subject = Subject(problem, device)
        # Only the other mode measures kernels while it compiles.
        take = sharing_but_for_compilers if mode == "default" else alone
        _compile(nn.Identity(), mode)  # which imports the compiler, for two seconds
        return cls(
            subject,
            lambda case: _compile(subject.reference(case), mode),
            preparing=partial(take, device.index or 0),
            beforehand=subject.make_reference,
        )

    @property
    def operations(self) -> Mapping[str, Callable[[dict[str, Any]], object]]:
        """What can be asked, by name."""
        return {
            "attach": self.attach,
            "compile": self.compile,
            "call": self.call,
            "expect": self.expect,
            "prepare": self.prepare,
            "time": self.time,
            "copy": self.copy,
            "give back": self.give_back,
        }

    @torch.no_grad()
    def compile(self, body: dict[str, Any]) -> dict[str, int]:
        """Make the module for "attach", and call it once on inputs of its own."""
        case = from_plain(CaseRequest, body).case
        self._beforehand(case)
        with self._preparing(Ledger()):
            module = self._make_module(case)
            module(*self._subject.arguments(case))
            self._subject.synchronize()
            self._compiled = case, module
            self._subject.release()
        return {}

    def _is_compiled(self, case: Case) -> bool:
        return self._compiled is not None and self._compiled[0] == case

    def _module_for(self, case: Case) -> nn.Module:
        if self._compiled is None or not self._is_compiled(case):
            return self._make_module(case)
        return self._compiled[1]

    @torch.no_grad()
    def attach(self, body: dict[str, Any]) -> AttachReply:
        """Make the module, take the timer's inputs and words, and warm up."""
        request = from_plain(AttachRequest, body)
        self._subject.release()  # what the calls before have left
        if self._shared is not None:
            self._shared.leave()
            self._shared = None
        shared = SharedCalls(self._subject.device, request.lent, Path(request.words))
        ledger = Ledger()
        if not self._is_compiled(request.case):
            with ledger.spending("module"):
                self._beforehand(request.case)
        with self._preparing(ledger):
            with ledger.spending("module"):
                module = self._module_for(request.case)
            shared.prepare(module, request.warm_up_seconds)
        self._shared = shared
        return AttachReply(gated=shared.gated, spent=ledger.take())

    @torch.no_grad()
    def call(self, body: dict[str, Any]) -> CallReply:
        """One call for the timer."""
        return self._attached().call(from_plain(CallRequest, body))

    @torch.no_grad()
    def expect(self, body: dict[str, Any]) -> CallReply:
        """One call that nobody times; its results stay until the next "expect"."""
        return self._attached().expect(from_plain(CallRequest, body))

    @torch.no_grad()
    def prepare(self, body: dict[str, Any]) -> dict[str, int]:
        """Make module and inputs, and warm up."""
        request = from_plain(PrepareRequest, body)
        seeds = range(_FIRST_TIMING_SEED, _FIRST_TIMING_SEED + request.plan.input_sets)
        self._beforehand(request.case)
        with self._preparing(Ledger()):
            module = self._make_module(request.case)
            sets = [
                self._subject.arguments(Case(seed=seed, sizes=request.case.sizes)) for seed in seeds
            ]
            self._call = rotate(module, sets)
            self._watch().warm_up(self._call, request.plan.warm_up_seconds)
        return {"input_sets": len(sets)}

    @torch.no_grad()
    def time(self, body: dict[str, Any]) -> Samples:
        """One batch."""
        if self._call is None:
            raise LookupError("nothing was prepared")
        return self._watch().sample(self._call, from_plain(TakeRequest, body).count)

    @torch.no_grad()
    def copy(self, body: dict[str, Any]) -> Samples:
        """A batch of device-to-device copies: the ceiling of everything that streams."""
        request = from_plain(CopyRequest, body)
        self._shared = None  # the latest results, whose memory this takes
        device = self._subject.device
        source = torch.zeros(request.bytes // 2, dtype=torch.uint8, device=device)
        target = torch.empty_like(source)
        self._watch().warm_up(lambda _: target.copy_(source), 0.1)
        return self._watch().sample(lambda _: target.copy_(source), request.count)

    def give_back(self, body: dict[str, Any]) -> dict[str, int]:
        """Keep no memory for later."""
        self._subject.give_back()
        return {}

    def _attached(self) -> SharedCalls:
        if self._shared is None:
            raise LookupError("nothing was attached")
        return self._shared

    def _watch(self) -> Stopwatch:
        if self._stopwatch is None:
            self._stopwatch = Stopwatch(self._subject.device)
        return self._stopwatch


def _compile(module: nn.Module, mode: str) -> nn.Module:
    compiled: nn.Module = torch.compile(module, mode=mode)  # type: ignore[assignment]
    return compiled
