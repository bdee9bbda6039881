"""One problem on the card, in a process of its own: ours, eager, torch.compile, and their errors.

Compilers work while other processes time: the card is used under a lock alone.
"""

import copy
import fcntl
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from emitted_files import build_library, load, with_library
from timing import card_ms, doubled, rms_error, wall_ms

_FEW_ELEMENTS = 2**20
_BATCH_NORMS = (torch.nn.modules.batchnorm._BatchNorm,)
_AMPLIFIED = 1.5
"""How much further than eager from float64 a network may be whose batch norms have the statistics
of small maps: they amplify last bits, so that equal arithmetic has unequal errors."""


def measure(folder: Path, lock: Path, kernels: int) -> None:
    """Ours and eager: writes `record.json` of the folder after each step. `kernels`: 0 without the
    time of each kernel and of the host."""
    facts = json.loads((folder / "facts.json").read_text())
    record = {"problem": folder.name, **facts}
    _keeping(folder, record, lambda keep: _measure(folder, lock, kernels, keep))


def measure_compiled(folder: Path, lock: Path, kernels: int, record: dict[str, Any]) -> None:
    """torch.compile, added to the record of the others."""
    _keeping(folder, record, lambda keep: _measure_compiled(folder, lock, kernels, keep))


def _keeping(
    folder: Path, record: dict[str, Any], work: Callable[[Callable[..., None]], None]
) -> None:
    def keep(**found: Any) -> None:
        record.update(found)
        (folder / "record.json").write_text(json.dumps(record))

    try:
        work(keep)
    except Exception as error:
        keep(failed=repr(error)[:1500])


def _measure(folder: Path, lock: Path, kernels: int, keep: Callable[..., None]) -> None:
    library = build_library(folder)
    problem = load(folder / "problem.py", f"problem_{folder.name}")
    emitted = with_library(folder / "emitted.py", library)
    # The card's context and cuDNN take seconds to load.
    torch.nn.functional.conv2d(*(torch.rand(1, 4, 8, 8, device="cuda") for _ in range(2)))
    with _alone(lock), torch.no_grad():
        own, inputs = _made(problem)
        with torch.device("cuda"):
            new = emitted.ModelNew(*problem.get_init_inputs())
        new.load_state_dict(own.state_dict())
        keep(**_errors(own, new, inputs))
        keep(ours_ms=card_ms(lambda: new(*inputs)))
        keep(eager_ms=card_ms(lambda: own(*inputs)))
        if not kernels:
            return
        # The host's time is in it.
        keep(wall_ms=wall_ms(lambda: new(*inputs)), eager_wall_ms=wall_ms(lambda: own(*inputs)))
        keep(kernels_ms=_kernel_times(lambda: new(*inputs)))


def _measure_compiled(folder: Path, lock: Path, kernels: int, keep: Callable[..., None]) -> None:
    problem = load(folder / "problem.py", f"problem_{folder.name}")
    with _alone(lock):
        own, inputs = _made(problem)
    _lock_compiled_calls(lock)
    compiled = torch.compile(own)
    with torch.no_grad():
        compiled(*inputs)
        with _alone(lock):
            keep(compiled_ms=card_ms(lambda: compiled(*inputs)))
            if kernels:
                keep(compiled_wall_ms=wall_ms(lambda: compiled(*inputs)))
                keep(compiled_kernels_ms=_kernel_times(lambda: compiled(*inputs)))


def _made(problem: ModuleType) -> tuple[torch.nn.Module, list[Any]]:
    """The module and its inputs on the card, the same at each call."""
    torch.manual_seed(0)
    with torch.device("cuda"):
        given = problem.get_inputs()
        inputs = [it.cuda() if isinstance(it, torch.Tensor) else it for it in given]
        return problem.Model(*problem.get_init_inputs()), inputs


def _errors(own: torch.nn.Module, new: torch.nn.Module, inputs: list[Any]) -> dict[str, Any]:
    """Whether ours is as near to float64 as eager is: on the first image, or on all where inputs
    are small or a batch norm has statistics of all."""
    expected, found = own(*inputs), new(*inputs)
    tensors = [it for it in inputs if isinstance(it, torch.Tensor)]
    has_statistics = any(isinstance(it, _BATCH_NORMS) for it in own.modules())
    if has_statistics or sum(it.numel() for it in tensors) < _FEW_ELEMENTS:
        count = max(it.shape[0] for it in tensors)
    else:
        count = 1
    batch = inputs[0].shape[:1]
    first = [it[:count] if isinstance(it, torch.Tensor) and it.shape[:1] == batch else it
             for it in inputs]  # fmt: skip
    exact = copy.deepcopy(own).double()(*map(doubled, first))
    eager, ours = rms_error(expected[:count], exact), rms_error(found[:count], exact)
    return {
        "errors": {"eager": eager, "ours": ours},
        "difference": rms_error(found[:count], expected[:count].double()),
        "verified": ours <= (_AMPLIFIED if has_statistics else 1.05) * eager + 1e-7,
    }


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """The card for this process; what it launched is done at the end."""
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
            torch.cuda.synchronize()
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)


def _lock_compiled_calls(lock: Path) -> None:
    """A compiled graph's first call, which follows its compilation, disturbs nobody's timing."""
    from torch._inductor.output_code import CompiledFxGraph

    run = CompiledFxGraph.__call__
    is_first = True

    def call(self: Any, inputs: Any) -> Any:
        nonlocal is_first
        if not is_first:
            return run(self, inputs)
        is_first = False
        with _alone(lock):
            return run(self, inputs)

    CompiledFxGraph.__call__ = call  # type: ignore[method-assign]


def _kernel_times(function: Callable[[], object]) -> dict[str, float]:
    """Milliseconds of each kernel of one call."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        function()
        torch.cuda.synchronize()
    times = {it.key[:120]: it.device_time_total / 1e3 for it in profile.key_averages()}
    return {name: round(ms, 4) for name, ms in times.items() if ms > 0}
