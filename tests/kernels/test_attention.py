"""Attention: every config on the emulator, and under nvcc."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from kernelwright import kernels
from kernelwright.toolchain.compilers import find_nvcc
from kernelwright.toolchain.cuda import compile_check

_FOLDER = Path(__file__).parent / "attention"

_ELEMENTS = {"float32": "float", "float16": "__half", "bfloat16": "__nv_bfloat16"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """A config of attention_sm90.cuh, as attention_problem.cuh has its words."""

    dtype: str = "float32"
    depth: int = 64
    width: int = 64
    block_n: int = 64
    stages: int = 2
    consumers: int = 2
    masking: str = "NONE"
    causal: bool = False
    empty_is_zero: bool = True
    few: int = 0
    weighing: str = "SOFTMAX"

    def text(self) -> str:
        """As C++."""
        numbers = (self.depth, self.width, self.block_n, self.stages, self.consumers)
        flags = (str(it).lower() for it in (self.causal, self.empty_is_zero))
        words = (_ELEMENTS[self.dtype], *map(str, numbers), f"Masking::{self.masking}", *flags,
                 str(self.few), f"Weighing::{self.weighing}")  # fmt: skip
        return f"AttentionConfig<{', '.join(words)}>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One call of a config; `how` names what its operands carry: see run.py."""

    config: int
    dtype: str
    causal: bool
    empty_is_zero: bool
    batch: int = 1
    heads: int = 2
    kv_heads: int = 2
    rows: int = 70
    keys: int = 150
    depth: int = 64
    width: int = 64
    mask: str = ""
    scale: float = 0.0
    laid_out: str = ""
    how: str = ""
    weighing: str = "SOFTMAX"
    cut: bool = False
    """Whether several blocks prepare a head, with a kernel before that finds its largest number."""


_CONFIGS = (
    Config(block_n=128),
    Config(causal=True, depth=48, stages=1),
    Config(masking="ADD", depth=32, consumers=1),
    Config(masking="KEEP", depth=128, width=128, empty_is_zero=False),
    Config(dtype="float16", block_n=128),
    Config(dtype="bfloat16", depth=128, width=128, block_n=128, causal=True),
    Config(dtype="float16", depth=80, width=128, masking="ADD", consumers=1),
    Config(dtype="bfloat16", masking="KEEP", causal=True, empty_is_zero=False),
    Config(depth=256, width=256, stages=1, consumers=1),
    Config(dtype="float16", depth=256, width=256),
    Config(dtype="bfloat16", block_n=128, consumers=3),
    Config(dtype="float16", block_n=64, consumers=3, causal=True),
    Config(depth=128, width=128, few=4, masking="ADD", consumers=1),
    Config(dtype="bfloat16", depth=128, width=128, few=4, consumers=1),
    Config(dtype="float16", few=8, masking="KEEP", causal=True, consumers=1),
    Config(depth=256, width=256, stages=1, few=1, consumers=1),
    Config(masking="ADD", block_n=128, weighing="RELU"),
    Config(dtype="bfloat16", masking="KEEP", weighing="RELU"),
    Config(dtype="bfloat16", few=4, consumers=1),
)


def _case(config: int, **others: Any) -> Case:
    known = _CONFIGS[config]
    return Case(
        config=config, dtype=known.dtype, causal=known.causal, empty_is_zero=known.empty_is_zero,
        weighing=known.weighing,
        **{"depth": known.depth, "width": known.width} | others,
    )  # fmt: skip


