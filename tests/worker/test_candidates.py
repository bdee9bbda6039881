"""Every hand-written candidate gets the verdict it deserves, for the reason it deserves."""

import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from kernelwright.problem import Problem, load_problem
from kernelwright.verify.cases import Case, Demand, Demands, Layout
from kernelwright.verify.verdict import DROP_IN, Outcome, Status, Verdict

CANDIDATES = Path(__file__).parent / "candidates"
Judge = Callable[..., Verdict]


@pytest.mark.parametrize(
    ("name", "status", "evidence"),
    [
        ("half_precision", Status.WRONG_VALUES, "RMSE"),
        ("one_element_off", Status.WRONG_VALUES, "RMSE"),
        ("zeros", Status.WRONG_VALUES, "is 1.00e+00 of the RMS"),
        (
            "drops_nan",
            Status.WRONG_WHERE_NOT_FINITE,
            "NaN or Inf is not where the reference has it",
        ),
        ("one_size", Status.WRONG_VALUES, "RMSE"),
        ("wrong_shape", Status.WRONG_SHAPE_OR_DTYPE, "[32, 48]"),
        ("wrong_dtype", Status.WRONG_SHAPE_OR_DTYPE, "torch.float64"),
        ("wrong_structure", Status.WRONG_SHAPE_OR_DTYPE, "(T), should be T"),
        ("other_weights", Status.WRONG_VALUES, "RMSE"),
        ("mutates_input", Status.INPUT_CHANGED, "input[0] was changed"),
        ("aliases_input", Status.INPUT_CHANGED, "input[0] was changed"),
        ("returns_static_buffer", Status.RESULT_OVERWRITTEN, "the result of the next call"),
        ("nondeterministic", Status.NOT_DETERMINISTIC, "two runs on the same inputs differ"),
        ("raises", Status.CRASHED, "RuntimeError: no kernel for this at"),
        ("system_exit", Status.CRASHED, "SystemExit"),
        ("constructor_mismatch", Status.BUILD_FAILED, "takes 2 positional arguments"),
        ("import_error", Status.BUILD_FAILED, 'identifier "y" is undefined'),
    ],
)
def test_a_wrong_candidate_is_refused(
    judge_here: Judge, affine: Problem, name: str, status: Status, evidence: str
) -> None:
    verdict = judge_here(affine, CANDIDATES / f"{name}.py")
    assert verdict.status is status
    assert evidence in verdict.summary
    assert verdict.failures


def test_a_right_candidate_is_verified_on_every_planned_case(
    judge_here: Judge, affine: Problem
) -> None:
    verdict = judge_here(affine, CANDIDATES / "correct.py")
    assert verdict.status is Status.VERIFIED
    assert not verdict.warnings
    cases = {check.case for check in verdict.checks if check.name == "values"}
    words = " ".join(cases)
    assert "distribution=normal" in words
    assert "distribution=nan" in words
    assert "layout=strided" in words
    assert "layout=misaligned" in words
    assert "size:BATCH=" in words


def test_refusing_other_sizes_with_an_exception_is_no_failure(
    judge_here: Judge, affine: Problem
) -> None:
    verdict = judge_here(affine, CANDIDATES / "refuses_other_sizes.py")
    assert verdict.status is Status.VERIFIED
    refused = [check for check in verdict.checks if check.outcome is Outcome.SKIPPED]
    assert refused
    assert all("refused: ValueError: x must have 33 rows" in check.evidence for check in refused)


def test_layouts_are_a_warning_unless_demanded(judge_here: Judge, affine: Problem) -> None:
    candidate = CANDIDATES / "ignores_strides.py"
    lenient = judge_here(affine, candidate)
    assert lenient.status is Status.VERIFIED
    assert any("layout=strided" in check.case for check in lenient.warnings)
    strict = judge_here(affine, candidate, demands=Demands(layouts=Demand.REQUIRED))
    assert strict.status is Status.WRONG_VALUES
    assert "layout=strided" in strict.failures[0].case


FAULTS = """        global LOST
        LOST = LOST or not x.is_contiguous()
        if LOST:
            raise RuntimeError("CUDA error: misaligned address")
        return"""


