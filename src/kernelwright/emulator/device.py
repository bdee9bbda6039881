"""A CUDA device for Python code, where there is none.

    with pretended_cuda(synchronize):
        x = torch.ones(3, device="cuda")
        assert x.is_cuda

Tensors stay in host memory, which the emulated device shares: `x.device` says `cpu`, whatever was
asked for, and `torch.device("cuda")` itself stays what it is. Everything that takes a device takes
`"cuda"`, moves nothing, and `x.is_cuda` is true of every tensor in host memory. Streams are one,
events take the host's time.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from torch.overrides import TorchFunctionMode

from kernelwright.machine import H200

DEVICE_NAME = f"{H200.name} (emulated)"
CAPABILITY = (9, 0)
MULTIPROCESSORS = H200.sm_count
_PROPERTIES = {
    "name": DEVICE_NAME,
    "major": CAPABILITY[0],
    "minor": CAPABILITY[1],
    "total_memory": 16 << 30,
    "warp_size": H200.limits.warp_threads,
    "max_threads_per_multi_processor": H200.limits.sm_threads,
    "max_threads_per_block": H200.limits.block_threads,
    "regs_per_multiprocessor": H200.registers_per_sm,
    "shared_memory_per_block": H200.limits.static_shared_bytes,
    "shared_memory_per_block_optin": H200.shared_memory_per_block,
    "shared_memory_per_multiprocessor": H200.shared_memory_per_block
    + H200.limits.reserved_shared_bytes,
    "L2_cache_size": H200.l2_bytes,
    "clock_rate": 1_980_000,  # kHz
    "memory_clock_rate": 3_201_000,
    "memory_bus_width": 6016,
    "is_integrated": 0,
    "is_multi_gpu_board": 0,
    "gcnArchName": "",
}


class Stream:
    """The one stream: work on it is done by the time anybody can ask."""

    cuda_stream = 0
    stream_id = 0
    device_index = 0
    priority = 0

    def __init__(self, *_args: object, **_kwargs: object) -> None:
        self.device = torch.device("cuda", 0)

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *_error: object) -> None:
        return None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream)

    def __hash__(self) -> int:
        return 0

    def query(self) -> bool:
        """Whether all work is done: always."""
        return True

    def synchronize(self) -> None:
        """Wait for nothing."""

    def wait_event(self, _event: object) -> None:
        """Wait for nothing."""

    def wait_stream(self, _stream: object) -> None:
        """Wait for nothing."""

    def record_event(self, event: "Event | None" = None) -> "Event":
        """An event that happened now."""
        event = event or Event()
        event.record()
        return event


class Event:
    """A point in the host's time."""

    def __init__(self, *_args: object, **_kwargs: object) -> None:
        self._seconds: float | None = None

    def record(self, _stream: object = None) -> None:
        """Happen now."""
        self._seconds = time.perf_counter()

    def query(self) -> bool:
        """Whether it happened: always."""
        return True

    def synchronize(self) -> None:
        """Wait for nothing."""

    def wait(self, _stream: object = None) -> None:
        """Wait for nothing."""

    def elapsed_time(self, end: "Event") -> float:
        """Milliseconds from this one to `end`, on the host: no measure of a GPU."""
        if self._seconds is None or end._seconds is None:
            raise RuntimeError("Both events must be recorded before calculating elapsed time.")
        return (end._seconds - self._seconds) * 1e3


class _Nothing:
    """A context that changes nothing: torch.cuda.device, torch.cuda.stream."""

    def __init__(self, *_args: object, **_kwargs: object) -> None:
        pass

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_error: object) -> None:
        return None


_RAW_STREAM = "_cuda_getCurrentRawStream"


def _always(value: object) -> Callable[..., Any]:
    def answer(*_args: object, **_kwargs: object) -> object:
        return value

    return answer


def _yes(*_args: object, **_kwargs: object) -> bool:
    return True


def _random_state(_device: object = None) -> torch.Tensor:
    return torch.get_rng_state()


def _set_random_state(state: torch.Tensor, _device: object = None) -> None:
    torch.set_rng_state(state)


