"""Libraries of ours that stand between a process and CUDA, compiled by the host's compiler."""

import subprocess
from pathlib import Path

from kernelwright.errors import CompileError
from kernelwright.toolchain.cache import cached_build, content_key
from kernelwright.toolchain.compilers import require_cxx

_HEADERS = Path(__file__).with_name("launches")
_FLAGS = ("-std=c++17", "-O2", "-shared", "-fPIC", "-fvisibility=hidden")


def library_of(source: Path) -> Path:
    """The library of one source file, compiled if it is not in the cache.

    Raises NoCompilerError without a compiler, CompileError if it does not compile.
    """
    compiler = require_cxx()
    name = f"lib{source.stem}.so"
    texts = [source, *sorted(_HEADERS.glob("*.h"))]

    def build(folder: Path) -> None:
        command = [str(compiler.path), *_FLAGS, f"-I{_HEADERS}", str(source), "-o"]
        command += [str(folder / name), "-ldl"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise CompileError(f"{source.name} does not compile: {done.stderr.strip()}")

    content = b"".join(path.read_bytes() for path in texts)
    key = content_key(content, " ".join(_FLAGS), compiler.version)
    return cached_build(source.stem, key, build) / name
