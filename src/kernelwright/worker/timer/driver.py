"""The few calls of the CUDA driver that timing needs, taken straight from libcuda.

They are looked up once, before anything strange is imported, and do not go through PyTorch: what a
candidate does to `torch.cuda.Event` or `torch.cuda.synchronize` changes nothing here. The context
is PyTorch's, current in this thread.
"""

import ctypes
from collections.abc import Sequence

import torch
from torch import Tensor

_IPC_BYTES = 64
_LAZY_PEER_ACCESS = 1
_PORTABLE_AND_MAPPED = 3
_AT_LEAST = 0
_PERSISTING_L2 = 6
"""CU_LIMIT_PERSISTING_L2_CACHE_SIZE."""
DEFAULT_STREAM = 0
_FLUSH_TIMES_L2 = 2.5


class DriverError(RuntimeError):
    """A call of the driver failed."""


class _IpcHandle(ctypes.Structure):
    _fields_ = [("reserved", ctypes.c_ubyte * _IPC_BYTES)]


class _Array:
    """Device memory as PyTorch takes it (the CUDA array interface of Numba's documentation)."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {
            "data": (address, False),
            "shape": (size,),
            "typestr": "|u1",
            "version": 2,
        }


class Driver:
    """libcuda in this process, on the device that PyTorch uses."""

    def __init__(self, device: torch.device) -> None:
        torch.cuda.init()  # type: ignore[no-untyped-call]
        torch.zeros(1, device=device)  # makes the context and leaves it current
        self._device = device
        self._library = ctypes.CDLL("libcuda.so.1")
        self._calls = {name: getattr(self._library, name) for name in _NAMES}

    @property
    def flush_bytes(self) -> int:
        """Bytes to write so that nothing of before is left in the L2."""
        l2_bytes = int(torch.cuda.get_device_properties(self._device).L2_cache_size)
        return int(l2_bytes * _FLUSH_TIMES_L2)

    def allocate(self, size: int) -> int:
        """Address of new device memory."""
        address = ctypes.c_uint64()
        self._do("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(size, 1)))
        return address.value

    def free(self, address: int) -> None:
        """Give memory of `allocate` back."""
        self._do("cuMemFree_v2", ctypes.c_uint64(address))

    def extent(self, address: int) -> tuple[int, int]:
        """Start and size of the allocation around an address."""
        base, size = ctypes.c_uint64(), ctypes.c_size_t()
        self._do(
            "cuMemGetAddressRange_v2",
            ctypes.byref(base),
            ctypes.byref(size),
            ctypes.c_uint64(address),
        )
        return base.value, size.value

    def share(self, address: int) -> tuple[str, int]:
        """A handle of the allocation for other processes, and how far in the address lies."""
        base, _ = self.extent(address)
        handle = _IpcHandle()
        self._do("cuIpcGetMemHandle", ctypes.byref(handle), ctypes.c_uint64(base))
        return bytes(handle.reserved).hex(), address - base

    def open(self, handle: str) -> int:
        """Address here of another process's allocation; DriverError if there is none."""
        raw = bytes.fromhex(handle)
        if len(raw) != _IPC_BYTES:
            raise DriverError("not a handle of shared memory")
        address = ctypes.c_uint64()
        self._do(
            "cuIpcOpenMemHandle_v2",
            ctypes.byref(address),
            _IpcHandle.from_buffer_copy(raw),
            ctypes.c_uint(_LAZY_PEER_ACCESS),
        )
        return address.value

    def close(self, address: int) -> None:
        """Undo `open`."""
        self._do("cuIpcCloseMemHandle", ctypes.c_uint64(address))

    def map_host(self, address: int, size: int) -> int:
        """The device's address of a piece of this process's memory, whole pages."""
        self._do(
            "cuMemHostRegister_v2",
            ctypes.c_void_p(address),
            ctypes.c_size_t(size),
            ctypes.c_uint(_PORTABLE_AND_MAPPED),
        )
        mapped = ctypes.c_uint64()
        self._do(
            "cuMemHostGetDevicePointer_v2",
            ctypes.byref(mapped),
            ctypes.c_void_p(address),
            ctypes.c_uint(0),
        )
        return mapped.value

    def unmap_host(self, address: int) -> None:
        """Undo `map_host`; else no other memory can be mapped that lies there later."""
        self._do("cuMemHostUnregister", ctypes.c_void_p(address))

    def wait_for_word(self, address: int, value: int) -> None:
        """Hold the default stream until the 32-bit word at `address` is at least `value`."""
        self._do(
            "cuStreamWaitValue32_v2",
            ctypes.c_void_p(DEFAULT_STREAM),
            ctypes.c_uint64(address),
            ctypes.c_uint32(value),
            ctypes.c_uint(_AT_LEAST),
        )

    def new_event(self) -> int:
        """A timing event."""
        event = ctypes.c_void_p()
        self._do("cuEventCreate", ctypes.byref(event), ctypes.c_uint(0))
        assert event.value is not None
        return event.value

    def record(self, event: int) -> None:
        """Record `event` in the default stream."""
        self._do("cuEventRecord", ctypes.c_void_p(event), ctypes.c_void_p(DEFAULT_STREAM))

    def milliseconds(self, start: int, end: int) -> float:
        """Time between two recorded events that have passed."""
        span = ctypes.c_float()
        self._do(
            "cuEventElapsedTime",
            ctypes.byref(span),
            ctypes.c_void_p(start),
            ctypes.c_void_p(end),
        )
        return span.value

    def synchronize(self) -> None:
        """Wait for every stream of this process."""
        self._do("cuCtxSynchronize")

    def fill(self, address: int, value: int, size: int) -> None:
        """Write `size` bytes in the default stream."""
        self._do(
            "cuMemsetD8Async",
            ctypes.c_uint64(address),
            ctypes.c_ubyte(value),
            ctypes.c_size_t(size),
            ctypes.c_void_p(DEFAULT_STREAM),
        )

    def copy(self, target: int, source: int, size: int) -> None:
        """Copy `size` bytes of device memory in the default stream."""
        self._do(
            "cuMemcpyDtoDAsync_v2",
            ctypes.c_uint64(target),
            ctypes.c_uint64(source),
            ctypes.c_size_t(size),
            ctypes.c_void_p(DEFAULT_STREAM),
        )

    def take_persisting_l2(self) -> int:
        """Take the part of the L2 back that survives a flush; bytes that were set aside for it."""
        size = ctypes.c_size_t()
        self._do("cuCtxGetLimit", ctypes.byref(size), ctypes.c_uint(_PERSISTING_L2))
        self._do("cuCtxSetLimit", ctypes.c_uint(_PERSISTING_L2), ctypes.c_size_t(0))
        self._do("cuCtxResetPersistingL2Cache")
        return size.value

    def bytes_at(self, address: int, size: int) -> Tensor:
        """Device memory as a flat uint8 tensor, which does not own it."""
        if size == 0:
            return torch.empty(0, dtype=torch.uint8, device=self._device)
        return torch.as_tensor(_Array(address, size), device=self._device)

    def _do(self, name: str, *arguments: object) -> None:
        code = self._calls[name](*arguments)
        if code != 0:
            raise DriverError(f"{name} failed with CUDA error {code}")


_NAMES: Sequence[str] = (
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemGetAddressRange_v2",
    "cuIpcGetMemHandle",
    "cuIpcOpenMemHandle_v2",
    "cuIpcCloseMemHandle",
    "cuMemHostRegister_v2",
    "cuMemHostUnregister",
    "cuMemHostGetDevicePointer_v2",
    "cuStreamWaitValue32_v2",
    "cuEventCreate",
    "cuEventRecord",
    "cuEventElapsedTime",
    "cuCtxSynchronize",
    "cuMemsetD8Async",
    "cuMemcpyDtoDAsync_v2",
    "cuCtxGetLimit",
    "cuCtxSetLimit",
    "cuCtxResetPersistingL2Cache",
)