def _torch_cuda(synchronize: Callable[..., None], multiprocessors: int) -> Mapping[str, object]:
    """What stands in torch.cuda for the length of a session."""
    properties = SimpleNamespace(**_PROPERTIES, multi_processor_count=multiprocessors)
    return {
        "is_available": _yes,
        "is_initialized": _yes,
        "init": _always(None),
        "_lazy_init": _always(None),
        "device_count": _always(1),
        "current_device": _always(0),
        "set_device": _always(None),
        "get_device_name": _always(DEVICE_NAME),
        "get_device_capability": _always(CAPABILITY),
        "get_device_properties": _always(properties),
        "get_arch_list": _always([f"sm_{CAPABILITY[0]}{CAPABILITY[1]}"]),
        "is_bf16_supported": _yes,
        "current_stream": _always(Stream()),
        "default_stream": _always(Stream()),
        "set_stream": _always(None),
        "Stream": Stream,
        "ExternalStream": Stream,
        "Event": Event,
        "device": _Nothing,
        "device_of": _Nothing,
        "stream": _Nothing,
        "StreamContext": _Nothing,
        "synchronize": synchronize,
        "empty_cache": _always(None),
        "ipc_collect": _always(None),
        "mem_get_info": _always((_PROPERTIES["total_memory"], _PROPERTIES["total_memory"])),
        "memory_snapshot": _always([]),
        "memory_allocated": _always(0),
        "memory_reserved": _always(0),
        "max_memory_allocated": _always(0),
        "max_memory_reserved": _always(0),
        "reset_peak_memory_stats": _always(None),
        # torch.manual_seed itself calls these two.
        "manual_seed": torch.default_generator.manual_seed,
        "manual_seed_all": torch.default_generator.manual_seed,
        "seed": torch.seed,
        # One generator serves host and device.
        "get_rng_state": _random_state,
        "set_rng_state": _set_random_state,
    }


@contextmanager
def pretended_cuda(
    synchronize: Callable[..., None], multiprocessors: int = MULTIPROCESSORS
) -> Iterator[None]:
    """Python code in the block sees one CUDA device; `synchronize` is what waiting for it does."""
    replacements = _torch_cuda(synchronize, multiprocessors)
    with ExitStack() as stack:
        for name, value in replacements.items():
            if hasattr(torch.cuda, name):
                stack.enter_context(patch.object(torch.cuda, name, value))
        if hasattr(torch._C, _RAW_STREAM):  # A PyTorch that is built for CUDA.
            stack.enter_context(patch.object(torch._C, _RAW_STREAM, _always(0)))
        stack.enter_context(patch.object(torch.Tensor, "is_cuda", property(_is_on_host)))
        # No mode sees this one: PyTorch reads its argument first, and ours is no stream of its.
        stack.enter_context(patch.object(torch.Tensor, "record_stream", _always(None)))
        default = _default_device(torch.set_default_device)
        stack.enter_context(patch.object(torch, "set_default_device", default))
        stack.enter_context(patch.object(torch.nn.Module, "cuda", _module_cuda))
        stack.enter_context(patch.object(torch.nn.Module, "to", _module_to(torch.nn.Module.to)))
        stack.enter_context(_DeviceMode())
        yield


def is_cuda(device: object) -> bool:
    """Whether "cuda", "cuda:0", torch.device("cuda") is meant."""
    if isinstance(device, torch.device):
        return device.type == "cuda"
    return isinstance(device, str) and device.partition(":")[0] == "cuda"


class _DeviceMode(TorchFunctionMode):
    """Every function of PyTorch gets the host where it was given the CUDA device."""

    def __torch_function__(
        self, func: Callable[..., Any], _types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in (torch.Tensor.cuda, torch.Tensor.pin_memory):
            return args[0]
        if func is torch.device:
            return func(*args, **kwargs)
        return func(*_on_host(args), **{name: _host(value) for name, value in kwargs.items()})


def _on_host(values: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(_host(value) for value in values)


def _host(value: Any) -> Any:
    if not isinstance(value, torch.Tensor) and is_cuda(value):
        return torch.device("cpu")
    return value


def _is_on_host(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "cpu"


def _default_device(original: Callable[..., None]) -> Callable[..., None]:
    def set_default_device(device: object) -> None:
        original(_host(device))

    return set_default_device


def _module_cuda(module: torch.nn.Module, _device: object = None) -> torch.nn.Module:
    return module


def _module_to(original: Callable[..., Any]) -> Callable[..., Any]:
    # torch._C._nn._parse_to reads the arguments, which no mode sees.
    def to(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        on_host = {name: _host(value) for name, value in kwargs.items()}
        return original(module, *_on_host(args), **on_host)

    return to
