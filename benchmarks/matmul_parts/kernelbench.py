"""One KernelBench problem on the card: verified, then timed against PyTorch three ways."""

import copy
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
from torch import Tensor, nn

from kernelwright.problem import Definition, execute, load_problem
from kernelwright.verify.compare import compare
from kernelwright.verify.nesting import map_tensors, named_effects
from kernelwright.verify.oracle import run_oracle
from kernelwright.verify.tolerance import NO_LESS_ACCURATE, rule
from matmul_parts.building import Emitted, describe, load
from matmul_parts.supervising import MEASURED, Row
from matmul_parts.timing import Effort, race

WRONG = "wrong"
_OWN_SETS, _NORMAL_SETS = 3, 2
"""Sets of inputs that a file is verified on: the problem's own, and zero-mean ones."""
_WEIGHT_SEED = 42
_EFFORT = Effort(warm_up_seconds=0.2, seconds=1.5, least=10, most=50)


class Baseline(Enum):
    """What a file is timed against."""

    EAGER = "eager"
    COMPILE = "compile"
    MAX_AUTOTUNE = "max-autotune"


_MODES = {Baseline.COMPILE: "default", Baseline.MAX_AUTOTUNE: "max-autotune"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A problem with its built file, and how long its baselines may take."""

    level: int
    emitted: Emitted
    baselines: tuple[Baseline, ...]
    seconds: float
    """After so many no other baseline is compiled."""

    @property
    def name(self) -> str:
        """The problem's file name without its ending."""
        return self.emitted.name


@torch.no_grad()
def measure(entry: Entry) -> Row:
    """Verify the file; if it is right, time it in turns with every baseline in this process."""
    started = time.monotonic()
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    definition = execute(load_problem(entry.emitted.problem))
    args, kwargs = definition.make_init_inputs()
    reference = _build(definition.model_class, args, kwargs)
    ours = _build(load(entry.emitted.path).ModelNew, args, kwargs)
    reasons = [
        reason
        for arguments, seed in _input_sets(definition)
        for reason in _wrong(reference, ours, arguments, seed)
    ]
    row = {
        "case": entry.name,
        "level": entry.level,
        "kernels": list(entry.emitted.kernels),
        "left_to_pytorch": list(entry.emitted.left),
    }
    if reasons:
        return row | {"status": WRONG, "message": reasons[0], "reasons": reasons}
    torch.cuda.empty_cache()
    arguments = _inputs(definition, seed=0)
    return row | _times(entry, reference, ours, arguments, started)


def _build(model: type[nn.Module], args: Sequence[Any], kwargs: dict[str, Any]) -> nn.Module:
    """A module with the weights that its seed gives, drawn on the card."""
    torch.manual_seed(_WEIGHT_SEED)
    with torch.device("cuda"):
        return model(*args, **kwargs).cuda()


def _inputs(definition: Definition, seed: int) -> list[Any]:
    torch.manual_seed(seed)
    with torch.device("cuda"):
        made = definition.make_inputs()
    return [map_tensors(value, lambda tensor: tensor.cuda()) for value in made]


def _input_sets(definition: Definition) -> Iterator[tuple[list[Any], int]]:
    """Arguments of `forward`, and the seed of what it draws itself."""
    for seed in range(_OWN_SETS):
        yield _inputs(definition, seed), seed
    for seed in range(_OWN_SETS, _OWN_SETS + _NORMAL_SETS):
        yield [map_tensors(value, _normal) for value in _inputs(definition, seed)], seed


def _normal(tensor: Tensor) -> Tensor:
    return tensor.normal_() if tensor.is_floating_point() else tensor


def _wrong(reference: nn.Module, ours: nn.Module, arguments: list[Any], seed: int) -> list[str]:
    """What is wrong with results, arguments and state after a call; nothing if all is right."""
    oracle = run_oracle(reference, arguments, seed=seed)
    ours.load_state_dict(reference.state_dict())
    found = _effects(ours, arguments, seed)
    wanted = _effects(copy.deepcopy(reference), arguments, seed)
    if found.keys() != wanted.keys():
        return [f"it gives {sorted(found)}, not {sorted(wanted)}"]
    reasons = []
    for name, tensor in wanted.items():
        if found[name].shape != tensor.shape or found[name].dtype != tensor.dtype:
            reasons.append(f"{name} has another shape or type")
            continue
        metrics = compare(name, found[name], tensor, oracle.tensors.get(name), oracle.note)
        ruling = rule(metrics, NO_LESS_ACCURATE)
        if not ruling.accepted:
            reasons.append(f"inputs {seed}: {ruling.reason}")
    return reasons


def _effects(module: nn.Module, arguments: list[Any], seed: int) -> dict[str, Tensor]:
    torch.manual_seed(seed)
    return named_effects(module(*arguments), arguments, module.state_dict())


def _times(
    entry: Entry, reference: nn.Module, ours: nn.Module, arguments: list[Any], started: float
) -> Row:
    torch._dynamo.reset()  # what was compiled for the problem before
    calls = {"ours": lambda: ours(*arguments)}
    lost: dict[str, str] = {}
    for baseline in entry.baselines:
        if baseline is not Baseline.EAGER and time.monotonic() - started > entry.seconds:
            lost[baseline.value] = "out of time"
            continue
        try:
            module = _baseline(reference, baseline)
            module(*arguments)
        except Exception as error:
            lost[baseline.value] = describe(error)
        else:
            calls[baseline.value] = lambda module=module: module(*arguments)
    times = race(calls, _EFFORT)
    milliseconds = {name: times.median(name) for name in calls}
    best = min((name for name in calls if name != "ours"), key=lambda name: milliseconds[name])
    interval = times.ratio(best, "ours")
    return {
        "status": MEASURED,
        "ms": milliseconds,
        "lost": lost,
        "best": best,
        "ratio": interval.value,
        "interval": [interval.low, interval.high],
        "samples": len(times.device_ms["ours"]),
    }


def _baseline(reference: nn.Module, baseline: Baseline) -> nn.Module:
    module = copy.deepcopy(reference)
    if baseline is Baseline.EAGER:
        return module
    compiled: nn.Module = torch.compile(module, mode=_MODES[baseline])
    return compiled
