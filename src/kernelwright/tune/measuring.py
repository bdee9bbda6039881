"""Time one compiled variant of a kernel on the GPU, on random operands of the captured sizes."""

import ctypes
from pathlib import Path

import torch

from kernelwright.bench.timing import Stopwatch
from kernelwright.codegen.arrange import Arrangement
from kernelwright.codegen.families import writer_of
from kernelwright.codegen.python_text import TORCH_DTYPE
from kernelwright.ir.plan import Kernel, sizes_used
from kernelwright.ir.types import DType, ScalarType, TensorType, ValueType
from kernelwright.program.abi import Argument, pack
from kernelwright.tune.tuner import Failure, Timing, Variant

_WARM_UP_SECONDS = 0.05
_SAMPLES = 30


class KernelTimer:
    """Holds a kernel's operands on `device`; call it with a variant and its compiled library."""

    def __init__(self, kernel: Kernel, device: torch.device) -> None:
        self._function = f"launch_{kernel.name}"
        self._workspace_function = f"workspace_{kernel.name}"
        self._kernel = kernel
        self._device = device

    def prepare(self) -> None:
        """Make the operands; first of all."""
        self._stopwatch = Stopwatch(self._device)
        self._operands = _operands(self._kernel, self._device)

    def __call__(self, variant: Variant, library: Path) -> Timing | Failure:
        """The median of device spans with a flushed L2, or why the variant does not run."""
        entries = ctypes.CDLL(str(library))
        launch = getattr(entries, self._function)
        workspace = self._workspace(entries)
        words = self._words(workspace.data_ptr())
        if code := launch(words):
            return Failure(reason=f"CUDA error {code}")
        self._stopwatch.warm_up(lambda _: launch(words), _WARM_UP_SECONDS)
        times = sorted(self._stopwatch.sample(lambda _: launch(words), _SAMPLES).device_ms)
        return Timing(seconds=times[len(times) // 2] / 1e3, samples=len(times))

    def _workspace(self, entries: ctypes.CDLL) -> torch.Tensor:
        """The memory that a launch needs for itself; none for variants that do not ask."""
        size = 0
        if hasattr(entries, self._workspace_function):
            ask = getattr(entries, self._workspace_function)
            ask.restype = ctypes.c_int64
            size = ask(self._words(0))
        return torch.empty(size, dtype=torch.uint8, device=self._device)

    def _words(self, workspace: int) -> bytes:
        stream = torch.cuda.current_stream(self._device).cuda_stream
        device = self._device.index or 0
        return pack(self._operands, device=device, stream=stream, workspace=workspace)


def take_device(device: torch.device) -> None:
    """Use a device, which may be new to this process: that takes a second, which compilers can
    have."""
    torch.zeros(1, device=device)


def _operands(kernel: Kernel, device: torch.device) -> list[Argument]:
    """Results and inputs in the launcher's order; values from [0, 1), or small integers."""
    outputs = [
        torch.empty([dim.hint for dim in kind.shape], dtype=_torch_dtype(kind.dtype), device=device)
        for kind in kernel.outputs
    ]
    inputs = [random_operand(kind, device) for kind in kernel.inputs]
    for at, count in writer_of(kernel).picks(kernel).items():
        inputs[at] = _places(kernel.inputs[at], count, device)
    sizes = [dim.hint for dim in sizes_used(kernel)]
    arranged = writer_of(kernel).arrange(kernel)
    results = [_viewed(it, how) for it, how in zip(outputs, arranged.results, strict=True)]
    measured = [1, 1] if writer_of(kernel).only_at(kernel) is not None else []
    operands = (_viewed(inputs[at], how) for at, how in arranged.inputs)
    return [*results, *operands, *sizes, *measured]


def _places(index: ValueType, count: int, device: torch.device) -> torch.Tensor:
    """Integers that are there to be picked: any others end the process."""
    assert isinstance(index, TensorType)
    shape, dtype = [size.hint for size in index.shape], _torch_dtype(index.dtype)
    return torch.randint(max(count, 1), shape, dtype=dtype, device=device)


def _viewed(argument: Argument, how: Arrangement | None) -> Argument:
    if how is None or not isinstance(argument, torch.Tensor):
        return argument
    viewed: torch.Tensor = how.apply(argument)
    return viewed


def random_operand(kind: object, device: torch.device) -> Argument:
    """An operand of a type at its captured sizes: values from [0, 1), or small integers."""
    match kind:
        case TensorType(dtype, dims):
            shape = [dim.hint for dim in dims]
            dense = torch.rand(shape, device=device)
            return (dense if dtype.is_float else dense * 2).to(_torch_dtype(dtype))
        case ScalarType(DType.F64):
            return 1.5
    return 1


def _torch_dtype(dtype: DType) -> torch.dtype:
    found = getattr(torch, TORCH_DTYPE[dtype].removeprefix("torch."))
    assert isinstance(found, torch.dtype)
    return found
