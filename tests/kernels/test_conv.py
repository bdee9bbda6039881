"""Convolutions on the tensor cores: every form on the emulator, and under nvcc."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kernelwright import kernels
from kernelwright.toolchain.compilers import find_nvcc
from kernelwright.toolchain.cuda import compile_check

_FOLDER = Path(__file__).parent / "conv"
_NO_FOLD = "NONE NONE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One convolution; per dimension, as PyTorch has them."""

    images: int
    channels: int
    out_channels: int
    size: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...] = ()
    padding: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()
    output_padding: tuple[int, ...] = ()
    groups: int = 1
    transposed: bool = False
    channels_last: bool = False
    values: str = ""
    window: tuple[int, ...] = ()
    is_whole: bool = False
    folds: str = ""
    """Over windows and over channels; those of the whole run where it is empty."""

    def has_result(self) -> bool:
        """Whether PyTorch takes it, with a result of some elements."""
        words = self.words()
        names = ("in", "kernel", "stride", "padding", "dilation", "output_padding")
        for size, kernel, stride, padding, dilation, more in zip(
            *(words[name] for name in names), strict=True
        ):
            reach = dilation * (kernel - 1)
            left = size + 2 * padding - reach - 1
            last = (size - 1) * stride - 2 * padding + reach + more
            if (last if self.transposed else left) < 0:
                return False
        return True

    def words(self) -> dict[str, Any]:
        """As run.py takes it."""
        rank = len(self.size)
        return asdict(self) | {
            "in": self.size,
            "stride": self.stride or (1,) * rank,
            "padding": self.padding or (0,) * rank,
            "dilation": self.dilation or (1,) * rank,
            "output_padding": self.output_padding or (0,) * rank,
        }


def _case(images: int, channels: int, size: tuple[int, ...], out_channels: int,
          kernel: tuple[int, ...], **others: Any) -> Case:  # fmt: skip
    return Case(
        images=images, channels=channels, size=size, out_channels=out_channels, kernel=kernel,
        **others,
    )  # fmt: skip


