"""What works on this machine, what does not, and what to do: `kernelwright doctor`.

    for check in diagnose():
        print(check)

PyTorch, the driver and the compilers are asked in child processes with a time limit, so that one
that hangs or crashes is a line of the diagnosis and not its end.
"""

import json
import platform
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from kernelwright.toolchain import compilers
from kernelwright.toolchain.cache import cache_root, usage

_MIB = 1 << 20
_GIB = 1 << 30
_LOW_DISK_BYTES = 2 * _GIB
"""A suite of 250 problems and their tuning leaves about this much."""
_NO_DISK_BYTES = 200 * _MIB
_PROBE_SECONDS = 120.0
"""Importing torch takes 2 s; on a cold network disk, a minute."""

_NO_GPU_ADVICE = (
    "To time files, use a machine with an NVIDIA GPU and its driver; the emulator verifies without."
)


class Status(StrEnum):
    """How much of kernelwright works with what was found."""

    OK = "ok"
    WARN = "warn"
    """Some things will not work here; the rest does."""
    FAIL = "fail"
    """Nothing can be built or verified before this is put right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One line of the diagnosis."""

    name: str
    status: Status
    found: str
    """What is there."""
    advice: str = ""
    """What to do; empty where nothing need be done."""

    def __str__(self) -> str:
        arrow = f"\n      -> {self.advice}" if self.advice else ""
        return f"{self.status:4}  {self.name}: {self.found}{arrow}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Torch:
    """What a child process that imports torch says of it."""

    version: str
    cuda: str | None
    """CUDA version it was built for, None for a CPU build."""
    cuda_error: str
    """Why CUDA does not work, empty where it does."""
    devices: tuple[str, ...]
    """Name, compute capability and memory of each device."""
    oldest_capability: float | None
    """The lowest compute capability among them, "9.0" as 9.0."""


_TORCH_PROBE = """
import json, torch, warnings
warnings.simplefilter("ignore")
error, devices = "", []
try:
    if torch.version.cuda is not None:
        torch.cuda.init()
        torch.zeros(1, device="cuda").item()
        devices = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
except Exception as problem:
    error = str(problem).splitlines()[0]
print(json.dumps({
    "version": torch.__version__, "cuda": torch.version.cuda, "cuda_error": error,
    "devices": [f"{d.name} (sm_{d.major}{d.minor}, {d.total_memory >> 30} GiB)" for d in devices],
    "oldest_capability": min((d.major + d.minor / 10 for d in devices), default=None),
}))
"""

_CXX_PROBE = """#include <ucontext.h>
static constinit int value = 41;
int main() {
  ucontext_t context;
  return getcontext(&context) != 0 || ++value != 42;
}
"""
# The emulator has the compiler call it before every memory access of a kernel (its abi.h).
_CHECKED = ["-fsanitize=thread", "--param", "tsan-distinguish-volatile=1", "-c"]


def diagnose() -> tuple[Check, ...]:
    """All the checks, in the order in which a person would make them."""
    torch = _ask_torch()
    nvcc = compilers.find_nvcc()
    return (
        _python(),
        _torch(torch),
        _driver(torch if isinstance(torch, Torch) else None),
        _gpus(torch if isinstance(torch, Torch) else None),
        _nvcc(nvcc, torch if isinstance(torch, Torch) else None),
        _ninja(),
        _cxx(),
        _emulator(),
        _compute_sanitizer(),
        _cache(),
        _disk(),
    )


def worst(checks: tuple[Check, ...]) -> Status:
    """The status of the whole machine."""
    order = (Status.OK, Status.WARN, Status.FAIL)
    return max((check.status for check in checks), key=order.index, default=Status.OK)


def _python() -> Check:
    # An older Python does not get here: the package's metadata and syntax refuse it.
    found = f"{platform.python_version()} ({sys.executable})"
    return Check(name="Python", status=Status.OK, found=found)


def _ask_torch() -> Torch | str:
    """What torch says of itself, or why it cannot be asked."""
    answer = _run([sys.executable, "-c", _TORCH_PROBE])
    if isinstance(answer, str):
        return answer
    facts = json.loads(answer.stdout.splitlines()[-1])
    return Torch(**{**facts, "devices": tuple(facts["devices"])})


def _torch(torch: Torch | str) -> Check:
    name = "PyTorch"
    match torch:
        case str(reason):
            advice = "Install it: pip install torch (2.6 or newer)."
            return Check(name=name, status=Status.FAIL, found=reason, advice=advice)
        case Torch(cuda=None):
            found = f"{torch.version}, built for the CPU"
            return Check(name=name, status=Status.OK, found=found)
        case _:
            found = f"{torch.version}, built for CUDA {torch.cuda}"
            return Check(name=name, status=Status.OK, found=found)


def _driver(torch: Torch | None) -> Check:
    name = "NVIDIA driver"
    answer = _run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"])
    if isinstance(answer, str):
        return Check(name=name, status=Status.WARN, found=answer, advice=_NO_GPU_ADVICE)
    version = answer.stdout.split()[0] if answer.stdout.split() else "unknown version"
    if torch is not None and torch.cuda is not None and torch.cuda_error:
        found = f"{version}, but PyTorch cannot use it: {torch.cuda_error}"
        advice = f"Install a driver for CUDA {torch.cuda}, or a PyTorch built for this driver."
        return Check(name=name, status=Status.WARN, found=found, advice=advice)
    return Check(name=name, status=Status.OK, found=version)


