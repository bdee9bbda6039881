"""Plans through the database: what is on record is used, for the same kernel, sizes and card."""

from collections.abc import Iterator
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kernelwright.ir.configs import Config, GemmConfig, TensorCoreConfig
from kernelwright.machine import H200
from kernelwright.pipeline import Compiled, compile_problem
from kernelwright.problem import load_problem, resize
from kernelwright.schedule import ranked_configs
from kernelwright.toolchain.compilers import Tool
from kernelwright.tune import plans
from kernelwright.tune.database import Database, Row

MATMUL = Path(__file__).parents[2] / "examples" / "matmul.py"


@pytest.fixture(scope="module")
def compiled() -> Compiled:
    return compile_problem(load_problem(MATMUL), H200)


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    nvcc = Tool(name="nvcc", path=Path("nvcc"), version="13.0.88", origin="test")
    monkeypatch.setattr(plans, "require_nvcc", lambda: nvcc)
    with Database(tmp_path / "tuning.sqlite") as opened:
        yield opened


def record(database: Database, compiled: Compiled, config: Config, seconds: float) -> None:
    (kernel,) = compiled.plan.kernels
    key = plans.key_of(compiled.plan, kernel, compiled.machine)
    row = Row(
        key=key, config=asdict(config), seconds=seconds, samples=30, measured=datetime.now(UTC)
    )
    database.add([row])


def candidates(compiled: Compiled) -> tuple[Config, ...]:
    (kernel,) = compiled.plan.kernels
    return ranked_configs(kernel, compiled.machine)


def test_the_fastest_on_record_is_used(database: Database, compiled: Compiled) -> None:
    first, second, third = candidates(compiled)[:3]
    for config, seconds in ((first, 3e-3), (second, 1e-3), (third, 2e-3)):
        record(database, compiled, config, seconds)
    known = plans.best_known(compiled.plan, compiled.machine, database)
    assert known.kernels[0].config == second


def test_another_size_or_card_is_not_used(database: Database, compiled: Compiled) -> None:
    record(database, compiled, candidates(compiled)[1], 1e-3)
    larger = compile_problem(resize(load_problem(MATMUL), {"M": 4096}), H200)
    assert plans.best_known(larger.plan, H200, database) == larger.plan
    other = replace(H200, name="another card")
    assert plans.best_known(compiled.plan, other, database) == compiled.plan


def test_a_configuration_that_is_no_longer_legal_is_not_used(
    database: Database, compiled: Compiled
) -> None:
    config = candidates(compiled)[0]
    assert isinstance(config, TensorCoreConfig)
    record(database, compiled, replace(config, block_n=7), 1e-6)
    assert plans.best_known(compiled.plan, compiled.machine, database) == compiled.plan


def test_one_kernel_alone_in_another_configuration(compiled: Compiled) -> None:
    (kernel,) = compiled.plan.kernels
    config = candidates(compiled)[-1]
    assert isinstance(config, GemmConfig)
    text = plans.source_of(compiled.plan, kernel, config)
    assert f"BLOCK_M = {config.block_m}, BLOCK_N = {config.block_n}" in text
    assert 'extern "C" int launch_matmul(' in text


def test_with_configs_changes_only_what_is_named(compiled: Compiled) -> None:
    config = candidates(compiled)[3]
    assert plans.with_configs(compiled.plan, {"no_such_kernel": config}) == compiled.plan
    changed = plans.with_configs(compiled.plan, {"matmul": config})
    assert changed.kernels[0].config == config