# Small maps, odd channels, more of them than a tile has, filters without a middle; strides,
# dilations, groups; what planes do not carry; transposed with phases of several and of no taps;
# tiles that share sectors.
_CASES = (
    _case(2, 64, (9, 11), 64, (3, 3), padding=(1, 1)),
    _case(3, 7, (7, 7), 5, (3, 3), padding=(1, 1)),
    _case(1, 130, (13, 17), 130, (2, 4), stride=(2, 3), padding=(1, 2)),
    _case(2, 20, (12, 15), 33, (3, 5), dilation=(2, 3), padding=(2, 4), channels_last=True),
    _case(1, 40, (8, 9), 96, (3, 3), groups=2, stride=(1, 2)),
    _case(1, 3, (15, 16), 10, (5, 3), stride=(4, 2), padding=(2, 1)),
    _case(2, 8, (6, 40), 20, (2, 9), padding=(0, 3), stride=(1, 2)),
    _case(1, 16, (9, 9), 16, (3, 3), values="special"),
    _case(2, 16, (9, 9), 16, (3, 3), values="wide"),
    _case(2, 16, (9, 9), 16, (3, 3), values="huge"),
    _case(2, 17, (6, 7), 9, (3, 3), stride=(2, 2), padding=(1, 1), output_padding=(1, 1),
          transposed=True),
    _case(1, 16, (5, 6), 20, (3, 5), stride=(3, 5), padding=(1, 2), dilation=(2, 1),
          output_padding=(0, 2), transposed=True),
    _case(1, 16, (5, 7), 16, (3, 3), stride=(2, 2), dilation=(2, 4), padding=(1, 0),
          transposed=True),
    _case(2, 20, (9, 11), 30, (3, 4), padding=(1, 2), dilation=(2, 1), transposed=True),
    _case(1, 5, (6, 13), 20, (2, 3), padding=(0, 3), transposed=True),
    _case(2, 40, (300,), 70, (3,), stride=(3,), dilation=(4,)),
    _case(2, 24, (50,), 70, (3,), stride=(2,), dilation=(2,), padding=(1,), transposed=True),
    _case(2, 3, (6, 7, 8), 17, (3, 5, 3), padding=(1, 0, 1), stride=(1, 2, 1)),
    _case(1, 12, (4, 5, 9), 20, (2, 3, 5), padding=(0, 1, 2), transposed=True),
    _case(1, 16, (3, 2, 3), 8, (3, 4, 5), stride=(2, 2, 2), padding=(1, 2, 3), groups=4,
          output_padding=(1, 1, 1), transposed=True),
    _case(2, 8, (23, 25), 19, (3, 3), padding=(1, 1)),
    # Neighbouring outputs together: rows of an odd number, strides and dilations with and without
    # a divisor, taps without an offset in common.
    _case(1, 8, (4, 5, 31), 32, (2, 3, 3), padding=(0, 1, 1)),
    _case(2, 5, (9, 27), 24, (3, 3), padding=(1, 1)),
    _case(1, 16, (9, 33), 16, (3, 5), stride=(2, 2), padding=(1, 2)),
    _case(2, 32, (6, 23), 32, (2, 4), dilation=(1, 3), padding=(1, 0)),
    _case(1, 12, (8, 21), 30, (3, 3), stride=(1, 2), dilation=(1, 4), padding=(0, 3)),
    _case(1, 6, (50,), 20, (1,), stride=(3,)),
    # Runs of pixels: rows that end once and twice in a tile, few and all of its channels.
    _case(2, 8, (7, 70), 20, (3, 3)),
    _case(1, 5, (9, 129), 64, (3, 2), dilation=(2, 3)),
    _case(2, 8, (4, 5, 66), 33, (2, 2, 3)),
    _case(2, 7, (200,), 16, (3,)),
    _case(1, 8, (12, 64), 16, (2, 2), values="special"),
)  # fmt: skip


def _draw(random: Random) -> Case:
    """Any layer that has a result, of a small image."""
    rank, groups, transposed = (
        random.choice((1, 2, 2, 3)),
        random.choice((1, 1, 3)),
        random.random() < 0.5,
    )
    largest, longest = ((40, 9), (14, 5), (7, 3))[rank - 1]

    def each(choices: Sequence[int]) -> tuple[int, ...]:
        return tuple(random.choice(choices) for _ in range(rank))

    size, kernel = each(range(1, largest + 1)), each(range(1, longest + 1))
    stride, dilation = each((1, 1, 1, 2, 3, 5)), each((1, 1, 2, 3))
    padding = each(range(5))
    output_padding = tuple(
        random.randrange(max(pair)) if transposed else 0
        for pair in zip(stride, dilation, strict=True)
    )
    case = _case(
        random.randint(1, 3), groups * random.choice((1, 3, 8, 16, 17, 32, 50)), size,
        groups * random.choice((1, 8, 24, 31, 65)), kernel, stride=stride, padding=padding,
        dilation=dilation, output_padding=output_padding, groups=groups, transposed=transposed,
        channels_last=random.random() < 0.2,
    )  # fmt: skip
    return case if case.has_result() else _draw(random)


def _config(width: int, *words: object) -> str:
    return f"ConvConfig<Wgmma{width}F16, {', '.join(map(str, words))}>"