def _gpus(torch: Torch | None) -> Check:
    name = "GPU"
    if torch is None or not torch.devices:
        reason = "none"
        advice = _NO_GPU_ADVICE
        if torch is not None and torch.cuda is None and shutil.which("nvidia-smi"):
            reason, advice = "this PyTorch has no CUDA", "Install a PyTorch that is built for CUDA."
        return Check(name=name, status=Status.WARN, found=reason, advice=advice)
    found = ", ".join(torch.devices)
    if torch.oldest_capability is not None and torch.oldest_capability < 8.0:
        advice = "Use a card of compute capability 8.0 or newer: matrix kernels need its cp.async."
        return Check(name=name, status=Status.WARN, found=found, advice=advice)
    return Check(name=name, status=Status.OK, found=found)


def _nvcc(nvcc: compilers.Tool | None, torch: Torch | None) -> Check:
    name = "CUDA compiler"
    wanted = torch.cuda if torch is not None else None
    if nvcc is None:
        advice = "Install the CUDA toolkit" + (f" {wanted}" if wanted else "")
        advice += ", or set KERNELWRIGHT_NVCC to its nvcc; the emulator needs none."
        return Check(name=name, status=Status.WARN, found="none", advice=advice)
    major, minor = nvcc.version.split(".")[:2]
    if wanted is None or wanted == f"{major}.{minor}":
        return Check(name=name, status=Status.OK, found=str(nvcc))
    if wanted.split(".")[0] == major:
        # PyTorch accepts another minor version: CUDA promises compatibility within a major one.
        return Check(name=name, status=Status.OK, found=f"{nvcc}; PyTorch has CUDA {wanted}")
    return Check(
        name=name,
        status=Status.WARN,
        found=f"{nvcc}, but PyTorch has CUDA {wanted}: PyTorch refuses to build with it",
        advice=f"Install the CUDA toolkit {wanted}, or set KERNELWRIGHT_NVCC to its nvcc.",
    )


def _ninja() -> Check:
    tool = compilers.find_ninja()
    if tool is not None:
        return Check(name="ninja", status=Status.OK, found=str(tool))
    advice = "Install it: pip install ninja. PyTorch builds extensions with it."
    return Check(name="ninja", status=Status.WARN, found="none", advice=advice)


def _cxx() -> Check:
    tool = compilers.find_cxx()
    if tool is not None:
        return Check(name="C++ compiler", status=Status.OK, found=str(tool))
    advice = "Install one (Debian: apt install g++), or set KERNELWRIGHT_CXX to one."
    return Check(name="C++ compiler", status=Status.FAIL, found="none", advice=advice)


def _emulator() -> Check:
    """Compile and run a few lines with what the emulator asks of the host's compiler."""
    name = "emulator"
    advice = "Install g++ 11 or newer with its headers, or set KERNELWRIGHT_CXX to one."
    tool = compilers.find_cxx()
    if tool is None:
        return Check(name=name, status=Status.FAIL, found="no C++ compiler", advice=advice)
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder, "probe.cpp"), Path(folder, "probe")
        source.write_text(_CXX_PROBE)
        compiler = [str(tool.path), "-std=c++20", str(source), "-o"]
        for command in ([*compiler, f"{program}.o", *_CHECKED], [*compiler, program], [program]):
            answer = _run([str(word) for word in command])
            if isinstance(answer, str):
                return Check(name=name, status=Status.FAIL, found=answer, advice=advice)
    return Check(name=name, status=Status.OK, found=f"programs of {tool.name} run")


def _compute_sanitizer() -> Check:
    name = "compute-sanitizer"
    tool = compilers.find_compute_sanitizer()
    if tool is not None:
        return Check(name=name, status=Status.OK, found=str(tool))
    advice = "It comes with the CUDA toolkit; on a GPU, judge finds reads out of bounds with it."
    return Check(name=name, status=Status.WARN, found="none", advice=advice)


def _cache() -> Check:
    root = cache_root()
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=root):
            pass
    except OSError as error:
        advice = "Make the folder writable, or set KERNELWRIGHT_CACHE_DIR to another."
        found = f"{root} cannot be written: {error.strerror}"
        return Check(name="cache", status=Status.FAIL, found=found, advice=advice)
    used = usage()
    found = f"{root}, {used.entries} entries, {used.bytes / _MIB:.0f} MiB"
    return Check(name="cache", status=Status.OK, found=found)


def _disk() -> Check:
    folder = next(path for path in (cache_root(), *cache_root().parents) if path.exists())
    free = shutil.disk_usage(folder).free
    found = f"{free / _GIB:.1f} GiB free for {folder}"
    status = Status.FAIL if free < _NO_DISK_BYTES else Status.WARN
    if free >= _LOW_DISK_BYTES:
        return Check(name="disk", status=Status.OK, found=found)
    advice = "Free some space, or set KERNELWRIGHT_CACHE_DIR to a larger disk."
    return Check(name="disk", status=status, found=found, advice=advice)


def _run(command: list[str]) -> subprocess.CompletedProcess[str] | str:
    """The finished process, or the reason why there is no answer."""
    program = Path(command[0]).name
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PROBE_SECONDS,
            check=True,
        )
    except FileNotFoundError:
        return f"no {program}"
    except subprocess.TimeoutExpired:
        return f"{program} did not answer in {_PROBE_SECONDS:.0f} s"
    except subprocess.CalledProcessError as error:
        said = (error.stderr or error.stdout).strip().splitlines()
        return said[-1] if said else f"{program} ended with status {error.returncode}"
    except OSError as error:
        return f"{program} does not start: {error.strerror}"
