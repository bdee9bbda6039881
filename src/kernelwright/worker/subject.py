"""A problem inside a child process: its modules, its inputs, and one watched call."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from kernelwright.problem import Definition, Problem, execute, resize
from kernelwright.verify.cases import Case, Sizes, arrange
from kernelwright.verify.fingerprint import fingerprint
from kernelwright.verify.nesting import map_tensors, named_effects, named_results, structure
from kernelwright.verify.observation import RunFacts, StateFacts, TensorFacts

WEIGHT_SEED = 42
"""Under which both modules are constructed, as in KernelBench's evaluator."""


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

    def definition(self, sizes: Sizes) -> Definition:
        """The executed problem file with those constants; executed once for each sizes."""
        if sizes not in self._definitions:
            resized = resize(self._problem, dict(sizes)) if sizes else self._problem
            name = f"kernelwright_problem_{self._problem.name}_{len(self._definitions)}"
            self._definitions[sizes] = execute(resized, name)
        return self._definitions[sizes]

    def init_inputs(self, case: Case) -> tuple[tuple[object, ...], dict[str, object]]:
        """Arguments of the constructor; leaves torch seeded for constructing the module."""
        torch.manual_seed(WEIGHT_SEED)
        return self.definition(case.sizes).make_init_inputs()

    def arguments(self, case: Case) -> list[object]:
        """Arguments of `forward` on the device, the same in every process."""
        definition = self.definition(case.sizes)
        torch.manual_seed(case.seed)
        made = definition.make_inputs()
        return arrange([map_tensors(value, self._to_device) for value in made], case)

    def synchronize(self) -> None:
        """Wait for the device; raises what a kernel did wrong."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def release(self) -> None:
        """Give memory that is kept for later back to the device, which other processes share."""
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def _to_device(self, tensor: Tensor) -> Tensor:
        return tensor.to(self.device)


class Resident:
    """A constructed module whose state is put back before each call."""

    def __init__(self, module: nn.Module, home: torch.device) -> None:
        self.module = module.to(home)
        self._home = home
        self._initial = {name: tensor.clone() for name, tensor in module.state_dict().items()}
        self.facts = StateFacts(
            tensors=tuple(describe(name, tensor, home) for name, tensor in self._initial.items())
        )
        self._marks = {facts.name: facts.fingerprint for facts in self.facts.tensors}

    @torch.no_grad()
    def call(self, subject: Subject, arguments: Sequence[object], case: Case) -> Call:
        """Call the module under the case's seed and say what it did."""
        before = named_effects(None, arguments, {})
        inputs = tuple(describe(name, tensor, self._home) for name, tensor in before.items())
        torch.manual_seed(case.seed)
        subject.synchronize()
        start = time.perf_counter()
        result = self.module(*arguments)
        subject.synchronize()
        seconds = time.perf_counter() - start
        outputs = dict(named_results(result, "output"))
        state = self.module.state_dict()
        changed = self._changed_inputs(inputs, before) + self._changed_state(state)
        everything = named_effects(result, arguments, state)
        facts = RunFacts(
            structure=structure(result),
            outputs=tuple(describe(name, tensor, self._home) for name, tensor in outputs.items()),
            inputs=inputs,
            changed=changed,
            aliases=_aliases(outputs, {**before, **named_effects(None, [], state)}),
            seconds=seconds,
        )
        effects = {
            name: everything[name].detach().clone() for name in changed if name in everything
        }
        self._restore(state, changed)
        return Call(facts=facts, effects={**outputs, **effects})

    def _changed_inputs(
        self, inputs: tuple[TensorFacts, ...], tensors: Mapping[str, Tensor]
    ) -> tuple[str, ...]:
        return tuple(
            facts.name for facts in inputs if fingerprint(tensors[facts.name]) != facts.fingerprint
        )

    def _changed_state(self, state: Mapping[str, Tensor]) -> tuple[str, ...]:
        return tuple(
            f"state.{name}"
            for name, mark in self._marks.items()
            if name not in state or fingerprint(state[name]) != mark
        )

    def _restore(self, state: Mapping[str, Tensor], changed: tuple[str, ...]) -> None:
        for name, initial in self._initial.items():
            if f"state.{name}" in changed and name in state:
                state[name].copy_(initial)


def describe(name: str, tensor: Tensor, home: torch.device) -> TensorFacts:
    """The facts of one tensor in a child that runs on `home`."""
    # Asked of a tensor and not of `home`: the emulator's device is the host's memory.
    here = torch.empty(0, device=home).device
    return TensorFacts(
        name=name,
        dtype=str(tensor.dtype),
        shape=tuple(tensor.shape),
        strides=tuple(tensor.stride()),
        place="the device" if tensor.device.type == here.type else tensor.device.type,
        fingerprint=fingerprint(tensor),
    )


def _aliases(
    outputs: Mapping[str, Tensor], owners: Mapping[str, Tensor]
) -> tuple[tuple[str, str], ...]:
    places = [(name, _storage(tensor)) for name, tensor in owners.items()]
    return tuple(
        (output, owner)
        for output, tensor in outputs.items()
        for owner, place in places
        if place is not None and _storage(tensor) == place
    )


def _storage(tensor: Tensor) -> int | None:
    """Address of the memory behind a tensor; None where there is none to share."""
    return tensor.untyped_storage().data_ptr() or None