_ALTERNATE, _SHARED = "ConvSchedule::ALTERNATE", "ConvSchedule::SHARED"
_LINES, _ROWS = "ConvStore::LINES", "ConvStore::ROWS"
_APART, _FOLDED, _OVERLAPPING = (f"RowTaps::{how}" for how in ("APART", "FOLDED", "OVERLAPPING"))
# Dimensions, chunk, planes, channel parts, schedule, stages, cluster, taps of a row, patches and
# bytes of one, way to store, dimensions whose phases are joined, outputs that are. Each chunk,
# schedule, cluster, way to bring taps and number of joined dimensions at least once, with patches
# too.
_CONFIGS = (
    _config(128, 2, 32, 1, 2, _SHARED, 4, 2, _APART, 0, 0, _ROWS),
    _config(128, 2, 16, 2, 1, _SHARED, 2, 1, _FOLDED),
    _config(128, 3, 64, 2, 1, _ALTERNATE, 4, 1, _OVERLAPPING, 0, 0, _ROWS),
    _config(128, 3, 64, 1, 2, _ALTERNATE, 5, 1, _APART, 3, 40960, _ROWS),
    _config(128, 2, 32, 1, 2, _SHARED, 6, 1, _APART, 3, 32768),
    _config(256, 1, 48, 1, 1, _ALTERNATE, 5, 1, _APART, 0, 0, _LINES, 1),
    _config(128, 3, 16, 1, 2, _ALTERNATE, 4, 1, _APART, 0, 0, _LINES, 3),
    _config(128, 2, 16, 2, 1, _SHARED, 2, 1, _APART, 0, 0, _LINES, 2),
    _config(128, 3, 16, 1, 1, _SHARED, 5, 1, _APART),
    _config(64, 2, 48, 1, 1, _ALTERNATE, 8, 1, _APART),
    _config(128, 3, 8, 2, 1, _ALTERNATE, 2, 1, _APART, 2, 24576, _ROWS),
    _config(128, 3, 8, 1, 2, _ALTERNATE, 2, 1, _APART, 4, 12288, _ROWS),
    _config(128, 3, 32, 1, 1, _ALTERNATE, 4, 1, _OVERLAPPING, 0, 0, _LINES, 0, 0, 2),
    _config(128, 3, 32, 2, 1, _ALTERNATE, 2, 1, _FOLDED, 0, 0, _LINES, 0, 0, 4),
    _config(128, 3, 16, 1, 2, _SHARED, 4, 1, _APART, 0, 0, _LINES, 0, 0, 8),
)
# Over the sum of absolute terms: two roundings to 11 bits, 2^-10, or to 22 and a float32 sum.
_ALLOWED = tuple(1e-6 if ", 2, 1, ConvSchedule" in it else 9.8e-4 for it in _CONFIGS)


@pytest.mark.timeout(400)  # every form is compiled
def test_every_form_against_float64(run_script: Callable[..., Any]) -> None:
    random = Random(5)
    drawn = (*_CASES, *(_draw(random) for _ in range(4)))
    cases = json.dumps([case.words() for case in drawn])
    seen = run_script(_FOLDER / "run.py", ", ".join(_CONFIGS), cases, "1", "float", _NO_FOLD)
    assert seen["findings"] == []
    taken = [0] * len(_CONFIGS)
    for case, errors in zip(drawn, seen["errors"], strict=True):
        assert any(error is not None for error in errors), case
        for config, error in enumerate(errors):
            if error is not None:
                taken[config] += 1
                # What no planes carry is computed in float32.
                bound = 1e-6 if case.values == "special" else _ALLOWED[config]
                assert error <= bound, (case, _CONFIGS[config], error)
    assert min(taken) >= 2, taken


# Long filters of few outputs: several blocks write one, of elements that come by vectors or not, in
# several turns; one that shared memory has no room for; single taps.
_LONG_CASES = (
    _case(1, 300, (5, 6), 3, (3, 3), padding=(1, 1)),
    _case(1, 171, (5, 6), 2, (3, 3)),
    _case(1, 600, (3, 4), 2, (3, 3), values="wide"),
    _case(1, 1030, (3, 4), 2, (3, 3)),
    _case(1, 514, (2, 3), 4, (1, 1), values="special"),
)  # fmt: skip


