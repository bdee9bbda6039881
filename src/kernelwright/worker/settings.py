"""What a file can change for everything else in its process: flags of torch, and whole functions.

before = snapshot()
...
changed = changes(before, snapshot())
"""

import sys
import time
from collections.abc import Callable, Mapping

import torch

from kernelwright.verify.observation import REPLACED

Snapshot = Mapping[str, str]
"""Every setting by name, as text."""


def _current_stream() -> object:
    if not torch.cuda.is_available() or not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return "default"
    current = torch.cuda.current_stream()
    return "default" if current == torch.cuda.default_stream() else "another"


_FLAGS: dict[str, Callable[[], object]] = {
    "default dtype": torch.get_default_dtype,
    "default device": torch.get_default_device,
    "gradients": torch.is_grad_enabled,
    "inference mode": torch.is_inference_mode_enabled,
    "deterministic algorithms": torch.are_deterministic_algorithms_enabled,
    "threads of torch": torch.get_num_threads,
    "float32 matmul precision": torch.get_float32_matmul_precision,
    "cuda.matmul.allow_tf32": lambda: torch.backends.cuda.matmul.allow_tf32,
    "cuda.matmul.allow_fp16_reduced_precision_reduction": lambda: (
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction
    ),
    "cuda.matmul.allow_bf16_reduced_precision_reduction": lambda: (
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction
    ),
    "cudnn.allow_tf32": lambda: torch.backends.cudnn.allow_tf32,
    "cudnn.benchmark": lambda: torch.backends.cudnn.benchmark,
    "cudnn.deterministic": lambda: torch.backends.cudnn.deterministic,
    "cudnn.enabled": lambda: torch.backends.cudnn.enabled,
    "autocast": lambda: (torch.is_autocast_enabled("cuda"), torch.is_autocast_enabled("cpu")),
    "current stream": _current_stream,
    "tracing": lambda: (sys.gettrace() is not None, sys.getprofile() is not None),
}

_FUNCTIONS = {
    "time": ("time", "time_ns", "perf_counter", "perf_counter_ns", "monotonic", "process_time"),
    "torch": ("allclose", "isclose", "equal", "rand", "randn", "randint", "empty", "sum", "max"),
    "torch.testing": ("assert_close",),
    "torch.cuda": ("synchronize", "Event", "Stream", "current_stream", "empty_cache"),
    "torch.cuda.Event": ("record", "elapsed_time", "synchronize", "query"),
    "torch.cuda.Stream": ("synchronize", "wait_stream", "wait_event"),
    "torch.Tensor": ("allclose", "isclose", "equal", "__eq__", "item", "cpu", "numpy", "clone"),
    "torch.nn.Module": ("__call__", "_call_impl", "state_dict", "load_state_dict"),
    "torch.autograd.profiler.profile": ("__enter__", "__exit__"),
}
"""What clocks and comparisons are made of. Nothing honest replaces any of it."""

_ROOTS = {"time": time, "torch": torch}


def snapshot() -> Snapshot:
    """Everything as it is now."""
    flags = {name: _read(getter) for name, getter in _FLAGS.items()}
    return flags | {
        f"{owner}.{name}": str(id(_found(f"{owner}.{name}")))
        for owner, names in _FUNCTIONS.items()
        for name in names
    }


def changes(before: Snapshot, after: Snapshot) -> tuple[tuple[str, str], ...]:
    """(name, "before -> after") of what differs; a function that differs was `REPLACED`."""
    return tuple(
        (name, f"{old} -> {after[name]}" if name in _FLAGS else REPLACED)
        for name, old in before.items()
        if after[name] != old
    )


def _read(getter: Callable[[], object]) -> str:
    try:
        return str(getter())
    except Exception as error:  # a flag that this version of torch reads only in another way
        return type(error).__name__


def _found(path: str) -> object:
    root, *names = path.split(".")
    found: object = _ROOTS[root]
    for name in names:
        found = getattr(found, name, None)
    return found
