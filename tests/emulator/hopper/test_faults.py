"""Asynchronous kernels with one mistake each: all are reported, and the right kernel is not."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from kernelwright.emulator import FindingKind

Build = Callable[..., Any]

RACE, DEADLOCK = FindingKind.RACE, FindingKind.DEADLOCK
DIVERGENCE, UNSUPPORTED = FindingKind.BARRIER_DIVERGENCE, FindingKind.UNSUPPORTED
ILLEGAL, TIMEOUT, FAILURE = 700, 702, 719


def _kinds(unit: Any) -> set[FindingKind]:
    return {finding.kind for finding in unit.session.findings}


def _messages(unit: Any) -> str:
    return "\n".join(f"{f.location} {f.message}" for f in unit.session.findings)


def _multiply(unit: Any, mistake: int) -> int:
    lhs, rhs = torch.randn(64, 16).half(), torch.randn(64, 16).half()
    return int(unit.run("run_multiply_stored", lhs, rhs, torch.zeros(128 * 32), mistake))


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(
    ("mistake", "error", "kinds", "message"),
    [
        pytest.param(0, 0, set(), "", id="right"),
        pytest.param(1, 0, {RACE}, "without fence.proxy.async", id="no proxy fence"),
        pytest.param(2, 0, {RACE}, "without fence.proxy.async", id="proxy fence before the stores"),
        pytest.param(3, 0, {RACE}, "wrote with no barrier in between", id="no block barrier"),
        pytest.param(4, 0, {RACE}, "no wgmma.wait_group stands in between", id="no wait group"),
        pytest.param(5, 0, {RACE}, "no wgmma.wait_group stands", id="wait for an older group"),
        pytest.param(6, 0, {RACE}, "writes sums of a wgmma", id="writes sums in flight"),
        pytest.param(7, 0, {RACE}, "since the last wgmma.fence", id="no product fence"),
        pytest.param(8, 0, {RACE}, "that wgmma instructions read", id="overwrites an operand"),
        pytest.param(9, FAILURE, {DIVERGENCE}, "different matrices", id="different matrices"),
    ],
)
def test_products_of_stored_matrices(
    build: Build, seed: int, mistake: int, error: int, kinds: set[FindingKind], message: str
) -> None:
    unit = build("faults", order_seed=seed)
    assert _multiply(unit, mistake) == error
    assert kinds <= _kinds(unit)
    assert bool(kinds) == bool(_kinds(unit))
    assert message in _messages(unit)


def test_findings_name_the_line_of_the_access(build: Build) -> None:
    unit = build("faults")
    assert _multiply(unit, 4) == 0
    lines = unit.path.read_text().splitlines()
    marked = {n for n, line in enumerate(lines, 1) if line.endswith("// MARK reads sums")}
    assert {finding.line for finding in unit.session.findings} == marked


@pytest.mark.parametrize(
    ("lapse", "message"),
    [
        pytest.param(0, "", id="right"),
        pytest.param(1, "without fence.proxy.async", id="no proxy fence"),
        pytest.param(2, "with no barrier in between", id="no warp barrier"),
        pytest.param(3, "before the thread had waited for it", id="overwrites what is stored"),
        pytest.param(4, "may still read shared memory", id="leaves a store"),
    ],
)
def test_stores_of_boxes(build: Build, lapse: int, message: str) -> None:
    unit = build("faults")
    rows = torch.randn(5, 32)
    out = torch.full_like(rows, torch.nan)
    assert unit.run("run_store_rows", rows, out, 5, lapse) == 0
    assert message in _messages(unit)
    if not message:
        assert unit.session.findings == ()
        assert torch.equal(out, rows)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(
    ("slip", "error", "kinds", "message"),
    [
        pytest.param(0, 0, set(), "", id="right"),
        pytest.param(1, TIMEOUT, {DEADLOCK}, "of 'empty'", id="wrong parity"),
        pytest.param(2, None, {RACE}, "bulk copy", id="no wait"),
        pytest.param(3, TIMEOUT, {DEADLOCK}, "16 bytes that were announced", id="too many bytes"),
        pytest.param(4, TIMEOUT, {DEADLOCK}, "16 bytes came that nobody", id="too few bytes"),
        pytest.param(5, None, {RACE}, "bulk copy", id="no bytes"),
        pytest.param(6, None, {RACE}, "a bulk copy overwrites", id="reused too early"),
        pytest.param(7, 0, {RACE}, "with no barrier in between", id="released too early"),
        pytest.param(8, None, {DIVERGENCE}, "arrives once more than", id="arrives twice"),
        pytest.param(9, 0, {RACE}, "without a fence after it", id="no fence after init"),
        pytest.param(11, 0, {RACE}, "nobody waits for", id="leaves a copy"),
        pytest.param(12, None, {RACE}, "bulk copy", id="another barrier"),
    ],
)
def test_pipelines(
    build: Build, seed: int, slip: int, error: int | None, kinds: set[FindingKind], message: str
) -> None:
    unit = build("faults", order_seed=seed)
    data, out = torch.randn(7, 32), torch.zeros(7, 32)
    code = unit.run("run_pass_rows", data, 7, out, slip)
    assert error is None or code == error
    assert kinds <= _kinds(unit)
    assert bool(kinds) == bool(_kinds(unit))
    assert message in _messages(unit)
    if slip == 0:
        assert torch.equal(out, data + 1)


def test_barriers_need_a_barrier_after_they_are_made(build: Build) -> None:
    for seed in range(2):
        unit = build("faults", order_seed=seed)
        data, out = torch.randn(7, 32), torch.zeros(7, 32)
        unit.run("run_pass_rows", data, 7, out, 10)
        assert _kinds(unit) & {RACE, FindingKind.UNINITIALISED_READ}


@pytest.mark.parametrize(
    ("taken", "error", "kind"),
    [(240, TIMEOUT, DEADLOCK), (100, FAILURE, UNSUPPORTED), (264, FAILURE, UNSUPPORTED)],
)
def test_registers_that_there_are_not(
    build: Build, taken: int, error: int, kind: FindingKind
) -> None:
    unit = build("faults")
    assert unit.run("run_take", taken) == error
    assert _kinds(unit) == {kind}
    assert "setmaxnreg" in _messages(unit)


def test_barrier_for_different_numbers_of_threads(build: Build) -> None:
    unit = build("faults")
    unit.run("run_meet_unequally", torch.zeros(64, dtype=torch.int32))
    assert DIVERGENCE in _kinds(unit)


def test_block_that_leaves_its_cluster_too_early(build: Build) -> None:
    unit = build("faults")
    assert unit.run("run_leave_cluster", 0) == 0
    assert unit.session.findings == ()


@pytest.mark.parametrize("cluster", [1, 2])
def test_asynchronous_store_of_a_block_alone(build: Build, cluster: int) -> None:
    unit = build("faults")
    out = torch.zeros(2)
    assert unit.run("run_send_words", out, cluster) == (0 if cluster == 2 else FAILURE)
    if cluster == 2:
        assert out.tolist() == [4, 4]
        assert unit.session.findings == ()
    else:
        assert _kinds(unit) == {UNSUPPORTED}
        assert "in a cluster of one block" in _messages(unit)


@pytest.mark.parametrize("waits", [0, 1])
def test_kernel_that_starts_before_the_one_before_ends(build: Build, waits: int) -> None:
    unit = build("faults")
    flag = torch.zeros(3, dtype=torch.int32)
    assert unit.run("run_dependent", flag, waits) == 0
    assert flag[2] == 1
    assert _kinds(unit) == (set() if waits else {RACE})
    assert waits or "griddepcontrol.wait" in _messages(unit)


def test_kernels_that_overlap_are_seen_however_many_ran_before(build: Build) -> None:
    unit = build("faults")
    flag = torch.zeros(3, dtype=torch.int32)
    for _ in range(40):  # launches are numbered with six bits
        assert unit.run("run_dependent", flag, 0) == 0
    assert [finding.count for finding in unit.session.findings] == [40]