def test_long_filters_against_float64(run_script: Callable[..., Any]) -> None:
    configs = (
        _config(64, 2, 48, 1, 1, _ALTERNATE, 8, 1, _APART),
        _config(64, 2, 64, 2, 1, _ALTERNATE, 4, 1, _APART),
    )
    cases = json.dumps([case.words() for case in _LONG_CASES])
    seen = run_script(_FOLDER / "run.py", ", ".join(configs), cases, "1", "float", _NO_FOLD)
    assert seen["findings"] == []
    for case, errors in zip(_LONG_CASES, seen["errors"], strict=True):
        for error, bound in zip(errors, (9.8e-4, 1e-6), strict=True):
            assert error <= (1e-6 if case.values == "special" else bound), (case, errors)


# In two sets of planes: small images, channels, and elements beside large ones; elements that a
# sample misses; each form of the filter, groups, phases, and runs of pixels. On the CUDA cores:
# elements too far apart, with outputs of their own, infinities. Image counts that fill no box.
_WIDE_CASES = (
    _case(2, 16, (9, 9), 16, (3, 3), values="faint"),
    _case(2, 16, (9, 9), 16, (1, 1), values="columns"),
    _case(2, 16, (9, 9), 16, (3, 3), values="outlier"),
    _case(2, 16, (9, 9), 16, (3, 3), values="sparse"),
    _case(3, 20, (9, 11), 16, (3, 3), values="dead"),
    _case(2, 16, (9, 9), 16, (3, 3), values="apart"),
    _case(2, 16, (9, 9), 70, (3, 3), values="beside"),
    _case(2, 24, (7, 9), 20, (3, 3), values="peaked"),
    _case(2, 40, (6, 9), 20, (3, 3), groups=2, values="group"),
    _case(2, 16, (9, 9), 16, (3, 3), values="alone"),
    _case(2, 16, (9, 9), 16, (3, 3), values="spared"),
    _case(2, 16, (9, 9), 16, (3, 3), values="single"),
    _case(2, 16, (9, 9), 16, (3, 3), values="infinite"),
    _case(3, 150, (13, 17), 130, (2, 4), stride=(2, 3), padding=(1, 2), values="faint"),
    _case(2, 40, (8, 9), 96, (3, 3), groups=2, stride=(1, 2), values="dead"),
    _case(2, 3, (6, 7, 8), 17, (3, 5, 3), padding=(1, 0, 1), stride=(1, 2, 1), values="faint"),
    _case(1, 16, (5, 6), 20, (3, 5), stride=(3, 5), values="columns", transposed=True),
    _case(2, 24, (50,), 70, (3,), stride=(2,), dilation=(2,), values="faint", transposed=True),
    _case(2, 20, (9, 11), 30, (3, 4), stride=(2, 2), values="dead", transposed=True),
    _case(3, 5, (9, 129), 64, (3, 2), dilation=(2, 3), values="faint"),
    _case(2, 8, (4, 5, 66), 33, (2, 2, 3), values="outlier"),
    _case(2, 8, (7, 70), 20, (3, 3), values="dead"),
)  # fmt: skip
_LEFT = ("special", "apart", "group", "alone", "single", "infinite")
"""Values that no planes carry: the CUDA cores compute them."""


def _is_left(case: Case, config: str) -> bool:
    """Whether the CUDA cores compute it; runs of pixels have one set of the filter alone."""
    is_linear = ", 8, " in config[: config.index("ConvSchedule")]
    return case.values in _LEFT or (is_linear and case.values == "dead")


def test_wide_ranges_against_float64(run_script: Callable[..., Any]) -> None:
    cases = json.dumps([case.words() for case in _WIDE_CASES])
    seen = run_script(_FOLDER / "run.py", ", ".join(_CONFIGS), cases, "1", "float", _NO_FOLD)
    assert seen["findings"] == []
    taken = [0] * len(_CONFIGS)
    for case, errors in zip(_WIDE_CASES, seen["errors"], strict=True):
        for config, error in enumerate(errors):
            if error is not None:
                is_left = _is_left(case, _CONFIGS[config])
                taken[config] += not is_left
                bound = 1e-6 if is_left else _ALLOWED[config]
                assert error <= bound, (case, _CONFIGS[config], error)
                if not is_left and bound > 1e-6:
                    # The tensor cores round.
                    assert error > 1e-6, (case, _CONFIGS[config], "on the CUDA cores")
    assert min(taken) >= 1, taken


