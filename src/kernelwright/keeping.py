"""Whether a module in memory keeps its kernels: only where they make it faster."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from kernelwright.bench.measurement import RESOLUTION, Measurement, Series, Speedup
from kernelwright.bench.statistics import Interval
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
    """Faster on the device or by the wall clock, and in neither known to be slower by more than two
    processes of the same code are apart."""
    intervals = (speedup.device, speedup.host)
    return any(it.low > 1 for it in intervals) and all(
        it.high >= 1 - RESOLUTION for it in intervals
    )


def is_contradictory(measured: Measurement) -> bool:
    """Whether the kernels are faster on the device and slower by the wall clock: so it is where the
    host takes its time, and where other processes have the cores."""
    timed = measured.candidate is not None and bool(measured.speedups)
    return timed and is_slower(measured) and measured.speedups[0].device.low > 1


def over_rounds(rounds: Sequence[Measurement]) -> Measurement:
    """One measurement of several that were taken in turns: medians of their times, and of the
    ratios by the wall clock with their spread. A difference within it is none."""
    known = [it for it in rounds if it.candidate is not None and it.speedups]
    last = known[-1]
    assert last.candidate is not None
    ratios = [it.speedups[0].host.value for it in known]
    spread = Interval(value=median(ratios), low=min(ratios), high=max(ratios))
    return replace(
        last,
        candidate=_middle([it.candidate for it in known if it.candidate is not None]),
        baselines=(_middle([it.baselines[0] for it in known]),),
        speedups=(replace(last.speedups[0], host=spread),),
    )


def _middle(series: Sequence[Series]) -> Series:
    return replace(
        series[-1],
        device_ms=median(it.device_ms for it in series),
        host_ms=median(it.host_ms for it in series),
        samples=sum(it.samples for it in series),
    )


def _times(series: Series) -> str:
    return f"{series.device_ms:.4g} ms on the device and {series.host_ms:.4g} ms by the wall clock"
