"""Where compilers are looked for, and what counts as one; the tools are small scripts."""

from pathlib import Path

import pytest

from kernelwright.errors import NoCompilerError
from kernelwright.toolchain.compilers import (
    cuda_home,
    find_compute_sanitizer,
    find_cxx,
    find_ninja,
    find_nvcc,
    require_cxx,
    require_nvcc,
)

_NVCC_SAYS = """nvcc: NVIDIA (R) Cuda compiler driver
Copyright (c) 2005-2025 NVIDIA Corporation
Built on Wed_Aug_20_01:58:59_PM_PDT_2025
Cuda compilation tools, release {minor}, V{version}
"""


def _script(path: Path, says: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{says}\nEND\n")
    path.chmod(0o755)
    return path


def _toolkit(home: Path, version: str) -> Path:
    """A CUDA install whose nvcc, which is returned, says its version and its home."""
    (home / "include").mkdir(parents=True)
    (home / "include" / "cuda_runtime.h").touch()
    says = _NVCC_SAYS.format(minor=version.rpartition(".")[0], version=version)
    return _script(home / "bin" / "nvcc", f"{says}#$ TOP={home}/bin/..")


@pytest.fixture(autouse=True)
def _bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No tool on PATH but those that the shell needs, and nothing named."""
    for name in ("KERNELWRIGHT_NVCC", "KERNELWRIGHT_CXX", "CUDA_HOME", "CUDA_PATH", "CXX"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "cat").symlink_to("/bin/cat")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))


def test_nvcc_named_wins_over_cuda_home_over_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_path = _toolkit(tmp_path / "a", "12.4.131")
    monkeypatch.setenv("PATH", f"{on_path.parent}:{tmp_path / 'bin'}")
    found = require_nvcc()
    assert (found.path, found.version, found.origin) == (on_path, "12.4.131", "PATH")

    _toolkit(tmp_path / "b", "13.0.88")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "b"))
    found = require_nvcc()
    assert (found.version, found.origin) == ("13.0.88", "CUDA_HOME")
    assert cuda_home(found) == tmp_path / "b"

    named = _toolkit(tmp_path / "c", "12.9.1")
    monkeypatch.setenv("KERNELWRIGHT_NVCC", str(named))
    found = require_nvcc()
    assert (found.version, found.origin) == ("12.9.1", "KERNELWRIGHT_NVCC")


def test_nvcc_of_pips_wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvcc = _toolkit(tmp_path / "site" / "nvidia" / "cu13", "13.1.5")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    places = [place for place in _places_after_path() if place[0] == "pip"]
    assert places == [("pip", nvcc)]


def _places_after_path() -> list[tuple[str, Path]]:
    from kernelwright.toolchain.compilers import _nvcc_places

    return list(_nvcc_places())


def test_an_nvcc_without_headers_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = _toolkit(tmp_path / "good", "13.0.88")
    _toolkit(tmp_path / "bare", "13.2.1")
    (tmp_path / "bare" / "include" / "cuda_runtime.h").unlink()
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "bare"))
    monkeypatch.setenv("PATH", f"{good.parent}:{tmp_path / 'bin'}")
    assert require_nvcc().path == good


def test_a_wrongly_named_compiler_is_an_error_not_a_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _script(tmp_path / "bin" / "g++", "g++ (Debian 12.2.0-14+deb12u1) 12.2.0")
    monkeypatch.setenv("KERNELWRIGHT_NVCC", "/no/such/nvcc")
    with pytest.raises(NoCompilerError, match="KERNELWRIGHT_NVCC names /no/such/nvcc"):
        require_nvcc()
    monkeypatch.setenv("KERNELWRIGHT_CXX", "/no/such/g++")
    with pytest.raises(NoCompilerError, match=r"KERNELWRIGHT_CXX names /no/such/g\+\+"):
        require_cxx()


@pytest.mark.parametrize(
    ("name", "says", "version"),
    [
        ("g++", "g++ (Debian 12.2.0-14+deb12u1) 12.2.0\nCopyright (C) 2022 FSF, Inc.", "12.2.0"),
        ("clang++", "Debian clang version 14.0.6\nTarget: x86_64-pc-linux-gnu", "14.0.6"),
        ("c++", "c++ (GCC) 15.0.1 20250101 (experimental)", "15.0.1"),
    ],
)
def test_host_compilers(tmp_path: Path, name: str, says: str, version: str) -> None:
    path = _script(tmp_path / "bin" / name, says)
    found = require_cxx()
    assert (found.name, found.path, found.version) == (name, path, version)


def test_cxx_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _script(tmp_path / "bin" / "g++", "g++ 12.2.0")
    _script(tmp_path / "bin" / "g++-14", "g++-14 14.1.0")
    monkeypatch.setenv("CXX", "g++-14")
    found = require_cxx()
    assert (found.path, found.origin) == (tmp_path / "bin" / "g++-14", "CXX")


def test_no_compilers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert find_cxx() is None
    with pytest.raises(NoCompilerError, match="no C\\+\\+ compiler") as raised:
        require_cxx()
    assert "apt install g++" in raised.value.next_step


def test_a_program_that_fails_is_not_a_tool(tmp_path: Path) -> None:
    broken = _script(tmp_path / "bin" / "g++", "g++ 12.2.0")
    broken.write_text(broken.read_text() + "exit 1\n")
    _script(tmp_path / "bin" / "clang++", "clang version 14.0.6")
    found = find_cxx()
    assert found is not None and found.name == "clang++"


def test_ninja_on_path_or_beside_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", str(tmp_path / "venv" / "python"))
    assert find_ninja() is None
    _script(tmp_path / "venv" / "ninja", "1.13.2.git.kitware.jobserver-pipe-1")
    found = find_ninja()
    assert found is not None and (found.version, found.origin) == ("1.13.2", "Python")
    _script(tmp_path / "bin" / "ninja", "1.11.1")
    found = find_ninja()
    assert found is not None and found.origin == "PATH"


def test_compute_sanitizer_beside_nvcc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "cuda"
    _toolkit(home, "13.0.88")
    monkeypatch.setenv("CUDA_HOME", str(home))
    assert find_compute_sanitizer() is None
    path = _script(home / "compute-sanitizer" / "compute-sanitizer", "Version 2025.3.1.0 (build 1)")
    found = find_compute_sanitizer()
    assert found is not None and found.path == path


def test_no_nvcc_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernelwright.toolchain.compilers._nvcc_places", lambda: iter(()))
    assert find_nvcc() is None
    with pytest.raises(NoCompilerError, match="no CUDA compiler"):
        require_nvcc()