# Windows of one size and of parts, of all dimensions and some, of the outputs of a transposed
# convolution; all channels of a tile, of several parts and warpgroups; both. Units of a warpgroup
# alone at the end, too: two images of few positions.
_MAX, _SUM, _MIN = "MAXIMUM NONE", "SUM NONE", "NONE MINIMUM"
_FOLDED_CASES = (
    _case(2, 20, (19, 23), 70, (3, 3), padding=(1, 1), window=(2, 2), is_whole=True,
          folds=_MAX),
    _case(3, 3, (21, 40), 33, (3, 5), stride=(1, 2), window=(4, 3), folds=_MAX),
    _case(2, 16, (7, 9), 16, (3, 3), window=(2, 2), values="special", folds=_MAX),
    _case(2, 17, (6, 7), 9, (3, 3), stride=(2, 2), padding=(1, 1), output_padding=(1, 1),
          transposed=True, window=(2, 4), is_whole=True, folds=_MAX),
    _case(2, 20, (19, 23), 70, (3, 3), padding=(1, 1), window=(8, 8), folds=_MAX),
    _case(2, 12, (6, 7, 9), 20, (2, 3, 3), padding=(0, 1, 2), window=(2, 1, 2), folds=_SUM),
    _case(1, 16, (3, 4, 3), 8, (3, 4, 5), stride=(2, 2, 2), padding=(1, 2, 3), transposed=True,
          window=(2, 4, 2), folds=_SUM),
    _case(2, 7, (300,), 70, (3,), stride=(3,), dilation=(4,), window=(5,), folds=_MAX),
    _case(2, 16, (9, 9), 16, (3, 3), values="wide", window=(2, 2), folds=_SUM),
    _case(2, 20, (19, 23), 70, (3, 3), padding=(1, 1), folds=_MIN),
    _case(3, 9, (17, 20), 128, (3, 3), folds=_MIN),
    _case(1, 24, (9, 9), 10, (3, 3), values="special", folds=_MIN),
    _case(2, 17, (6, 7), 65, (3, 3), stride=(2, 2), padding=(1, 1), transposed=True, folds=_MIN),
    _case(2, 20, (19, 23), 70, (3, 3), padding=(1, 1), window=(2, 3), folds="MAXIMUM SUM"),
)  # fmt: skip
_FOLDING_CONFIGS = (
    _config(128, 2, 32, 1, 1, _ALTERNATE, 4, 1, _APART),
    _config(128, 2, 32, 1, 2, _SHARED, 4, 1, _APART, 0, 0, _ROWS),
    _config(64, 2, 64, 1, 2, _ALTERNATE, 4, 1, _APART),
    _config(64, 3, 16, 2, 2, _SHARED, 4, 1, _APART),
    _config(128, 2, 32, 1, 1, _SHARED, 4, 1, _OVERLAPPING),
    _config(128, 2, 32, 1, 1, _ALTERNATE, 4, 2, _FOLDED, 0, 0, _ROWS),
)


# Kernels know of a fold only whether there is one: sums over windows are those of largest values
# but for the operation, of which a config of two dimensions and the one of three tell enough. The
# others are those that take a case: not each reduces over channels.
_OF_FOLDS = {
    _MAX: _FOLDING_CONFIGS,
    _SUM: (_FOLDING_CONFIGS[1], _FOLDING_CONFIGS[3]),
    _MIN: (*_FOLDING_CONFIGS[:4], _FOLDING_CONFIGS[5]),
    "MAXIMUM SUM": _FOLDING_CONFIGS[1:4],
}