def test_a_reference_that_loses_the_device_is_asked_anew(
    judge_here: Judge, affine: Problem, tmp_path: Path
) -> None:
    path = tmp_path / "affine.py"
    text = affine.path.read_text().replace("        return torch.relu", f"{FAULTS} torch.relu")
    path.write_text(text.replace("BATCH = 33", "LOST = False\nBATCH = 33"))
    verdict = judge_here(load_problem(path), CANDIDATES / "correct.py")
    assert verdict.status is Status.VERIFIED, verdict.summary
    asked = {check.case for check in verdict.checks if check.name == "values"}
    assert any("layout=misaligned" in case for case in asked)  # after the strided one
    assert not any("layout=strided" in case for case in asked)


def test_a_check_can_be_reproduced_by_its_case_alone(judge_here: Judge, affine: Problem) -> None:
    candidate = CANDIDATES / "ignores_strides.py"
    warning = next(check for check in judge_here(affine, candidate).warnings)
    again = judge_here(affine, candidate, cases=(Case.parse(warning.case),))
    assert again.status is Status.WRONG_VALUES
    assert again.failures[0].evidence == warning.evidence
    assert Case.parse(warning.case).layout is Layout.STRIDED
    assert warning.case in warning.reproduce


def test_a_caller_can_ask_for_less_and_the_verdict_says_so(
    judge_here: Judge, affine: Problem
) -> None:
    candidate = CANDIDATES / "drops_nan.py"
    assert judge_here(affine, candidate).status is Status.WRONG_WHERE_NOT_FINITE
    lenient = judge_here(affine, candidate, demands=Demands().asking(["nan=reported"]))
    assert lenient.status is Status.VERIFIED, lenient.summary
    assert any("distribution=nan" in check.case for check in lenient.warnings)
    said = [check.evidence for check in lenient.warnings if check.name == "demands"]
    assert said == ["less is asked than of other files: nan=reported"]


def test_the_demand_for_a_drop_in_decides_about_other_names(
    judge_here: Judge, affine: Problem
) -> None:
    candidate = CANDIDATES / "other_names.py"
    reported = judge_here(affine, candidate)
    assert reported.status is Status.NOT_DROP_IN
    assert reported.status.verified
    assert not reported.status.is_drop_in
    assert reported.summary.startswith("load_state_dict has other keys; otherwise no less accurate")
    (lost, *_) = (check for check in reported.warnings if check.name == DROP_IN)
    assert "dense.weight for linear.weight, dense.bias for linear.bias" in lost.evidence
    values = {check.case for check in reported.checks if check.name == "values"}
    assert sum("weights=other" in case for case in values) == 3  # two of them for the grade
    assert any("weights=loaded" in case for case in values), "what stands for it is loaded"
    assert any("weights=drawn" in case for case in values)
    (told,) = {check.reproduce for check in reported.checks if "weights=loaded" in check.case}
    again = Case.parse(told.split("'")[1])
    assert judge_here(affine, candidate, cases=(again,)).status is Status.VERIFIED
    required = judge_here(affine, candidate, demands=Demands().asking(["drop-in"]))
    assert required.status is Status.WRONG_STATE
    skipped = judge_here(affine, candidate, demands=Demands(drop_in=Demand.SKIPPED))
    assert skipped.status is Status.VERIFIED
    assert not any(check.name == DROP_IN for check in skipped.checks)


RIGHT = """
import time
import torch
from torch import nn

KEPT = {}

class ModelNew(nn.Module):
    def __init__(self, features, divisor):
        super().__init__()
        self.linear = nn.Linear(features, features)
        self.divisor = divisor

    def forward(self, x):
        y = torch.relu(x @ self.linear.weight.T + self.linear.bias) / self.divisor
        return y
"""
RING = """ring = KEPT.setdefault(y.shape, [torch.empty_like(y) for _ in range(5)])
        ring.append(ring.pop(0))
        return ring[0].copy_(y)"""
FEW = "return KEPT.setdefault((x.shape, *x.flatten()[:8].tolist()), y).clone()"
EVERY_OTHER = """KEPT['calls'] = KEPT.get('calls', 0) + 1
        if KEPT['calls'] % 2 or KEPT['y'].shape != y.shape:
            KEPT['y'] = y
        return KEPT['y'].clone()"""
THREAD = """import threading
        threading.Thread(target=time.sleep, args=(0.3,), name="watcher", daemon=True).start()
        return y"""
LATER = """return y.as_subclass(Later)

class Later(torch.Tensor):
    pass"""


