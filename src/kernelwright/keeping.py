"""Whether a module in memory keeps its kernels: only where they make it faster."""

from dataclasses import replace

from kernelwright.bench.measurement import Measurement, Series, Speedup
from kernelwright.module import OptimizedModule


def keep_if_faster(module: OptimizedModule, measured: Measurement) -> OptimizedModule:
    """The module with what `measured` says of it; kernels that are not faster are set aside.

    Without times the kernels stay, and the reason is noted.
    """
    kernels = module.kernelwright
    if measured.candidate is None or not measured.speedups:
        reason = measured.note or "not measured: the model's own forward could not be timed"
        module.kernelwright = replace(kernels, times=reason)
        return module
    (own,), (speedup,) = measured.baselines, measured.speedups
    times = f"{_times(measured.candidate)} with kernels, {_times(own)} without them"
    module.kernelwright = replace(
        kernels, times=times, set_aside="" if is_faster(speedup) else f"not faster: {times}"
    )
    return module


def is_slower(measured: Measurement) -> bool:
    """Whether there are times, and the kernels are not faster by them."""
    timed = measured.candidate is not None and bool(measured.speedups)
    return timed and not is_faster(measured.speedups[0])


def is_faster(speedup: Speedup) -> bool:
    """Faster on the device or by the wall clock, and in neither known to be slower."""
    intervals = (speedup.device, speedup.host)
    return any(it.low > 1 for it in intervals) and all(it.high >= 1 for it in intervals)


def _times(series: Series) -> str:
    return f"{series.device_ms:.4g} ms on the device and {series.host_ms:.4g} ms by the wall clock"