@pytest.mark.timeout(400)  # every form is compiled
@pytest.mark.parametrize("fold", _OF_FOLDS)
def test_results_are_reduced_where_they_are_summed(
    run_script: Callable[..., Any], fold: str
) -> None:
    _compare(run_script, _OF_FOLDS[fold], _FOLDED_CASES, fold)


# Channels of a tile that it does not have all of, joined phases of one, two and three dimensions,
# warpgroups together and apart; what planes do not carry.
_SHARES, _LOG_SUM_EXP = "NONE SHARES", "NONE LOG_SUM_EXP"
_PROGRAM_CASES = (
    _case(2, 3, (3, 4, 5), 16, (3, 3, 3), stride=(2, 2, 2), padding=(1, 1, 1), transposed=True),
    _case(1, 20, (3, 3, 4), 5, (3, 3, 3), stride=(2, 2, 2), padding=(1, 1, 1),
          output_padding=(1, 0, 1), transposed=True, folds=_LOG_SUM_EXP),
    _case(2, 17, (6, 7), 65, (4, 4), stride=(2, 2), padding=(1, 1), output_padding=(1, 1),
          transposed=True),
    _case(1, 16, (5, 6), 30, (3, 3), stride=(2, 2), padding=(1, 1), transposed=True,
          values="special", folds=_SHARES),
    _case(2, 16, (5, 6), 64, (3, 3), stride=(2, 2), transposed=True, values="huge",
          folds=_SHARES),
    _case(3, 9, (17, 20), 100, (3, 3)),
    _case(2, 16, (9, 9), 17, (3, 3), values="wide"),
)  # fmt: skip
_PROGRAM_CONFIGS = {
    _SHARES: (
        _config(64, 2, 64, 1, 4, _ALTERNATE, 3, 1, _APART, 0, 0, _LINES, 1, 2),
        _config(128, 3, 16, 2, 1, _ALTERNATE, 3, 1, _APART, 0, 0, _LINES, 2, 4),
        _config(128, 2, 64, 1, 2, _ALTERNATE, 4, 1, _APART, 3, 40960, _LINES, 1, 2),
        _config(128, 2, 32, 1, 2, _SHARED, 4, 1, _APART, 0, 0, _ROWS, 0, 1),
        _config(128, 2, 32, 2, 1, _SHARED, 2, 1, _APART, 0, 0, _LINES, 0, 1),
    ),
    _LOG_SUM_EXP: (
        _config(128, 3, 16, 1, 2, _ALTERNATE, 4, 1, _APART, 0, 0, _LINES, 3, 8),
        _config(128, 2, 32, 1, 2, _SHARED, 4, 1, _APART, 0, 0, _LINES, 0, 1),
    ),
}


def _compare(
    run_script: Callable[..., Any], configs: Sequence[str], cases: Sequence[Case], folds: str
) -> None:
    """Every config that takes a case, and the kernel of any sizes, against float64."""
    chosen = [case for case in cases if case.folds in ("", folds)]
    words = json.dumps([case.words() for case in chosen])
    seen = run_script(_FOLDER / "run.py", ", ".join(configs), words, "1", "float", folds)
    assert seen["findings"] == []
    taken = [0] * (len(configs) + 1)
    for case, errors in zip(chosen, seen["errors"], strict=True):
        assert errors[-1] <= 1e-6, (case, errors)  # any sizes: in float32
        for config, error in enumerate(errors):
            if error is not None:
                taken[config] += 1
                three = config < len(configs) and ", 2, 1, ConvSchedule" in configs[config]
                exact = case.values == "special" or three
                assert error <= (1e-6 if exact else 9.8e-4), (case, config, error)
    assert min(taken) >= 1, taken


@pytest.mark.parametrize("program", [_SHARES, _LOG_SUM_EXP])
def test_programs_over_channels_run_in_the_tile(
    run_script: Callable[..., Any], program: str
) -> None:
    _compare(run_script, _PROGRAM_CONFIGS[program], _PROGRAM_CASES, program)


