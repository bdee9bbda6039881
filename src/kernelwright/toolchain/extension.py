"""A candidate's own load_inline, made to build in our folder: never in the user's, never hanging.

    environment = prepare_extension_folder(candidate)
    subprocess.run([sys.executable, "-c", "import ...", candidate], env=environment)

A child process with this environment imports the candidate, whoever wrote it, and whatever
extensions it loads are built under the hash of the file. A lock file that a killed process left,
on which PyTorch would wait for ever, is removed first.
"""

import importlib.metadata
import platform
import socket
from pathlib import Path

from kernelwright import env
from kernelwright.errors import CompileError, KernelwrightError, NoCompilerError
from kernelwright.toolchain.cache import content_key, extensions_folder, locked, write_log
from kernelwright.toolchain.compilers import cuda_home, find_ninja, find_nvcc
from kernelwright.toolchain.messages import Message, first_error, locate

_BATON = "lock"
"""torch.utils.file_baton: a file of this name in the build folder says that somebody builds."""
_MISSING_TOOLS = {
    "Ninja is required": "PyTorch needs ninja to build extensions: pip install ninja.",
    "CUDA_HOME environment variable is not set": (
        "Install a PyTorch built for CUDA and the CUDA toolkit (KERNELWRIGHT_NVCC names its "
        "compiler), or build for the emulator: --target cpu."
    ),
}
"""What cpp_extension says where it has nothing to build with, and what to do."""


def prepare_extension_folder(candidate_path: Path) -> dict[str, str]:
    """The environment for a child process that imports the candidate.

    It is this process's own, with TORCH_EXTENSIONS_DIR, CUDA_HOME, PATH (ninja and nvcc found as
    `toolchain` finds them) and MAX_JOBS set.
    """
    return extension_environment(candidate_path.read_bytes())


def extension_environment(source: bytes) -> dict[str, str]:
    """Environment for a file with this text, wherever it is."""
    key = _key_of(source)
    folder = extensions_folder(key)
    with locked("extensions", key):
        _remove_stale_batons(folder)
    overrides = {"TORCH_EXTENSIONS_DIR": str(folder), "MAX_JOBS": str(env.usable_cores())}
    folders_first = []
    nvcc, ninja = find_nvcc(), find_ninja()
    home = cuda_home(nvcc) if nvcc else None
    if home is not None:
        overrides["CUDA_HOME"] = str(home)
        folders_first.append(str(home / "bin"))
    if ninja is not None:
        folders_first.append(str(ninja.path.parent))
    overrides["PATH"] = ":".join([*folders_first, *env.search_path()])
    return env.child_environment(overrides)


def is_being_built(candidate_path: Path) -> bool:
    """Whether a living process builds an extension of the candidate, for which others wait."""
    batons = set(extensions_folder(_key(candidate_path)).glob(f"*/{_BATON}"))
    return bool(batons) and not batons.isdisjoint(_open_files())


def build_error(output: str, candidate_path: Path) -> KernelwrightError:
    """The one error for what load_inline raised: `output` is the text of its RuntimeError.

    CompileError with the compiler's first message, the candidate's line where it can be told, and
    the log; NoCompilerError where there was nothing to compile with.
    """
    for said, advice in _MISSING_TOOLS.items():
        if said in output:
            return NoCompilerError(
                f"{candidate_path.name} cannot be built: {said}", next_step=advice
            )
    message = first_error(output)
    text = message.text if message else (output.strip().splitlines() or ["no output"])[0]
    return CompileError(
        f"{candidate_path.name} does not build: {text}",
        location=_location(message, candidate_path) or str(candidate_path),
        log_path=write_log("extension", _key(candidate_path), output),
    )


def _location(message: Message | None, candidate: Path) -> str | None:
    if message is None or message.file is None or message.line is None:
        return None
    generated = Path(message.file)
    ours = extensions_folder(_key(candidate)) in generated.parents
    text = generated.read_text(errors="replace") if ours and generated.is_file() else ""
    return locate(candidate, text, message.line) or f"{generated}:{message.line}"


def _key(candidate: Path) -> str:
    return _key_of(candidate.read_bytes())


def _key_of(source: bytes) -> str:
    """What the build depends on; the host among it, since locks of another host are not seen."""
    nvcc = find_nvcc()
    return content_key(
        source,
        importlib.metadata.version("torch"),
        platform.python_version(),
        nvcc.version if nvcc else "",
        socket.gethostname(),
    )


def _remove_stale_batons(folder: Path) -> None:
    """Remove lock files that no living process has open: PyTorch keeps its own open."""
    batons = {path: path.stat() for path in folder.glob(f"*/{_BATON}")}
    held = _open_files() if batons else set()
    for path, before in batons.items():
        # The same file as before the look: not one that another process has made meanwhile.
        if path not in held and path.exists() and path.stat().st_ctime_ns == before.st_ctime_ns:
            path.unlink(missing_ok=True)


def _open_files() -> set[Path]:
    """Every file that a process of ours on this machine has open."""
    found = set()
    for descriptor in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            found.add(descriptor.readlink())
        except OSError:
            continue  # Closed since, or of a process that is not ours.
    return found