_CASES = (
    _case(0, laid_out="heads inside"),
    _case(0, rows=130, keys=257, heads=4, kv_heads=2, depth=33, width=63, laid_out="odd", cut=True),
    _case(0, rows=1, keys=1, scale=3.0),
    _case(0, keys=0),
    _case(0, depth=70, rows=3, keys=40),
    _case(0, width=300, rows=3, keys=40),
    *(_case(0, rows=20, heads=4, kv_heads=1, how=how)
      for how in ("nan", "nan in q", "inf", "large", "graded", "tiny", "dominant", "signed")),
    # Heads of a warp each, with a depth that lanes do not divide, and laid out as projected; heads
    # that a block reads twice.
    *(_case(2, batch=13, heads=5, kv_heads=5, rows=9, keys=20, depth=24, width=40, mask="add",
            laid_out="heads inside", how=how) for how in ("signed", "graded and nan")),
    *(_case(0, rows=20, keys=300, heads=4, kv_heads=2, laid_out="heads inside", how=how)
      for how in ("signed", "graded and nan")),
    _case(3, rows=20, keys=90, depth=72, width=100, batch=2, laid_out="expanded", mask="keep"),
    # Turned heads, whose rows are side by side: of a block, and of a warp.
    _case(0, rows=77, keys=130, depth=36, width=60, laid_out="odd", how="graded and nan"),
    _case(2, batch=13, heads=5, kv_heads=5, rows=9, keys=20, depth=24, width=40, mask="add",
          laid_out="odd", how="signed"),
    _case(1, rows=130, keys=100, heads=1, kv_heads=1),
    _case(1, rows=80, keys=30, heads=1, kv_heads=1, how="dominant"),
    _case(2, batch=2, rows=20, mask="add empty", how="signed"),
    _case(2, mask="add heads", depth=20, width=8),
    _case(3, mask="keep empty", rows=20, cut=True),
    _case(4, rows=70, keys=300, laid_out="heads inside"),
    _case(4, laid_out="odd", rows=40),
    _case(4, rows=20, how="inf"),
    _case(5, rows=70, keys=140, heads=2, kv_heads=1),
    _case(6, mask="add empty", rows=60, width=72),
    _case(7, mask="keep empty", keys=70),
    _case(7, mask="keep", keys=160, rows=130, heads=1, kv_heads=1),
    _case(6, mask="add heads same", keys=96, rows=70),
    _case(3, mask="keep same", keys=75, rows=20, batch=2),
    _case(8, rows=20, keys=70, heads=1, kv_heads=1, cut=True),
    _case(9, rows=20, keys=70, heads=1, kv_heads=1, depth=200),
    # Several rounds of blocks: the emulated card has few multiprocessors.
    _case(10, rows=200, keys=300, heads=9, kv_heads=1),
    _case(11, rows=400, keys=130, heads=17, kv_heads=1, how="signed"),
    _case(12, rows=1, keys=700, heads=8, kv_heads=2, mask="add heads", how="signed"),
    _case(12, rows=2, keys=80, heads=2, kv_heads=1, mask="add empty", depth=33, laid_out="odd"),
    _case(12, rows=2, keys=200, heads=8, kv_heads=2, mask="add"),
    _case(13, batch=2, rows=1, keys=900, heads=8, kv_heads=2),
    _case(13, rows=1, keys=40, heads=3, kv_heads=1, depth=100, width=72, how="inf"),
    _case(14, rows=8, keys=70, mask="keep empty"),
    _case(15, rows=1, keys=500, how="dominant"),
    _case(15, rows=1, keys=500, how="nan", width=200),
    _case(16, batch=4, rows=20, mask="add empty in turns", how="signed"),
    *(_case(16, rows=3, keys=40, mask="add", how=how) for how in ("nan in q", "large", "tiny")),
    _case(16, width=70, rows=3, keys=40, mask="add"),
    _case(17, rows=20, mask="keep empty", how="signed"),
    _case(12, batch=4, rows=1, keys=80, mask="add in turns"),
    *(_case(config, rows=2, keys=100, mask="add empty least") for config in (2, 12)),
    # More steps than a ring has; keys that lie apart, and fewer columns than a line has.
    _case(18, batch=2, rows=1, keys=1100, heads=16, kv_heads=4, how="signed"),
    _case(18, rows=1, keys=300, heads=8, kv_heads=2, depth=40, width=24, laid_out="heads inside"),
)  # fmt: skip

# Of the largest result, where PyTorch's own error is smaller: roundings of results and shares.
# Processors differ in the last bits of their exponentials.
_LEAST = {"float32": 4.2e-7, "float16": 6e-4, "bfloat16": 5e-3}


@pytest.mark.parametrize("wide", [True, False], ids=["float32", "16 bits"])
def test_every_config_against_float64(wide: bool, run_script: Callable[..., Any]) -> None:
    chosen = [number for number, it in enumerate(_CONFIGS) if (it.dtype == "float32") is wide]
    cases = [case for case in _CASES if case.config in chosen]
    configs = ", ".join(_CONFIGS[number].text() for number in chosen)
    packed = [asdict(case) | {"config": chosen.index(case.config)} for case in cases]
    seen = run_script(_FOLDER / "run.py", configs, json.dumps(packed), "1")
    assert seen["findings"] == []
    for case, (ours, theirs) in zip(cases, seen["errors"], strict=True):
        # A comparison that NaN fails.
        assert ours <= max(_LEAST[case.dtype], theirs), (case, ours, theirs)
    for case, launches in zip(cases, seen["launches"], strict=True):
        assert ("attention_largest_kernel" in launches) is case.cut, (case, launches)


@pytest.mark.timeout(400)  # every form is compiled
@pytest.mark.skipif(find_nvcc() is None, reason="needs nvcc")
def test_nothing_spills_or_waits_for_each_product() -> None:
    # Each machine code once: what prepares operands knows only their type and the mask, and the
    # kernels of many rows do not know whether one for few rows stands beside them.
    prepared = {(config.dtype, config.masking): config for config in _CONFIGS}
    alone = {replace(config, few=0): config for config in _CONFIGS}
    few = [config for config in _CONFIGS if config.few > 0]
    wanted = (
        ("attention_prepare_kernel", "PrepareParameters", list(prepared.values())),
        ("attention_kernel", "AttentionParameters", list(alone.values())),
        ("attention_wide_kernel", "AttentionParameters", list(alone.values())),
        ("attention_few_kernel", "FewParameters", few),
    )
    text = (_FOLDER / "attention.cu").read_text().replace("CONFIGS", "")
    text += "".join(
        f"template __global__ void {name}<{it.text()}>(const __grid_constant__ {parameters});\n"
        for name, parameters, configs in wanted
        for it in configs
    )
    report = compile_check(kernels.inline("attention_few_launch.cuh") + text)
    assert len(report.kernels) == 1 + sum(len(configs) for *_, configs in wanted)
    assert [str(kernel) for kernel in report.kernels if kernel.stack_bytes or kernel.spills] == []
    assert [remark for remark in report.remarks if "Performance Loss" in remark] == []