# Maps that are smaller than a tile, that end in it and that several tiles have; channels of several
# parts and groups; joined phases and outputs, some of them beyond the map; runs of pixels; what no
# planes carry.
_BESIDE, _ALONE = "MOMENTS BESIDE", "MOMENTS ALONE"
_MOMENT_CASES = (
    _case(9, 16, (5, 5), 20, (3, 3), padding=(1, 1)),
    _case(2, 20, (19, 23), 130, (3, 3), padding=(1, 1), folds=_BESIDE),
    _case(2, 40, (8, 9), 96, (3, 3), groups=2, stride=(1, 2)),
    _case(2, 16, (9, 9), 16, (3, 3), values="wide"),
    _case(2, 16, (9, 9), 16, (1, 1), values="special"),  # one infinity a map
    _case(2, 17, (6, 7), 9, (3, 3), stride=(2, 2), padding=(1, 1), output_padding=(1, 1),
          transposed=True),
    _case(1, 5, (3, 4, 5), 20, (3, 3, 3), stride=(2, 2, 2), padding=(1, 1, 1), transposed=True),
    _case(1, 16, (5, 6), 20, (3, 5), stride=(3, 5), padding=(1, 2), dilation=(2, 1),
          output_padding=(0, 2), transposed=True),
    _case(1, 16, (9, 33), 16, (3, 5), stride=(2, 2), padding=(1, 2), folds=_BESIDE),
    _case(1, 16, (5, 6), 8, (2, 4), stride=(1, 3), transposed=True),
    _case(2, 8, (7, 70), 20, (3, 3)),
    _case(2, 8, (4, 5, 66), 33, (2, 2, 3)),
    _case(1, 8, (12, 64), 16, (2, 2), values="special"),
    _case(2, 16, (35, 33), 64, (3, 3)),
)  # fmt: skip
_MOMENT_CONFIGS = {
    _BESIDE: (
        _config(256, 2, 64, 1, 1, _ALTERNATE, 4, 1, _APART, 0, 0, _ROWS),
        _config(128, 3, 32, 2, 1, _SHARED, 2, 1, _APART),
        _config(128, 2, 64, 1, 2, _ALTERNATE, 5, 1, _APART, 3, 40960, _ROWS),
        _config(128, 3, 16, 1, 2, _ALTERNATE, 4, 1, _APART, 0, 0, _LINES, 3),
        _config(128, 3, 8, 1, 2, _ALTERNATE, 2, 1, _APART, 4, 12288, _ROWS),
        _config(128, 3, 32, 1, 1, _ALTERNATE, 4, 1, _OVERLAPPING, 0, 0, _LINES, 0, 0, 2),
    ),
    _ALONE: (
        _config(128, 3, 64, 1, 2, _SHARED, 4, 1, _APART, 0, 0, _ROWS),
        _config(128, 3, 8, 2, 1, _ALTERNATE, 2, 1, _APART, 2, 24576, _ROWS),
    ),
}


@pytest.mark.timeout(400)  # every form is compiled
@pytest.mark.parametrize("how", [_BESIDE, _ALONE])
def test_moments_of_channels_come_from_the_tiles(run_script: Callable[..., Any], how: str) -> None:
    _compare(run_script, _MOMENT_CONFIGS[how], _MOMENT_CASES, how)


# With the rounding of the result: ordinary, misaligned, NaN, wide, transposed, shared sectors.
def test_modules_of_16_bits(run_script: Callable[..., Any]) -> None:
    configs = (
        _config(256, 2, 64, 1, 2, _SHARED, 3, 1, _APART, 0, 0, _ROWS),
        _config(256, 2, 64, 1, 1, _ALTERNATE, 8, 1, _APART, 2, 65536),
    )
    shared = _case(1, 8, (33, 35), 20, (1, 3), padding=(0, 1))
    chosen = (_CASES[0], _CASES[1], _CASES[7], _CASES[8], _CASES[10], shared)
    cases = json.dumps([case.words() for case in chosen])
    seen = run_script(
        _FOLDER / "run.py", ", ".join(configs), cases, "0", "__half,__nv_bfloat16", _NO_FOLD
    )
    assert seen["findings"] == []
    half, brain = seen["errors"][: len(chosen)], seen["errors"][len(chosen) :]
    assert len(brain) == len(chosen)
    assert all(0 <= error <= 6e-4 for errors in half for error in errors), half
    assert all(0 <= error <= 4.5e-3 for errors in brain for error in errors), brain


