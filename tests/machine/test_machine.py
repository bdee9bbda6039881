"""The machine record: measured and modelled cards, and the floor."""

import os
from dataclasses import FrozenInstanceError, asdict, dataclass, replace
from types import SimpleNamespace

import pytest
import torch

from kernelwright.machine import H100, H200, Origin, detect, machine_of, modelled
from kernelwright.pipeline import default_target
from kernelwright.toolchain.records import Target


@dataclass(frozen=True)
class _Properties:
    """What PyTorch 2.11 reports on an H200."""

    name: str = "NVIDIA H200"
    major: int = 9
    minor: int = 0
    multi_processor_count: int = 132
    L2_cache_size: int = 62914560
    shared_memory_per_block_optin: int = 232448
    regs_per_multiprocessor: int = 65536
    clock_rate: int = 1980000
    memory_clock_rate: int = 3201000
    memory_bus_width: int = 6016


def test_the_floor_is_the_larger_time() -> None:
    assert H200.floor_seconds(4.28e12, 0, "fp32_simt") == 1.0
    assert H200.floor_seconds(0, H200.flops["tf32"], "tf32") == 1.0
    assert H200.floor_seconds(4.28e12, 3 * H200.flops["fp16"], "fp16") == 3.0


def test_unknown_arithmetic() -> None:
    with pytest.raises(KeyError, match="fp4"):
        H200.floor_seconds(1, 1, "fp4")


def test_a_measured_card_is_found_by_name() -> None:
    assert machine_of(_Properties()) is H200


def test_a_card_that_was_carried_over_has_its_own_memory() -> None:
    card = machine_of(replace(_Properties(), name="NVIDIA H100 80GB HBM3"))
    assert card is H100 and card.flops == H200.flops
    # What was measured is about what the pins of both cards say.
    assert card.copy_bandwidth == pytest.approx(3.35 / 4.8 * H200.copy_bandwidth, rel=0.02)


def test_the_model_agrees_with_what_was_measured() -> None:
    model = modelled(_Properties())
    assert model.origin is Origin.MODELLED
    assert (model.sm_count, model.l2_bytes) == (H200.sm_count, H200.l2_bytes)
    assert model.shared_memory_per_block == H200.shared_memory_per_block
    assert model.copy_bandwidth == pytest.approx(H200.copy_bandwidth, rel=0.01)
    for unit in ("fp32_simt", "fp64_simt"):
        assert model.flops[unit] == pytest.approx(H200.flops[unit], rel=0.03)
    for unit in ("tf32", "fp16", "bf16", "fp16x3"):
        assert H200.flops[unit] < model.flops[unit] < 1.5 * H200.flops[unit]


def test_older_and_newer_cards() -> None:
    card = replace(_Properties(), name="NVIDIA T4")
    turing = modelled(replace(card, major=7, minor=5))
    assert "bf16" not in turing.flops and "tf32" not in turing.flops
    for major in (8, 10):
        other = modelled(replace(card, major=major, minor=0))
        assert "fp16x3" not in other.flops
        assert other.has_clusters == (major >= 9) and other.warpgroups is None
    assert modelled(replace(card, major=8, minor=6)).limits.sm_threads == 1536
    unknown = modelled(replace(card, major=9, minor=7))
    assert unknown.flops == modelled(card).flops


def test_a_card_whose_clocks_nobody_tells_is_modelled_all_the_same() -> None:
    told = asdict(_Properties())
    silent = SimpleNamespace(
        **{name: told[name] for name in told if not name.startswith("memory_")}
    )
    model = modelled(silent)  # type: ignore[arg-type]
    assert model.copy_bandwidth == pytest.approx(0.89 * 1.555e12, rel=0.01)
    assert model.flops == modelled(_Properties()).flops


def test_records_do_not_change() -> None:
    with pytest.raises(FrozenInstanceError):
        H200.sm_count = 1  # type: ignore[misc]
    with pytest.raises(TypeError):
        H200.flops["fp32_simt"] = 1.0  # type: ignore[index]


@pytest.mark.gpu
def test_detect_on_a_gpu() -> None:
    machine = detect()
    assert machine is not None and machine.sm_count > 0 and machine.copy_bandwidth > 1e10


def test_detect_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert detect() is None


def test_only_marked_tests_see_a_card() -> None:
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""
    assert torch.cuda.device_count() == 0
    assert default_target() is Target.CPU