@pytest.mark.parametrize(
    ("old", "new", "status", "evidence"),
    [
        ("return y", RING, Status.RESULT_OVERWRITTEN, "the result of a later call"),
        (
            "return y",
            "return KEPT.setdefault(x.data_ptr(), y)",
            Status.CHEATING,
            "bit for bit what an earlier call gave",
        ),
        ("return y", FEW, Status.CHEATING, "bit for bit what an earlier call gave"),
        ("return y", EVERY_OTHER, Status.CHEATING, "bit for bit what an earlier call gave"),
        ("return y", THREAD, Status.CHEATING, "still running when the call has returned: watcher"),
        ("return y", LATER, Status.CHEATING, "is a Later, a class that may compute"),
        ("return y", "time.perf_counter = time.time\n        return y", Status.CHEATING, "time"),
        ("return y", "torch.rand(1)\n        return y", Status.SIDE_EFFECT, "random generator"),
        (
            "KEPT = {}",
            "KEPT = {}\ntorch.backends.cuda.matmul.allow_tf32 = True",
            Status.SIDE_EFFECT,
            "cuda.matmul.allow_tf32: False -> True",
        ),
        ("+ self.linear.bias", "+ KEPT.setdefault('b', self.linear.bias)", None, "weights=other"),
    ],
    ids=[
        "ring",
        "by address",
        "by a few",
        "every other",
        "thread",
        "subclass",
        "clock",
        "random",
        "flag",
        "first weights",
    ],
)
def test_what_only_several_calls_or_a_look_around_show(
    judge_here: Judge,
    affine: Problem,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    old: str,
    new: str,
    status: Status | None,
    evidence: str,
) -> None:
    monkeypatch.setattr("time.perf_counter", time.perf_counter)
    path = tmp_path / "new.py"
    path.write_text(RIGHT.replace(old, new))
    verdict = judge_here(affine, path)
    assert verdict.status is (status or Status.WRONG_VALUES), verdict.summary
    assert evidence in verdict.summary + verdict.failures[0].case


NORM = """
from torch import nn, rand
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(7)
        self.gain = nn.Parameter(rand(7) * 0 + 1)
    def forward(self, x):
        return self.norm(x) * self.gain
def get_inputs():
    return [rand(40, 7)]
def get_init_inputs():
    return []
"""


@pytest.mark.parametrize(
    ("old", "new", "status"),
    [
        ("self.norm(x)", "self.norm(x)", Status.VERIFIED),
        # Right as long as gains are one and biases zero, as constructors make them.
        ("* self.gain", "", Status.WRONG_VALUES),
        ("self.norm(x)", "(self.norm(x) - self.norm.bias)", Status.WRONG_VALUES),
        # Prepared in the constructor, so that `load_state_dict` changes nothing.
        (
            ") * 0 + 1)",
            ") * 0 + 1)\n        self.old = self.gain.data.clone()",
            Status.NOT_DROP_IN,
        ),
    ],
    ids=["right", "gain ignored", "bias ignored", "prepared"],
)
def test_constants_of_a_constructor_are_not_to_be_relied_on(
    judge_here: Judge, tmp_path: Path, old: str, new: str, status: Status
) -> None:
    (tmp_path / "norm.py").write_text(NORM)
    text = NORM.replace("Model", "ModelNew").replace(old, new)
    prepared = "self.old" in text
    if prepared:
        text = text.replace("* self.gain\n", "* self.old\n")
    (tmp_path / "norm_new.py").write_text(text)
    problem = load_problem(tmp_path / "norm.py")
    verdict = judge_here(problem, tmp_path / "norm_new.py")
    assert verdict.status is status, verdict.summary
    if status is Status.WRONG_VALUES:
        assert "weights=drawn" in verdict.failures[0].case
    if prepared:
        (lost,) = (check for check in verdict.warnings if check.name == DROP_IN)
        again = judge_here(problem, tmp_path / "norm_new.py", cases=(Case.parse(lost.case),))
        assert again.status is Status.NOT_DROP_IN


@pytest.fixture(autouse=True)
def forget_candidates() -> None:
    """Candidates of earlier tests must not be found in sys.modules, nor what they set."""
    torch.backends.cuda.matmul.allow_tf32 = False
    for name in [name for name in sys.modules if name.startswith("kernelwright_candidate")]:
        del sys.modules[name]
