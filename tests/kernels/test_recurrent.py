"""Recurrent layers in one launch: every config on the emulator, and under nvcc."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from kernelwright import kernels
from kernelwright.ir.recurrent_configs import RecurrentConfig
from kernelwright.toolchain.compilers import find_nvcc
from kernelwright.toolchain.cuda import compile_check

_SOURCES = (
    "recurrent_launch.cuh",
    "dependent_launch.cuh",
    "bfloat16.cuh",
    "wgmma_narrow_bf16.cuh",
)
_FOLDER = Path(__file__).parent / "recurrent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """A config of recurrent_sm90.cuh, as recurrent_problem.cuh has its words."""

    cell: str
    directions: int
    cluster: int
    batch: int
    inputs: int
    planes: int
    stages: int
    stored: str
    units: int

    def text(self) -> str:
        """As C++."""
        numbers = (self.directions, self.cluster, self.batch, self.inputs, self.planes, self.stages)
        words = (
            self.stored,
            f"RecurrentCell::{self.cell}",
            *map(str, numbers),
            str(self.units),
        )
        return f"RecurrentConfig<{', '.join(words)}>"


def _config(cell: str, *numbers: int, stored: str = "float", units: int = 16) -> Config:
    names = ("directions", "cluster", "batch", "inputs", "planes", "stages")
    named = dict(zip(names, numbers, strict=True))
    return Config(cell=cell, stored=stored, units=units, **named)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One call of a config; `how` names what one of its operands carries: see run.py."""

    config: int
    cell: str
    directions: int
    layers: int = 1
    inputs: int = 5
    hidden: int = 7
    steps: int = 4
    batch: int = 3
    bias: bool = True
    states: bool = True
    batch_first: bool = False
    dtype: str = "float32"
    spoiled: str = "x"
    how: str = ""


_DTYPES = {"float": "float32", "__half": "float16", "__nv_bfloat16": "bfloat16"}
_LEAST = {"float": 1e-6, "__half": 2e-3, "__nv_bfloat16": 1e-2}
"""Errors that are none: half a unit in the last place of results near 2, some times over."""

# Clusters, batches, types and numbers of planes; low planes in shared memory (608
# inputs in four blocks), all planes of the inputs (in two of two tiles).
_CONFIGS = (
    _config("LSTM", 1, 1, 8, 32, 2, 2),
    _config("GRU", 2, 2, 8, 64, 2, 2),
    _config("LSTM", 2, 2, 32, 64, 1, 3, stored="__half"),
    _config("LSTM", 1, 4, 8, 608, 2, 2),
    _config("GRU", 1, 2, 16, 32, 2, 2),
    _config("RNN_TANH", 2, 2, 8, 64, 2, 2),
    _config("GRU", 1, 1, 8, 32, 1, 2, stored="__nv_bfloat16"),
    _config("LSTM", 1, 2, 8, 608, 1, 2, stored="__half", units=32),
    _config("RNN_RELU", 2, 1, 16, 32, 1, 2, stored="__half"),
    _config("RNN_RELU", 1, 2, 8, 64, 1, 2, stored="__nv_bfloat16", units=32),
    _config("LSTM", 1, 16, 8, 32, 2, 2),
)


def _case(config: int, **others: Any) -> Case:
    chosen = _CONFIGS[config]
    return Case(
        config=config,
        cell=chosen.cell,
        directions=chosen.directions,
        dtype=_DTYPES[chosen.stored],
        **others,
    )


