"""The roles a child can play, and the table of operations of each."""

import importlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch

from kernelwright import env
from kernelwright.machine import modelled_machine
from kernelwright.problem import (
    Budget,
    Problem,
    measure,
    round_up,
    shrink,
    shrink_data,
    size_variants,
)
from kernelwright.problem.loading import parse_problem
from kernelwright.toolchain.guards import Guards
from kernelwright.toolchain.launches import Launches
from kernelwright.verify.cases import Case, Sizes
from kernelwright.verify.records import from_plain, to_plain
from kernelwright.worker.process.card_start import take
from kernelwright.worker.process.handover import MemoryMaker, WriteRequest
from kernelwright.worker.process.hanging import tell_when_compiling
from kernelwright.worker.process.nursery import LOADED_FIRST
from kernelwright.worker.process.requests import (
    CaseRequest,
    CompareRequest,
    ComparisonReply,
    EnvironmentReply,
    LaunchesReply,
    MachineReply,
    ProbeReply,
    Role,
    SizesReply,
    SizesRequest,
    StartRequest,
)
from kernelwright.worker.roles.candidate import Candidate
from kernelwright.worker.roles.clock import Timer
from kernelwright.worker.roles.guarded import look
from kernelwright.worker.roles.kernel_checks import Emulated, KernelChecks, Unwatched
from kernelwright.worker.roles.reference import Reference
from kernelwright.worker.roles.timed import Timed
from kernelwright.worker.roles.what_ran import CudaKernels, OwnKernels, start_profiler
from kernelwright.worker.timeline import Timeline
from kernelwright.worker.timer.driver import Driver


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """Answers the operations of one role."""

    operations: Mapping[str, Callable[[dict[str, Any]], object]]
    afterwards: Callable[[], None] = lambda: None
    """Done once it has been said that the role is ready, before anything is asked."""

    def answer(self, operation: str, body: dict[str, Any]) -> object:
        """What the operation gives: a record, or JSON values."""
        return self.operations[operation](body)


def make_host(body: dict[str, Any], timeline: Timeline) -> Host:
    """The host of the role that the first request names; marks what it has done."""
    host = _host_of(from_plain(StartRequest, body), timeline)
    timeline.mark("role")
    return host


def _host_of(start: StartRequest, timeline: Timeline) -> Host:
    device = torch.device(start.device)
    problem = parse_problem(Path(start.problem_path), start.problem_source)
    # An allocator takes its place before there is a device.
    guards = Guards.installed(Path(start.guards)) if start.guards else None
    if start.role in (Role.COMPILED, Role.COMPILED_MAX):
        # A second of imports that need no card, while others take theirs into use.
        importlib.import_module("torch._dynamo")
    timeline.mark("problem")
    if device.type == "cuda" and not start.emulate:
        take(device, start.starts, timeline)
    match start.role:
        case Role.CANDIDATE | Role.WITNESS:
            return _candidate_host(start, problem, device)
        case Role.GUARDED:
            assert guards is not None
            return _guarded_host(start, problem, device, guards)
        case Role.REFERENCE:
            return _reference_host(start, problem, device)
        case Role.COMPILED:
            timed = Timed.compiled(problem, device, mode="default")
            return replace(
                _timing_host(timed),
                afterwards=lambda: _compile_early(problem, timed, start.compiles_up_to),
            )
        case Role.COMPILED_MAX:
            return _timing_host(Timed.compiled(problem, device, mode="max-autotune"))
        case Role.TIMER:
            return _timer_host(Timer(problem, device))


def _reference_host(start: StartRequest, problem: Problem, device: torch.device) -> Host:
    reference = Reference(problem, device, _memory(device))
    timed = reference.timed()

    def run(body: dict[str, Any]) -> object:
        found = reference.run(from_plain(CaseRequest, body).case)
        return replace(found, spent=reference.take_spent())

    def compare(body: dict[str, Any]) -> object:
        request = from_plain(CompareRequest, body)
        metrics = reference.compare(request.case, Path(start.folder), request.files, request.kept)
        return ComparisonReply(metrics=metrics, spent=reference.take_spent())

    def probe(body: dict[str, Any]) -> object:
        undecided = reference.probe(from_plain(CaseRequest, body).case)
        return ProbeReply(undecided=undecided, spent=reference.take_spent())

    def forgetting(prepare: Callable[[dict[str, Any]], object], body: dict[str, Any]) -> object:
        reference.forget()
        return prepare(body)

    operations: dict[str, Callable[[dict[str, Any]], object]] = {
        "environment": lambda _: environment_here(device),
        "machine": lambda _: MachineReply(machine=modelled_machine()),
        "make": lambda body: reference.make(from_plain(CaseRequest, body).case),
        "sizes": lambda body: _sizes(problem, from_plain(SizesRequest, body), device),
        "run": run,
        "compare": compare,
        "probe": probe,
    }
    operations |= {
        name: partial(forgetting, timed.operations[name])
        for name in ("attach", "prepare", "give back")
    }
    return Host(operations={**timed.operations, **operations})