@pytest.mark.timeout(400)  # every form is compiled
@pytest.mark.skipif(find_nvcc() is None, reason="needs nvcc")
def test_nothing_spills_or_waits_for_each_product() -> None:
    # The most sums of each schedule, with three products, patches, joined phases and programs over
    # channels; the others differ in numbers alone.
    plain = (
        _config(256, 2, 64, 1, 1, _ALTERNATE, 5, 1, _APART),
        _config(128, 3, 64, 2, 1, _ALTERNATE, 4, 1, _OVERLAPPING, 0, 0, _ROWS),
        _config(256, 3, 48, 1, 2, _SHARED, 3, 1, _APART, 2, 57344, _ROWS),
        _config(128, 2, 64, 1, 2, _ALTERNATE, 5, 1, _APART, 3, 40960, _LINES, 2),
        _config(128, 3, 8, 2, 1, _ALTERNATE, 4, 1, _APART, 2, 28672, _ROWS),
        _config(256, 3, 32, 1, 1, _ALTERNATE, 5, 1, _OVERLAPPING, 0, 0, _LINES, 0, 0, 2),
    )
    programs = (
        _config(64, 2, 64, 1, 4, _ALTERNATE, 4, 1, _APART, 0, 0, _LINES, 1, 2),
        _config(128, 3, 32, 1, 2, _ALTERNATE, 5, 1, _APART, 0, 0, _LINES, 3, 8),
        _config(256, 2, 64, 1, 1, _ALTERNATE, 4, 1, _APART, 0, 0, _ROWS, 0, 1),
    )
    # In one unit: what writes planes, and the library, is compiled once for all endings.
    text = (_FOLDER / "conv.cu").read_text().replace("CONFIGS", ", ".join(plain))
    text = text.replace("ELEMENT", "float").replace("EPILOGUE", "ConvBias")
    moments = "ConvWithMoments<ConvMoments::BESIDE, ConvBias, ConvPlain>"
    shares = "ConvRowProgram<ChannelShares, ConvBias, ConvBias>"
    wanted = [(f"planes_kernel<{config}>", "PlaneParameters") for config in programs]
    for configs, ending in ((plain, moments), (programs, shares)):
        types = f"Number, Number, {ending}"
        wanted += [(f"conv_kernel<{it}, {ending}>", f"ConvParameters<{types}>") for it in configs]
        wanted.append((f"any_kernel<{ending}>", f"ConvAnyParameters<{types}>"))
    combined = f"ConvMomentParameters<Number, Number, {moments}>"
    wanted.append((f"moments_kernel<{combined}>", combined))
    text += "".join(
        f"template __global__ void {name}(const __grid_constant__ {parameters});\n"
        for name, parameters in wanted
    )
    report = compile_check(
        kernels.inline(
            "conv_launch.cuh",
            "conv_any.cuh",
            "conv_epilogue.cuh",
            "conv_moments_launch.cuh",
            "wgmma_f16.cuh",
        )
        + text
    )
    names = [kernel.name for kernel in report.kernels]
    assert sum(name.startswith("conv_kernel") for name in names) == 2 * len(plain) + len(programs)
    assert sum(name.startswith("planes_kernel") for name in names) == len(plain) + len(programs)
    assert sum(name.startswith("any_kernel") for name in names) == 3
    assert [str(it) for it in report.kernels if it.stack_bytes or it.spills] == []
    assert [remark for remark in report.remarks if "Performance Loss" in remark] == []
