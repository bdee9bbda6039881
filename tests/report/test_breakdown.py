"""Where the time of a call goes: parts of planned kernels, floors, and what is next."""

from dataclasses import replace
from typing import Any

import pytest

from kernelwright.report.breakdown import (
    SHOWN,
    Breakdown,
    breakdown_of,
    count_families,
    families_of,
)
from kernelwright.report.row import Ending, LeftCall, Row

ROW = Row(
    problem="level1/1_x",
    level="level1",
    key="",
    ending=Ending.JUDGED,
    status="verified, faster",
    verified=True,
    summary="",
    device_ms=1.0,
)


def ran(name: str, milliseconds: float | None, calls: int = 1, maker: str = "its own") -> Any:
    return {"name": name, "maker": maker, "calls": calls, "milliseconds": milliseconds}


def planned(name: str, floor_ms: float, family: str = "rows", **more: Any) -> dict[str, Any]:
    return {"name": name, "family": family, "floor_seconds": floor_ms / 1e3, **more}


def launched(name: str, floor_ms: float, all_ms: float) -> dict[str, Any]:
    return planned(name, floor_ms, launches=2, launches_floor_seconds=all_ms / 1e3)


def details(seen: list[Any], plan: list[Any], printed: str = "") -> dict[str, Any]:
    return {
        "verdict": {"ran": {"kernels": seen, "note": ""}},
        "plan": {"kernels": plan},
        "graphs": {"planned": printed},
    }


def breakdown(seen: list[Any], plan: list[Any], printed: str = "", row: Row = ROW) -> Breakdown:
    found = breakdown_of(row, details(seen, plan, printed))
    assert found is not None
    return found


def test_launches_count_for_the_planned_kernel_with_the_longest_name() -> None:
    seen = [
        ran("sum_kernel", 0.1),
        ran("sum_fold_kernel", 0.4),
        ran("sum_2_kernel", 0.05),
        ran("sum_2_fold_kernel", 0.15, calls=2),
        ran("summed_kernel", 0.02),
        ran("split_factors_kernel", 0.01),
    ]
    found = breakdown(seen, [launched("sum_kernel", 0.1, 0.1), launched("sum_2_kernel", 0.1, 0.1)])
    assert [term.name for term in found.terms] == [
        "sum_kernel",
        "sum_2_kernel",
        "summed_kernel",
        "split_factors_kernel",
    ]
    first, second, third, _ = found.terms
    assert first.milliseconds == pytest.approx(0.5)
    assert first.split == {"fold": 0.4, "itself": 0.1}
    assert (second.calls, second.milliseconds) == (3, pytest.approx(0.2))
    assert (third.family, third.floor_ms, third.split) == ("", None, {})
    assert found.whole_ms == pytest.approx(0.73)


def test_a_library_s_kernel_is_no_part_of_ours() -> None:
    plan = [launched("elementwise_kernel", 0.1, 0.1)]
    seen = [ran("elementwise_kernel", 0.2), ran("elementwise_kernel", 0.3, maker="ATen")]
    found = breakdown(seen, plan)
    assert [(it.maker, it.family, it.floor_ms) for it in found.terms] == [
        ("ATen", "", None),
        ("its own", "rows", pytest.approx(0.1)),
    ]


def test_the_floor_is_that_of_all_launches() -> None:
    found = breakdown([ran("a_kernel", 1.0, calls=2)], [launched("a_kernel", 0.2, 0.5)])
    (term,) = found.terms
    assert term.floor_ms == pytest.approx(0.5)
    assert term.share_of_floor == pytest.approx(0.5)
    assert term.over_floor_ms == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("printed", "floor"),
    [
        ("  y: f32[8] = launch a(x)\n  z: f32[8] = launch a_2(y)\n", 0.2),
        ("  y: f32[8] = launch a(x)\n  z: f32[4] = launch a(y)\n", None),
        ("", None),
    ],
)
def test_plans_of_earlier_runs_have_a_floor_for_what_is_launched_once(
    printed: str, floor: float | None
) -> None:
    found = breakdown([ran("a_kernel", 1.0, calls=2)], [planned("a_kernel", 0.2)], printed)
    assert found.terms[0].floor_ms == (None if floor is None else pytest.approx(floor))