def _candidate_host(start: StartRequest, problem: Problem, device: torch.device) -> Host:
    checks: KernelChecks = (
        Emulated(start.order_seed, start.threads) if start.emulate else Unwatched()
    )
    env.forget(LOADED_FIRST)  # what is loaded stays; compilers need not have it
    checks.__enter__()  # left only when the process ends: everything of the candidate is inside
    if start.role is Role.WITNESS and device.type == "cuda" and not start.emulate:
        start_profiler(device)
    tell_when_compiling(Path(start.folder))
    memory = None if start.emulate else _memory(device)
    candidate = Candidate(problem, Path(start.candidate_path), device, checks, memory)

    def linked(body: dict[str, Any]) -> Case:
        request = from_plain(CaseRequest, body)
        candidate.link(request.links)
        return request.case

    def write(body: dict[str, Any]) -> object:
        return candidate.write(from_plain(WriteRequest, body), Path(start.folder))

    def switch(change: Callable[[OwnKernels], None]) -> LaunchesReply:
        kernels = checks.own_kernels()
        counts = kernels.take()
        change(kernels)
        return LaunchesReply(counts=tuple(counts.items()))

    operations: dict[str, Callable[[dict[str, Any]], object]] = {
        "build": lambda body: candidate.build(from_plain(CaseRequest, body).case),
        "make": lambda body: candidate.make(linked(body)),
        "run": lambda body: candidate.run(linked(body), Path(start.folder)),
        "write": write,
        "silence": lambda _: switch(lambda kernels: kernels.silence()),
        "unsilence": lambda _: switch(lambda kernels: kernels.unsilence()),
        "trace": lambda body: candidate.trace(from_plain(CaseRequest, body).case),
    }
    return Host(operations={**operations, **candidate.timed().operations})


def _guarded_host(
    start: StartRequest, problem: Problem, device: torch.device, guards: Guards
) -> Host:
    env.forget(LOADED_FIRST)
    kernels = CudaKernels(Launches.of_this_process())
    candidate = Candidate(problem, Path(start.candidate_path), device, Unwatched())

    def guard(body: dict[str, Any]) -> object:
        request = from_plain(CaseRequest, body)
        candidate.link(request.links)
        return look(candidate, guards, kernels, request.case)

    return Host(operations={"guard": guard})


def _memory(device: torch.device) -> MemoryMaker | None:
    """Makes what large results are handed over in; None where that is files."""
    return cache(lambda: Driver(device)) if device.type == "cuda" else None


def _timing_host(timed: Timed) -> Host:
    return Host(operations=timed.operations)


def _compile_early(problem: Problem, timed: Timed, most: int) -> None:
    """Compile a module whose calls take no more than so many bytes."""
    with suppress(Exception):  # whoever asks for it later hears of it
        cost = measure(problem) if most else None
        if cost is not None and cost.bytes + cost.largest <= most:
            timed.compile(to_plain(CaseRequest(case=Case())))


def _timer_host(timer: Timer) -> Host:
    return Host(
        operations={
            "lend": timer.lend,
            "draw": timer.draw,
            "fill": timer.fill,
            "expect": timer.expect,
            "watch": timer.watch,
            "check": timer.check,
            "rest": timer.rest,
        }
    )


def _sizes(problem: Problem, request: SizesRequest, device: torch.device) -> SizesReply:
    budget = Budget(bytes=request.bytes, flops=request.flops)
    own = shrink(problem, budget) if request.shrink else problem
    cost = measure(own)
    reduced = _reduced(own, budget, cost.bytes) if cost.bytes > request.large else ()
    small = size_variants(own, budget)
    whole = () if request.shrink else (_in_whole_tiles(problem, small[0]),)
    variants = {it.source: it for it in (*reduced, *whole, *small)}
    others = [_changes(problem, it) for it in variants.values() if it.source != own.source]
    return SizesReply(
        own=_changes(problem, own),
        others=tuple(others),
        ragged=tuple(sizes for sizes in others if not _divides_alike(problem, sizes)),
        bytes=cost.bytes,
        largest=cost.largest,
        memory=_memory_of(device),
    )


def _memory_of(device: torch.device) -> int:
    if device.type != "cuda":
        return 0
    return int(torch.cuda.get_device_properties(device).total_memory)


_TILE = 32
"""A file may rely on powers of two up to this dividing a size where they do in the problem."""
_WIDER = 64
"""Times the cost that sizes of whole tiles may take."""


def _in_whole_tiles(problem: Problem, smaller: Problem) -> Problem:
    """Smaller sizes that divide as the problem's own do, as far as it allows that."""
    cost = measure(smaller)
    room = Budget(bytes=cost.bytes * _WIDER, flops=cost.flops * _WIDER)
    changed = dict(_changes(problem, smaller))
    return round_up(smaller, _TILE, room, changed)


def _divides_alike(problem: Problem, sizes: Sizes) -> bool:
    own = problem.constants
    return all(value % max(1, min(own[name] & -own[name], _TILE)) == 0 for name, value in sizes)


_MUCH_SMALLER = 4
"""Times that reduced sizes have to be smaller."""


def _reduced(problem: Problem, budget: Budget, size: int) -> tuple[Problem, ...]:
    """Sizes that a file takes which is specialised to its constructor's arguments; or none."""
    smaller = _in_whole_tiles(problem, shrink_data(problem, budget))
    return (smaller,) if measure(smaller).bytes * _MUCH_SMALLER <= size else ()


def _changes(problem: Problem, variant: Problem) -> Sizes:
    changed = (
        (name, value)
        for name, value in variant.constants.items()
        if problem.constants[name] != value
    )
    return tuple(sorted(changed))


def environment_here(device: torch.device) -> EnvironmentReply:
    """Card, versions and driver of this process."""
    on_gpu = device.type == "cuda"
    return EnvironmentReply(
        card=torch.cuda.get_device_name(device) if on_gpu else "",
        torch=str(torch.__version__),
        cuda=torch.version.cuda or "",
        driver=_driver_version() if on_gpu else "",
    )


def _driver_version() -> str:
    """Version of the kernel module: "NVRM version: ... Kernel Module  580.95.05  ..."."""
    try:
        first_line = Path("/proc/driver/nvidia/version").read_text().splitlines()[0]
    except (OSError, IndexError):
        return ""
    numbers = [word for word in first_line.split() if word.replace(".", "").isdecimal()]
    return numbers[0] if numbers else ""
