"""A problem inside a child process: its modules, its inputs, and one watched call."""

import hashlib
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from kernelwright.problem import Definition, Problem, execute, resize
from kernelwright.problem.errors import ProblemRaisedError
from kernelwright.verify.cases import Case, Sizes, Weights, arrange
from kernelwright.verify.distributions import Distribution
from kernelwright.verify.fingerprint import fingerprints
from kernelwright.verify.nesting import (
    PLAIN,
    kind_of,
    map_tensors,
    named_effects,
    named_results,
    structure,
)
from kernelwright.verify.observation import UNUSED, Links, RunFacts, StateFacts, TensorFacts
from kernelwright.verify.state import names_in_reference, put_back
from kernelwright.verify.waiting import settle
from kernelwright.worker.roles.weights import drawn_constants, load_other

WEIGHT_SEED = 42
"""Under which both modules are constructed, as in KernelBench's evaluator."""


_POISONED = (*[20 << 20] * 4, *[1 << 20] * 8)
"""Bytes of blocks that fill whole segments of PyTorch's allocator, large ones and small ones."""
_KEPT_SHARE = 96
"""Parts of the device's memory, of which a process keeps one at most that it does not use. With
twelve judgements on an H200 giving memory back took 90 ms each time, which was a third of all that
candidates took, and taking it again as long: the driver has one lock for all."""
_FREE_SHARE = 2
"""Parts, of which one has to be free for anybody to keep more than that: others may need it at any
time."""
_CERTAIN = 64 << 20
"""Bytes that nobody asks for in vain."""
_SMALL = 1 << 20
"""Bytes up to which PyTorch's allocator takes a block from segments for small ones."""
_SLACK = 4 << 20
"""Bytes that a larger block may have beyond what was asked for: the allocator rounds up."""
_NAN_BYTE = 0xFF
"""All bits set is a NaN in every floating-point type."""

ModuleMaker = Callable[[tuple[object, ...], Mapping[str, object]], nn.Module]
"""`Model` or `ModelNew`: from arguments and keywords to a module."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of a module."""

    facts: RunFacts
    effects: Mapping[str, Tensor]
    """Results by name, and the arguments and state that the call changed."""