_CASES = (
    _case(0, layers=2),
    _case(0, layers=2, how="nan"),
    _case(0, layers=2, how="inf"),
    _case(0, layers=2, spoiled="weights", how="inf"),
    _case(0, spoiled="weights", how="nan"),
    _case(0, how="tiny"),
    _case(0, how="large", steps=1, batch=1, inputs=1, hidden=1),
    _case(1, layers=2, hidden=20, batch=11, inputs=9),
    _case(1, layers=2, hidden=20, spoiled="hidden", how="large"),
    _case(2, layers=2, hidden=32, steps=5, batch=40, inputs=64, bias=False, states=False,
          batch_first=True),
    _case(3, hidden=50, steps=3, batch=9, inputs=600),
    _case(4, layers=3, hidden=31, steps=5, batch=17, inputs=1),
    _case(4, spoiled="hidden", how="inf"),
    _case(5, layers=2, hidden=20, batch=11, inputs=9),
    _case(5, spoiled="weights", how="nan"),
    _case(6, layers=2, hidden=13, steps=6, batch=11, inputs=9),
    _case(6, how="greatest"),
    _case(7, hidden=50, steps=3, batch=9, inputs=600),
    _case(7, hidden=60, batch=1, inputs=3, how="nan"),
    _case(8, layers=2, hidden=16, batch=17, inputs=9),
    _case(8, hidden=13, spoiled="hidden", how="large"),
    _case(8, layers=2, hidden=9, how="inf"),
    _case(9, layers=2, hidden=50, batch=9, inputs=20),
    _case(9, hidden=40, spoiled="hidden", how="huge"),
    _case(9, hidden=64, spoiled="weights", how="nan"),
    # More blocks than warps send: who sends to whom differs.
    _case(10, hidden=250, inputs=20),
)  # fmt: skip


@st.composite
def _drawn(draw: st.DrawFn) -> Case:
    """Any sizes and options that a config takes."""
    config = draw(st.sampled_from((0, 1, 4, 5, 6, 8, 9)))
    chosen = _CONFIGS[config]
    return _case(
        config,
        layers=draw(st.integers(1, 3)),
        inputs=draw(st.integers(1, chosen.inputs)),
        hidden=draw(st.integers(1, chosen.cluster * chosen.units)),
        steps=draw(st.integers(1, 7)),
        batch=draw(st.integers(1, 2 * chosen.batch)),
        bias=draw(st.booleans()),
        states=draw(st.booleans()),
        batch_first=draw(st.booleans()),
        how=draw(st.sampled_from(("", "nan", "inf", "tiny"))),
    )


# One example is some cases, for the emulator builds all configs before the first one.
@settings(max_examples=3, derandomize=True, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(cases=st.lists(_drawn(), min_size=5, max_size=5))
@example(cases=[*_CASES])
def test_every_config_against_float64(run_script: Callable[..., Any], cases: list[Case]) -> None:
    configs = ", ".join(config.text() for config in _CONFIGS)
    seen = run_script(_FOLDER / "run.py", configs, json.dumps([asdict(c) for c in cases]), "1")
    assert seen["findings"] == []
    for case, results in zip(cases, seen["errors"], strict=True):
        least = _LEAST[_CONFIGS[case.config].stored]
        for ours, theirs in results:
            # A comparison that NaN fails.
            assert ours <= max(least, 4 * theirs), (case, results)


def _bytes(config: Config) -> int:
    """Shared memory of a block by what the planner says."""
    same = RecurrentConfig(
        cluster=config.cluster,
        batch=config.batch,
        inputs=config.inputs,
        stages=config.stages,
        planes=config.planes,
        units=config.units,
    )
    return same.shared_bytes


@pytest.mark.timeout(400)  # every form is compiled
@pytest.mark.skipif(find_nvcc() is None, reason="needs nvcc")
def test_nothing_spills_or_waits_for_each_product() -> None:
    configs = (
        _config("LSTM", 1, 16, 16, 256, 2, 3),
        _config("GRU", 2, 16, 16, 512, 2, 3),
        _config("RNN_TANH", 1, 1, 32, 32, 2, 2),
        _config("LSTM", 1, 16, 16, 512, 1, 2, stored="__half", units=32),
        _config("LSTM", 1, 16, 8, 256, 2, 3),
        _config("LSTM", 2, 16, 8, 512, 2, 3),
        _config("RNN_RELU", 1, 8, 32, 256, 1, 3, stored="__nv_bfloat16", units=32),
    )
    text = (_FOLDER / "recurrent.cu").read_text()
    text = text.replace("CONFIGS", ", ".join(config.text() for config in configs))
    for config in configs:
        text += (
            f"\nstatic_assert(RecurrentTile<{config.text()}>::SHARED_BYTES == {_bytes(config)});"
        )
    report = compile_check(kernels.inline(*_SOURCES) + text)
    assert len(report.kernels) == 3 * len(configs)
    assert [str(kernel) for kernel in report.kernels if kernel.stack_bytes or kernel.spills] == []
    assert [remark for remark in report.remarks if "Performance Loss" in remark] == []
