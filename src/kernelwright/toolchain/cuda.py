"""CUDA C++ without a torch header, compiled by nvcc: to a cubin to look at, to a library to tune.

    report = compile_check(source)  # registers, spills, shared memory; needs no GPU
    library = compile_library(source)  # ctypes.CDLL(library).scale_launch(words)
    library = compile_together(units, "name")  # Of texts that are compiled side by side.

Compiling never launches anything, and its results lie in the cache: what was compiled once, by
whatever process, is not compiled again.
"""

import subprocess
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path

from kernelwright import env
from kernelwright.errors import CompileError, KernelwrightError
from kernelwright.toolchain.cache import cached_build, content_key, write_log
from kernelwright.toolchain.compilers import Tool, require_nvcc
from kernelwright.toolchain.messages import first_error
from kernelwright.toolchain.ptxas import CubinReport, read_remarks, read_report

_SOURCE = "kernels.cu"
_CUBIN = "kernels.cubin"
_LIBRARY = "kernels.so"
_OBJECT = "kernels.o"
_REPORT = "ptxas.txt"

# What torch.utils.cpp_extension gives nvcc (COMMON_NVCC_FLAGS), so that a source that compiles here
# compiles in load_inline; and the oldest C++ that any supported torch asks for. The level is the
# host's alone: launchers run as fast as with -O3, which takes g++ half as long again.
_FLAGS = (
    "-O2",
    "-std=c++17",
    "-D__CUDA_NO_HALF_OPERATORS__",
    "-D__CUDA_NO_HALF_CONVERSIONS__",
    "-D__CUDA_NO_BFLOAT16_CONVERSIONS__",
    "-D__CUDA_NO_HALF2_OPERATORS__",
    "--expt-relaxed-constexpr",
)


def compile_check(cuda_source: str, arch: str = "sm_90a") -> CubinReport:
    """Compile to machine code of `arch` and say what each kernel takes.

    Raises NoCompilerError without nvcc; CompileError with the first message, the line, and the log.
    """
    flags = (*_FLAGS, _gencode(arch), "-Xptxas=-v", "-cubin")
    folder = _compile("cubin", cuda_source, flags, _CUBIN)
    report = (folder / _REPORT).read_text()
    return CubinReport(
        path=folder / _CUBIN, arch=arch, kernels=read_report(report), remarks=read_remarks(report)
    )


def compile_library(cuda_source: str, arch: str = "sm_90a") -> Path:
    """Compile to a shared library for ctypes, with its own copy of the CUDA run-time library.

    The text is not compiled again for `compile_together`. Raises NoCompilerError without nvcc;
    CompileError with the first message, the line, and the log.
    """
    return compile_together([cuda_source], Path(_LIBRARY).stem, arch)


def compile_libraries(
    cuda_sources: Sequence[str], timeout: float, arch: str = "sm_90a"
) -> Generator[tuple[int, Path | KernelwrightError], None, None]:
    """Compile many, as many at a time as there are cores; yields them as they become ready.

    Yields the index in `cuda_sources` and the library, or why there is none. Ends early after
    `timeout` seconds, or when the caller stops asking: what has not started then never starts.
    """
    yield from _in_parallel(compile_library, cuda_sources, timeout, arch)


def _in_parallel(
    compile_one: Callable[[str, str], Path],
    cuda_sources: Sequence[str],
    timeout: float | None,
    arch: str,
) -> Generator[tuple[int, Path | KernelwrightError], None, None]:
    pool = ThreadPoolExecutor(max_workers=env.usable_cores(), thread_name_prefix="nvcc")
    try:
        indices: dict[Future[Path], int] = {
            pool.submit(compile_one, source, arch): index
            for index, source in enumerate(cuda_sources)
        }
        for future in as_completed(indices, timeout=timeout):
            error = future.exception()
            if error is not None and not isinstance(error, KernelwrightError):
                raise error
            yield indices[future], error or future.result()
    except TimeoutError:
        return
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


_LINKED = "-Bsymbolic,--exclude-libs,ALL,-z,defs"
"""Nothing is looked up outside, and nothing of the CUDA run-time library is seen from there."""

OnUnit = Callable[[int, int], None]
"""Hears how many texts are compiled, and of how many."""


