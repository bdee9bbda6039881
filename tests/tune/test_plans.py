"""Plans through the database: what is on record is used, for the same kernel, sizes and card."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelwright.compiling import Compiled, compile_problem
from kernelwright.ir.configs import Config
from kernelwright.ir.plan import Kernel
from kernelwright.ir.product_configs import GemmConfig, TensorCoreConfig
from kernelwright.machine import H200
from kernelwright.problem import load_problem, resize
from kernelwright.schedule import ranked_configs
from kernelwright.toolchain.compilers import Tool
from kernelwright.tune import plans
from kernelwright.tune.database import Database, Row
from kernelwright.tune.effort import QUICK
from kernelwright.tune.tuner import Timing, Variant

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


def test_nothing_is_looked_up_where_nothing_was_measured(
    database: Database, compiled: Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plans, "key_of", lambda *it: pytest.fail("a text was written for its name"))
    assert plans.best_known(compiled.plan, compiled.machine, database) is compiled.plan


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


_TWO = """import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x, y):
        return x @ y, torch.softmax(x, -1)

def get_inputs():
    return [torch.rand(2048, 2048), torch.rand(2048, 2048)]

def get_init_inputs():
    return []
"""


def test_all_kernels_are_tuned_in_one_race(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "two.py"
    path.write_text(_TWO)
    plan = compile_problem(load_problem(path), H200).plan
    compiled: list[tuple[str, ...]] = []
    told: list[tuple[int, int, str]] = []
    prepared: list[str] = []

    class Timer:
        def __init__(self, kernel: Kernel, device: torch.device) -> None:
            self.kernel = kernel

        def prepare(self) -> None:
            prepared.append(self.kernel.name)

        def __call__(self, variant: Variant, library: Path) -> Timing:
            return Timing(seconds=1 / len(prepared), samples=3)  # Each is faster than before.

    def compile_all(sources: Sequence[str], seconds: float) -> Any:
        compiled.append(tuple(sources))
        assert seconds == 20.0, "the budget is for all of them together"
        yield from ((at, Path(f"{at}.so")) for at in range(len(sources)))

    monkeypatch.setattr(plans, "KernelTimer", Timer)
    monkeypatch.setattr(plans, "compile_libraries", compile_all)
    monkeypatch.setattr(plans, "take_device", lambda device: None)
    monkeypatch.setattr("torch.cuda.current_device", lambda: 0)
    quick = replace(QUICK, variants=3)
    plans.tune_plan(plan, H200, quick, 20.0, database, lambda *it: told.append(it))
    first, second = (kernel.name for kernel in plan.kernels)
    (sources,) = compiled
    names = [first if f"launch_{first}(" in it else second for it in sources]
    assert names[:2] == [first, second] and prepared[:2] == [first, second]
    assert told[0] == (0, len(sources), first)
    for kernel in plan.kernels:
        rows = database.rows(plans.key_of(plan, kernel, H200))
        assert len(rows) == names.count(kernel.name) <= 3
        assert [row.samples for row in rows].count(6) == 2, "two finalists of each"
    again = plans.best_known(plan, H200, database)
    assert [it.config for it in again.kernels] != [it.config for it in plan.kernels]
    plans.tune_plan(plan, H200, quick, 20.0, database, lambda *it: told.append(it))
    assert len(compiled) == 1, "what is known is not timed again"
