"""What a file can change for everything else in its process: flags of torch, and whole functions.

before = snapshot()
...
changed = changes(before, snapshot())
"""

import sys
import time
from collections.abc import Callable, Mapping

import torch
import torch.profiler

from kernelwright.verify.observation import REPLACED

Snapshot = Mapping[str, object]
"""Every flag by name, as text, and every function."""


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

_OWNERS: dict[str, object] = {
    "time": time,
    "torch": torch,
    "torch.Tensor": torch.Tensor,
    "torch.autograd": torch.autograd,
    "torch.cuda": torch.cuda,
    "torch.cuda.Event": torch.cuda.Event,
    "torch.cuda.Stream": torch.cuda.Stream,
    "torch.linalg": torch.linalg,
    "torch.nn.Module": torch.nn.Module,
    "torch.nn.functional": torch.nn.functional,
    "torch.profiler.profile": torch.profiler.profile,
    "torch.testing": torch.testing,
}
"""Modules and classes whose functions nothing honest replaces: clocks, comparisons, operators."""

_REPLACED_BY_TORCH = frozenset(
    {
        "torch.manual_seed",
        "torch.nn.Module.__init__",
        "torch.nn.Module.__setstate__",
        "torch.Storage",
    }
)
"""What importing PyTorch's compiler wraps, and what setting the default dtype sets."""


def snapshot() -> Snapshot:
    """Everything as it is now."""
    functions = {
        f"{path}.{name}": value
        for path, owner in _OWNERS.items()
        for name, value in list(vars(owner).items())
        if callable(value) or isinstance(value, staticmethod | classmethod | property)
    }
    return functions | {name: _read(getter) for name, getter in _FLAGS.items()}


def changes(before: Snapshot, after: Snapshot) -> tuple[tuple[str, str], ...]:
    """(name, "before -> after") of what differs; a function that differs was `REPLACED`."""
    return tuple(
        (name, f"{old} -> {after[name]}" if name in _FLAGS else REPLACED)
        for name, old in before.items()
        if not _same(old, after.get(name)) and name not in _REPLACED_BY_TORCH
    )


def _same(old: object, new: object) -> bool:
    return old == new if isinstance(old, str) else old is new


def _read(getter: Callable[[], object]) -> str:
    try:
        return str(getter())
    except Exception as error:  # a flag that this version of torch reads only in another way
        return type(error).__name__