def compile_together(
    units: Sequence[str],
    name: str,
    arch: str = "sm_90a",
    on_unit: OnUnit = lambda done, total: None,
) -> Path:
    """Compile texts side by side and link them into the shared library `name`.so.

    A text that was compiled before, for whatever library, is not compiled again. Raises what
    `compile_library` raises.
    """
    nvcc, texts = require_nvcc(), tuple(dict.fromkeys(units))
    key = content_key("linked", nvcc.version, name, arch, *texts)

    def build(folder: Path) -> None:
        objects: dict[str, Path] = {}
        for text, made in _objects(texts, arch):
            if isinstance(made, KernelwrightError):
                raise made
            objects[text] = made
            on_unit(len(objects), len(texts))
        files = [str(objects[text]) for text in texts]
        flags = [
            _gencode(arch),
            "-shared",
            "-Xcompiler=-fPIC",
            f"-Xlinker={_LINKED}",
        ]
        _run(nvcc, [*flags, *files, "-o", f"{name}.so"], folder, "linked", key)

    return cached_build("linked", key, build) / f"{name}.so"


@contextmanager
def compiled_meanwhile(
    make: Callable[[], Iterable[str]], arch: str = "sm_90a"
) -> Iterator[Future[tuple[str, ...]]]:
    """Inside, the texts of `make` are compiled in the background, for a later `compile_together`;
    the texts themselves, when all are made.

    Each begins as soon as it is made. Those that do not compile are left for it to tell. At the end
    no other ones begin.
    """

    def begin(text: str) -> str:
        pool.submit(_compile_object, text, arch)
        return text

    pool = ThreadPoolExecutor(max_workers=env.usable_cores(), thread_name_prefix="nvcc ahead")
    maker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="texts ahead")
    texts = maker.submit(lambda: tuple(map(begin, make())))
    try:
        yield texts
    finally:
        maker.shutdown(wait=False, cancel_futures=True)
        pool.shutdown(wait=False, cancel_futures=True)


def _objects(texts: Sequence[str], arch: str) -> Iterator[tuple[str, Path | KernelwrightError]]:
    if len(texts) == 1:
        yield texts[0], _compile_object(texts[0], arch)
        return
    ordered = longest_first(texts)
    for index, made in _in_parallel(_compile_object, ordered, None, arch):
        yield ordered[index], made


def longest_first(texts: Iterable[str]) -> list[str]:
    """Texts in the order in which to begin them on several cores: what takes long is not the last.

    Seconds of nvcc follow the length of our texts closely enough (docs/measured/toolchain.md).
    """
    return sorted(texts, key=len, reverse=True)


def _compile_object(cuda_source: str, arch: str) -> Path:
    flags = (*_FLAGS, _gencode(arch), "-c", "-Xcompiler=-fPIC")
    return _compile("object", cuda_source, flags, _OBJECT) / _OBJECT


def _gencode(arch: str) -> str:
    return f"-gencode=arch={arch.replace('sm_', 'compute_')},code={arch}"


def _compile(kind: str, source: str, flags: Sequence[str], product: str) -> Path:
    nvcc = require_nvcc()
    key = content_key(kind, source, nvcc.version, *flags)

    def build(folder: Path) -> None:
        (folder / _SOURCE).write_text(source)
        output = _run(nvcc, [*flags, _SOURCE, "-o", product], folder, kind, key)
        (folder / _REPORT).write_text(output)

    return cached_build(kind, key, build)


def _run(nvcc: Tool, arguments: Sequence[str], folder: Path, kind: str, key: str) -> str:
    """Run nvcc in `folder`; returns what it printed."""
    command = [str(nvcc.path), *arguments]
    done = subprocess.run(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    output = done.stdout.decode(errors="replace")
    if done.returncode != 0:
        text = folder / _SOURCE
        source = text.read_text() if text.exists() else ""  # The linker has none.
        raise _compile_error(source, " ".join(command), output, done.returncode, kind, key)
    return output


def _compile_error(
    source: str, command: str, output: str, status: int, kind: str, key: str
) -> CompileError:
    """The error for a user, with the source kept beside the log so that its line can be opened."""
    message = first_error(output)
    log = write_log(kind, key, f"{command}\nexit status {status}\n\n{output}")
    kept = log.with_suffix(".cu")
    kept.write_text(source)
    line = f":{message.line}" if message and message.line and message.file == _SOURCE else ""
    text = message.text if message else f"exit status {status}"
    return CompileError(f"nvcc: {text}", location=f"{kept}{line}", log_path=log)
