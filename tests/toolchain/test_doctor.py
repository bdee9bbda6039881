"""The doctor on machines that are ill in known ways, and on this one."""

import json
from pathlib import Path

import pytest

from kernelwright.toolchain import doctor
from kernelwright.toolchain.compilers import Tool
from kernelwright.toolchain.doctor import Check, Status, diagnose, worst

_NVCC = Tool(name="nvcc", path=Path("/cuda/bin/nvcc"), version="13.0.88", origin="PATH")


def _torch(
    cuda: str | None = "13.0",
    devices: tuple[str, ...] = ("NVIDIA H200 (sm_90, 139 GiB)",),
    capability: float | None = 9.0,
    error: str = "",
) -> doctor.Torch:
    return doctor.Torch(
        version="2.11.0",
        cuda=cuda,
        cuda_error=error,
        devices=devices,
        oldest_capability=capability,
    )


_NO_GPU = _torch(devices=(), capability=None, error="No CUDA GPUs are available")
_CPU_BUILD = _torch(cuda=None, devices=(), capability=None)


def test_this_machine() -> None:
    checks = diagnose()
    assert len({check.name for check in checks}) == len(checks) >= 10
    for check in checks:
        assert check.found
        assert bool(check.advice) == (check.status != Status.OK), check
    status = {check.name: check.status for check in checks}
    # These tests run, so these must work; with them the emulator does.
    assert status["Python"] == status["PyTorch"] == status["cache"] == Status.OK
    assert status["C++ compiler"] == status["emulator"]


@pytest.mark.gpu
def test_this_machines_gpu() -> None:
    import torch

    (gpu,) = [check for check in diagnose() if check.name == "GPU"]
    assert gpu.status == Status.OK
    assert torch.cuda.get_device_name() in gpu.found


def test_torch_missing() -> None:
    check = doctor._torch("ModuleNotFoundError: No module named 'torch'")
    assert (check.status, "pip install torch" in check.advice) == (Status.FAIL, True)


@pytest.mark.parametrize(
    ("torch", "words"), [(_torch(), "built for CUDA 13.0"), (_CPU_BUILD, "built for the CPU")]
)
def test_torch_builds(torch: doctor.Torch, words: str) -> None:
    check = doctor._torch(torch)
    assert (check.status, words in check.found) == (Status.OK, True)


@pytest.mark.parametrize(
    ("torch", "status", "words"),
    [
        (_torch(), Status.OK, "H200"),
        (_NO_GPU, Status.WARN, "none"),
        (None, Status.WARN, "none"),
        (_torch(devices=("Tesla T4 (sm_75, 15 GiB)",), capability=7.5), Status.WARN, "T4"),
    ],
)
def test_gpus(torch: doctor.Torch | None, status: Status, words: str) -> None:
    check = doctor._gpus(torch)
    assert (check.status, words in check.found) == (status, True)


@pytest.mark.parametrize(
    ("nvcc", "torch", "status"),
    [
        (_NVCC, _torch(), Status.OK),
        (_NVCC, _torch(cuda="13.1"), Status.OK),  # Same major version: PyTorch takes it.
        (_NVCC, _torch(cuda="12.8"), Status.WARN),
        (_NVCC, _CPU_BUILD, Status.OK),
        (None, _torch(), Status.WARN),
        (None, _CPU_BUILD, Status.WARN),
    ],
)
def test_nvcc_and_torch(nvcc: Tool | None, torch: doctor.Torch, status: Status) -> None:
    check = doctor._nvcc(nvcc, torch)
    assert check.status == status
    if status == Status.WARN and torch.cuda:
        assert f"toolkit {torch.cuda}" in check.advice


def _on_path(folder: Path, name: str, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_driver_that_torch_cannot_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _on_path(tmp_path / "bin", "nvidia-smi", "echo 550.54", monkeypatch)
    assert doctor._driver(_torch()).found == "550.54"
    check = doctor._driver(_torch(error="The NVIDIA driver on your system is too old"))
    assert (check.status, "too old" in check.found) == (Status.WARN, True)
    assert doctor._driver(_CPU_BUILD).status == Status.OK
    check = doctor._gpus(_CPU_BUILD)
    assert (check.status, check.found) == (Status.WARN, "this PyTorch has no CUDA")


def test_driver_that_fails_or_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _on_path(tmp_path / "bin", "nvidia-smi", "echo 'driver is not loaded' >&2; exit 9", monkeypatch)
    check = doctor._driver(_CPU_BUILD)
    assert (check.status, check.found) == (Status.WARN, "driver is not loaded")
    monkeypatch.setenv("PATH", "/nonexistent")
    assert doctor._driver(_CPU_BUILD).found == "no nvidia-smi"


def test_a_tool_that_hangs_is_a_line_not_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _on_path(tmp_path / "bin", "nvidia-smi", "exec sleep 60", monkeypatch)
    monkeypatch.setattr(doctor, "_PROBE_SECONDS", 0.1)
    assert "did not answer" in doctor._driver(_CPU_BUILD).found


def test_compiler_that_makes_nothing_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = 'test "$1" = --version && echo "g++ 12.2.0" && exit; echo "no headers" >&2; exit 1'
    _on_path(tmp_path / "bin", "g++", script, monkeypatch)
    monkeypatch.delenv("CXX", raising=False)
    assert doctor._cxx().status == Status.OK
    check = doctor._emulator()
    assert (check.status, check.found) == (Status.FAIL, "no headers")


def test_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELWRIGHT_CXX", "/no/such/g++")
    assert doctor._cxx().status == doctor._emulator().status == Status.FAIL


def test_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("KERNELWRIGHT_CACHE_DIR", str(tmp_path / "file" / "cache"))
    check = doctor._cache()
    assert (check.status, "cannot be written" in check.found) == (Status.FAIL, True)


@pytest.mark.parametrize(
    ("free", "status"), [(1 << 40, Status.OK), (1 << 30, Status.WARN), (1 << 20, Status.FAIL)]
)
def test_disk(monkeypatch: pytest.MonkeyPatch, free: int, status: Status) -> None:
    class Disk:
        def __init__(self) -> None:
            self.free = free

    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda folder: Disk())
    assert doctor._disk().status == status


def test_worst() -> None:
    ok, warn, fail = (Check(name="x", status=s, found="y") for s in Status)
    assert worst((ok, ok)) == Status.OK
    assert worst((warn, ok)) == Status.WARN
    assert worst((ok, fail, warn)) == Status.FAIL


def test_text() -> None:
    check = Check(name="ninja", status=Status.WARN, found="none", advice="Install it.")
    assert str(check) == "warn  ninja: none\n      -> Install it."
    assert json.dumps(check.status) == '"warn"'