class Subject:
    """The problem at any sizes, on one device."""

    def __init__(self, problem: Problem, device: torch.device) -> None:
        self.device = device
        self._problem = problem
        self._definitions: dict[Sizes, Definition] = {}
        self._ahead: tuple[Case, nn.Module | BaseException] | None = None
        self._makes_on_device = False
        self.links: Links | None = None
        """What of the modules made here stands for the reference's tensors, by name; None where
        all have its names."""

    def definition(self, sizes: Sizes) -> Definition:
        """The executed problem file with those constants; executed once for each sizes."""
        if sizes not in self._definitions:
            resized = resize(self._problem, dict(sizes)) if sizes else self._problem
            name = f"kernelwright_problem_{self._problem.name}_{len(self._definitions)}"
            self._definitions[sizes] = execute(resized, name)
        return self._definitions[sizes]

    def init_inputs(self, case: Case) -> tuple[tuple[object, ...], dict[str, object]]:
        """Arguments of the constructor; leaves torch seeded for constructing the module."""
        made = (Weights.MADE, Weights.LOADED)
        torch.manual_seed(WEIGHT_SEED if case.weights in made else WEIGHT_SEED + 1 + case.seed)
        return self.definition(case.sizes).make_init_inputs()

    def make(self, case: Case, make: ModuleMaker) -> None:
        """Make what `construct` or `placed` is asked for next, without the device.

        What that raises is raised there. Nothing where `make` has used the device before.
        """
        if self._makes_on_device:
            return
        try:
            self._ahead = module_key(case), self._make(case, make)
        except (Exception, SystemExit) as error:
            self._ahead = module_key(case), error

    def placed(self, case: Case, make: ModuleMaker) -> nn.Module:
        """The module of `make` with the case's weights, on the device."""
        made, self._ahead = self._ahead, None
        if made is None or made[0] != module_key(case):
            return self._make(case, make).to(self.device)
        if isinstance(made[1], BaseException):
            raise made[1]
        return made[1].to(self.device)

    def make_reference(self, case: Case) -> None:
        """Make what `reference` is asked for next, as `make` does."""
        self.make(case, self.definition(case.sizes).build)

    def reference(self, case: Case) -> nn.Module:
        """The problem's own module, on the device."""
        return self.placed(case, self.definition(case.sizes).build)

    def _make(self, case: Case, make: ModuleMaker) -> nn.Module:
        before = self._allocations()
        drawn = case.weights is Weights.DRAWN
        only = self._drawn_in_reference(case) if drawn and self.links is not None else None
        args, kwargs = self.init_inputs(case)
        with drawn_constants(only) if drawn else nullcontext():
            module = make(args, kwargs)
        self._makes_on_device = self._makes_on_device or self._allocations() != before
        return module

    def _drawn_in_reference(self, case: Case) -> set[str]:
        """Kinds of constants that the reference's own constructor has: no others are weights."""
        args, kwargs = self.init_inputs(case)
        with drawn_constants() as kinds:
            self.definition(case.sizes).build(args, kwargs)
        return kinds

    def _allocations(self) -> int:
        """How often this process has taken memory of the device for something."""
        if self.device.type != "cuda":
            return 0
        return int(torch.cuda.memory_stats(self.device).get("allocation.all.allocated", 0))

    def construct(self, case: Case, make: ModuleMaker) -> "Resident":
        """Construct it, and note what its state is before the first call."""
        resident = Resident(self.placed(case, make), self.device)
        if case.weights is Weights.LOADED:
            # After a call, so that what a module prepares once is prepared from the old ones.
            own = replace(case, distribution=Distribution.OWN)
            resident.module(*self.arguments(own))
            resident.load(lambda module: load_other(module, self.links))
        return resident

    def arguments(self, case: Case) -> list[object]:
        """Arguments of `forward` on the device, the same in every process."""
        made = self._made(case)
        return arrange([map_tensors(value, self._to_device) for value in made], case)

    def _made(self, case: Case) -> tuple[object, ...]:
        """What `get_inputs` makes, on the device right away where its code allows that."""
        definition = self.definition(case.sizes)
        if self.device.type == "cuda":
            torch.manual_seed(case.seed)
            try:
                with self.device:
                    return definition.make_inputs()
            except ProblemRaisedError as error:
                if "CUDA" in error.message:
                    raise  # the device's trouble and not that of `get_inputs`
        torch.manual_seed(case.seed)
        return definition.make_inputs()

    def synchronize(self) -> None:
        """Wait for the device; raises what a kernel did wrong."""
        if self.device.type == "cuda":
            settle(self.device)
            torch.cuda.synchronize(self.device)  # the other streams as well

    def release(self) -> None:
        """Give memory that is kept for later back to the device, which other processes share.

        A little may stay, and all of it while there is much that nobody has taken.
        """
        if self.device.type != "cuda":
            return
        unused = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
        memory: int = torch.cuda.get_device_properties(self.device).total_memory
        if unused <= memory // _KEPT_SHARE:
            return
        free, _ = torch.cuda.mem_get_info(self.device)
        if free < memory // _FREE_SHARE:
            self.give_back()

    def give_back(self) -> None:
        """Give all of it back: somebody has asked for more than is free."""
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def is_crowded(self) -> bool:
        """Whether other processes have most of the device's memory."""
        if self.device.type != "cuda":
            return False
        free, total = torch.cuda.mem_get_info(self.device)
        return 2 * (total - free - torch.cuda.memory_reserved(self.device)) > total

    def random_state(self) -> str:
        """A checksum of the state of torch's random generators."""
        digest = hashlib.blake2b(torch.get_rng_state().numpy().tobytes(), digest_size=12)
        if self.device.type == "cuda":
            digest.update(torch.cuda.get_rng_state(self.device).numpy().tobytes())
        return digest.hexdigest()

    def poison(self, most: int) -> None:
        """Fill memory that the caching allocator keeps with NaN, blocks of `most` bytes as well.

        Memory that a kernel allocates and does not write then gives itself away.
        """
        # The emulator's device is the host's memory, all of which it fills by itself.
        if torch.empty(0, device=self.device).device.type != "cuda":
            return
        unused = _unused_blocks(self.device)
        missing = _missing((*_POISONED, most), unused)
        # The driver is asked only where that matters: it has one lock for all processes.
        large = max(missing, default=0) > _CERTAIN
        free = torch.cuda.mem_get_info(self.device)[0] if large else 0
        sizes = [*unused, *(size for size in missing if size <= max(_CERTAIN, free // 4))]
        # From the largest down, so that none is cut from a block that a larger one would fill.
        blocks = [
            torch.empty(size, dtype=torch.uint8, device=self.device).fill_(_NAN_BYTE)
            for size in sorted(sizes, reverse=True)
            if size > 0
        ]
        del blocks

    def _to_device(self, tensor: Tensor) -> Tensor:
        return tensor.to(self.device)


def module_key(case: Case) -> Case:
    """What of a case decides about the module: cases with the same key share one."""
    seeded = case.weights in (Weights.OTHER, Weights.DRAWN)
    return Case(sizes=case.sizes, weights=case.weights, seed=case.seed if seeded else 0)


def _missing(wanted: Sequence[int], unused: Sequence[int]) -> list[int]:
    """Which of the sizes have no block of hardly more bytes of their own among `unused`."""
    left = sorted(unused)
    missing = []
    for size in wanted:
        place = bisect_left(left, size)
        most = size + _SLACK if size > _SMALL else _SMALL
        if place < len(left) and left[place] <= most:
            del left[place]
        else:
            missing.append(size)
    return missing


def _unused_blocks(device: torch.device) -> list[int]:
    """Bytes of the free blocks in the allocator, as it gives them out: small ones in pieces.

    Those of the current stream, which nobody else gets.
    """
    stream = torch.cuda.current_stream(device).cuda_stream
    return [
        size
        for segment in torch.cuda.memory_snapshot()  # type: ignore[no-untyped-call]
        if segment["device"] == device.index and segment["stream"] == stream
        for block in segment["blocks"]
        if block["state"] == "inactive"
        for size in _pieces(block["size"], segment["segment_type"])
    ]


def _pieces(size: int, kind: str) -> list[int]:
    """A free block as it can be asked for: what is small comes from segments of its own."""
    if kind != "small":
        return [size]
    return [_SMALL] * (size // _SMALL) + [size % _SMALL] * bool(size % _SMALL)


class Resident:
    """A constructed module whose state is put back before each call."""

    def __init__(self, module: nn.Module, home: torch.device) -> None:
        self.module = module.to(home)
        self._home = home
        self._initial = {name: tensor.clone() for name, tensor in module.state_dict().items()}
        self.facts = StateFacts(tensors=describe(self._initial, home))
        self._marks = {facts.name: facts.fingerprint for facts in self.facts.tensors}

    @torch.no_grad()
    def load(self, change: Callable[[nn.Module], None]) -> None:
        """Let `change` give the module other weights, which are those to come back to.

        It starts from the first ones, whatever calls have made of them since.
        """
        self._restore(tuple(f"state.{name}" for name in self._initial))
        change(self.module)
        state = self.module.state_dict()
        self._initial = {name: tensor.clone() for name, tensor in state.items()}
        self._marks = dict(zip(state, fingerprints(list(state.values())), strict=True))

    @torch.no_grad()
    def call(self, subject: Subject, arguments: Sequence[object], case: Case) -> Call:
        """Call the module under the case's seed and say what it did."""
        before = named_effects(None, arguments, {})
        inputs = describe(before, self._home)
        torch.manual_seed(case.seed)
        subject.synchronize()
        random = subject.random_state()
        start = time.perf_counter()
        result = self.module(*arguments)
        subject.synchronize()
        seconds = time.perf_counter() - start
        random_after = subject.random_state()
        outputs = dict(named_results(result, "output"))
        state = self.module.state_dict()
        described, now = describe_beside(outputs, self._there(before, state), self._home)
        everything = named_effects(result, arguments, state)
        touched = self._changed(inputs, now)
        names = names_in_reference(touched, subject.links)
        changed = tuple(names)
        facts = RunFacts(
            structure=structure(result),
            outputs=described,
            inputs=inputs,
            changed=changed,
            aliases=_aliases(outputs, {**before, **named_effects(None, [], state)}),
            seconds=seconds,
            random=UNUSED if random == random_after else random_after,
        )
        outputs = {name: tensor for name, tensor in outputs.items() if kind_of(tensor) == PLAIN}
        effects = {
            name: everything[own].detach().clone()
            for name, own in names.items()
            if own in everything
        }
        self._restore(put_back(touched, subject.links))
        return Call(facts=facts, effects={**outputs, **effects})

    def before(self, names: tuple[str, ...]) -> Mapping[str, Tensor]:
        """What a call finds of these results' state."""
        state = {f"state.{name}": tensor for name, tensor in self._initial.items()}
        return {name: state[name] for name in names if name in state}

    def _there(
        self, tensors: Mapping[str, Tensor], state: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """What a call may have changed: its arguments, and the module's state."""
        own = {f"state.{name}": state[name] for name in self._marks if name in state}
        return {**tensors, **own}

    def _changed(self, inputs: tuple[TensorFacts, ...], now: Mapping[str, str]) -> tuple[str, ...]:
        """Names of the inputs and of the state that are no longer what they were."""
        marks = {facts.name: facts.fingerprint for facts in inputs}
        marks |= {f"state.{name}": mark for name, mark in self._marks.items()}
        return tuple(name for name, mark in marks.items() if now.get(name) != mark)

    def _restore(self, changed: tuple[str, ...]) -> None:
        state = self.module.state_dict()
        for name, initial in self._initial.items():
            # A file may have made a buffer of its own larger.
            same = name in state and state[name].shape == initial.shape
            if same and f"state.{name}" in changed:
                state[name].copy_(initial)


def _is_stored(tensor: Tensor) -> bool:
    if tensor.layout is not torch.strided or tensor.device.type == "meta":
        return False
    last = tensor.storage_offset() + sum(
        (size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )
    return (
        tensor.numel() == 0
        or tensor.untyped_storage().nbytes() >= (last + 1) * tensor.element_size()
    )


def describe(tensors: Mapping[str, Tensor], home: torch.device) -> tuple[TensorFacts, ...]:
    """The facts of tensors in a child that runs on `home`."""
    return describe_beside(tensors, {}, home)[0]


def describe_beside(
    tensors: Mapping[str, Tensor], others: Mapping[str, Tensor], home: torch.device
) -> tuple[tuple[TensorFacts, ...], dict[str, str]]:
    """The facts of tensors, and the checksums of others: the device is waited for once."""
    # Asked of a tensor and not of `home`: the emulator's device is the host's memory.
    here = torch.empty(0, device=home).device
    kinds = {name: kind_of(tensor) for name, tensor in tensors.items()}
    stored = {n: t for n, t in tensors.items() if kinds[n] == PLAIN and _is_stored(t)}
    found = fingerprints([*stored.values(), *others.values()])
    marks = dict(zip(stored, found, strict=False))
    facts = tuple(
        TensorFacts(
            name=name,
            dtype=str(tensor.dtype),
            shape=tuple(tensor.shape),
            strides=tuple(tensor.stride()),
            place="the device" if tensor.device.type == here.type else tensor.device.type,
            fingerprint=marks.get(name, ""),
            kind=kinds[name],
            stored=name in stored,
        )
        for name, tensor in tensors.items()
    )
    return facts, dict(zip(others, found[len(stored) :], strict=True))


def _aliases(
    outputs: Mapping[str, Tensor], owners: Mapping[str, Tensor]
) -> tuple[tuple[str, str], ...]:
    places = [(name, span(tensor)) for name, tensor in owners.items()]
    return tuple(
        (output, owner)
        for output, tensor in outputs.items()
        for owner, place in places
        if overlap(span(tensor), place)
    )


def span(tensor: Tensor) -> tuple[int, int]:
    """First and one past the last address of the memory behind a tensor; (0, 0) for none."""
    if kind_of(tensor) != PLAIN or not _is_stored(tensor):
        return 0, 0
    storage = tensor.untyped_storage()
    return storage.data_ptr(), storage.data_ptr() + storage.nbytes()


def overlap(first: tuple[int, int], second: tuple[int, int]) -> bool:
    """Whether two spans of addresses have one in common."""
    return max(first[0], second[0]) < min(first[1], second[1])