def test_next_is_what_is_most_over_its_floor() -> None:
    plan = [launched("long_kernel", 0.58, 0.58), launched("slow_kernel", 0.1, 0.1)]
    found = breakdown([ran("long_kernel", 0.6), ran("slow_kernel", 0.4)], plan)
    assert found.next_step == "`slow_kernel` takes 0.4 ms, 0.3 ms over its floor of 0.1 ms."


def test_next_says_where_no_floor_is_known() -> None:
    seen = [ran("slow_kernel", 0.4), ran("sm90_xmma", 0.6, maker="cuBLAS")]
    found = breakdown(seen, [launched("slow_kernel", 0.1, 0.1)])
    assert found.next_step == "`sm90_xmma` (cuBLAS) takes 0.6 ms; its floor is not known."
    at_floor = breakdown([ran("a_kernel", 1.0)], [launched("a_kernel", 1.1, 1.1)])
    assert at_floor.next_step.startswith("nothing")


@pytest.mark.parametrize(
    ("milliseconds", "shares", "misses"),
    [(1.24, False, False), (1.26, True, False), (0.76, False, False), (0.74, False, True)],
)
def test_times_of_a_shared_card_are_said_to_be_so_and_kept(
    milliseconds: float, shares: bool, misses: bool
) -> None:
    found = breakdown([ran("a_kernel", milliseconds)], [launched("a_kernel", 0.1, 0.1)])
    assert (found.shares_card, found.misses_time) == (shares, misses)
    assert ("shared" in found.next_step) == shares
    assert found.terms[0].milliseconds == milliseconds
    untimed = breakdown([ran("a_kernel", milliseconds)], [], row=replace(ROW, device_ms=None))
    assert not untimed.shares_card and not untimed.misses_time


def test_nothing_is_said_without_a_watched_call_or_without_times() -> None:
    assert breakdown_of(ROW, {}) is None
    assert breakdown_of(ROW, {"verdict": {"ran": None}}) is None
    assert breakdown_of(ROW, details([], [])) is None
    assert breakdown_of(ROW, details([ran("a_kernel", None)], [])) is None


def test_what_is_published_has_the_largest_kernels_only() -> None:
    seen = [ran(f"k{at}_kernel", 0.01 * (at + 1)) for at in range(SHOWN + 3)]
    found = breakdown(seen, [launched(f"k{SHOWN}_kernel", 0.1, 0.123456)])
    plain = found.to_json()
    assert len(plain["kernels"]) == len(found.shown) == SHOWN == 12
    assert plain["others"] == len(found.others) == 3
    assert [it["ms"] for it in plain["kernels"]] == [
        pytest.approx(0.15 - 0.01 * at) for at in range(SHOWN)
    ]
    assert plain["kernels"][2] == {
        "name": f"k{SHOWN}_kernel",
        "maker": "its own",
        "family": "rows",
        "calls": 1,
        "ms": 0.13,
        "floor_ms": 0.1235,
    }


def test_families_are_counted_by_problem() -> None:
    plan = [planned("a", 0, "conv"), planned("b", 0, "rows"), planned("c", 0, "conv")]
    left = replace(ROW, left_to_pytorch=(LeftCall(operator="aten.mm", why=""),))
    assert families_of(ROW, details([], plan)) == ("conv", "rows")
    assert families_of(left, {}) == ("library",)
    counted = count_families([("library", "rows"), ("library",), ("conv", "rows"), ("attention",)])
    assert list(counted.items()) == [
        ("rows", 2),
        ("attention", 1),
        ("conv", 1),
        ("library", 2),
    ]
