"""The trusted child: large results row by row, what a rounding loses, wrong answers."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from kernelwright.problem import load_problem
from kernelwright.verify.cases import Case, Weights
from kernelwright.verify.distributions import Distribution
from kernelwright.verify.records import to_plain
from kernelwright.verify.tolerance import NO_LESS_ACCURATE, ErrorMetrics, Oracle, rule
from kernelwright.worker.errors import OracleMemoryError
from kernelwright.worker.process.requests import Role, SizesReply, SizesRequest, StartRequest
from kernelwright.worker.process.tensors import write_tensor
from kernelwright.worker.roles import large_results
from kernelwright.worker.roles import reference as subject
from kernelwright.worker.roles.magnitudes import counting_products
from kernelwright.worker.roles.reference import Reference
from kernelwright.worker.roles.subject import Subject
from kernelwright.worker.roles.table import make_host
from kernelwright.worker.timeline import Timeline

PROBLEM = """
import torch
from torch import nn
class Model(nn.Module):
    def forward(self, x):
        return FORWARD
def get_inputs():
    return [torch.rand(64, 32)]
def get_init_inputs():
    return []
"""
Make = Callable[[str], Reference]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """The reference of `def forward(self, x): return ...`."""

    def make_reference(forward: str) -> Reference:
        path = tmp_path / "problem.py"
        path.write_text(PROBLEM.replace("FORWARD", forward))
        return Reference(load_problem(path), torch.device("cpu"))

    return make_reference


def measured(reference: Reference, case: Case, folder: Path, result: Tensor) -> ErrorMetrics:
    header = write_tensor(folder, "result.bin", "output", result)
    (metrics,) = reference.compare(case, folder, (header,))
    return metrics


def inputs(case: Case) -> Tensor:
    torch.manual_seed(case.seed)
    return torch.rand(64, 32)


@pytest.mark.parametrize(
    ("forward", "pieces"),
    [
        ("torch.sigmoid(x) * 3", 8),
        ("x.softmax(dim=1)", 8),
        ("torch.where(x > 0.5, x, torch.nan)", 8),
        # Rows that depend on each other are not taken apart.
        ("x - x.mean(dim=0)", 0),
        ("x.sum()", 0),
    ],
)
def test_large_results_are_compared_row_by_row(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forward: str, pieces: int
) -> None:
    case = Case(seed=3)
    whole = make(forward)
    whole.run(case)
    right = eval(forward, {"x": inputs(case), "torch": torch})
    wrong = right * 1.001
    expected = [measured(whole, case, tmp_path, tensor) for tensor in (right, wrong)]
    monkeypatch.setattr(subject, "_LARGE", 1)
    monkeypatch.setattr(large_results, "_PIECE", 2048)
    calls = []
    run = large_results.RowOracle.run

    def count(self: large_results.RowOracle, start: int, stop: int, seed: int) -> object:
        calls.append((start, stop))
        return run(self, start, stop, seed)

    monkeypatch.setattr(large_results.RowOracle, "run", count)
    large = make(forward)
    large.run(case)
    found = [measured(large, case, tmp_path, tensor) for tensor in (right, wrong)]
    assert [metrics.oracle for metrics in found] == 2 * [Oracle.FLOAT64]
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.candidate_rmse == pytest.approx(theirs.candidate_rmse, rel=1e-6)
        assert mine.candidate_worst == pytest.approx(theirs.candidate_worst, rel=1e-6)
        assert mine.worst_index == theirs.worst_index
    rulings = [rule(metrics, NO_LESS_ACCURATE).accepted for metrics in found]
    assert rulings == [True, False]
    # Three runs show that the rows are independent, and then each is run once, for each of two.
    assert sum(stop - start == 8 for start, stop in calls) - 2 == 2 * pieces or pieces == 0


def test_large_results_are_compared_in_few_pieces(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subject, "_LARGE", 1)
    for name, value in (("_PIECE", 1), ("_MOST_PIECES", 4)):
        monkeypatch.setattr(large_results, name, value)
    rows: list[int] = []
    run = large_results.RowOracle.run

    def count(self: large_results.RowOracle, start: int, stop: int, seed: int) -> object:
        rows.append(stop - start)
        return run(self, start, stop, seed)

    monkeypatch.setattr(large_results.RowOracle, "run", count)
    large = make("x + 1.0")
    large.run(Case())
    assert measured(large, Case(), tmp_path, inputs(Case()) + 1.0).oracle is Oracle.FLOAT64
    assert rows[-4:] == [16, 16, 16, 16]


def test_memory_is_given_back_once_in_a_case(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    released: list[str] = []
    at = ""
    monkeypatch.setattr(Subject, "release", lambda _: released.append(at))
    reference, case = make("x + 1.0"), Case()
    at = "run"
    reference.run(case)
    at = "compare"
    measured(reference, case, tmp_path, inputs(case) + 1.0)
    at = "probe"
    reference.probe(case)
    assert released == ["compare"]


@pytest.mark.parametrize(
    ("crowded", "error", "refused"), [(True, 1e-3, True), (True, 0.5, True), (False, 1e-3, False)]
)
def test_without_memory_for_the_oracle_nobody_is_called_wrong_beside_others(
    make: Make,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    crowded: bool,
    error: float,
    refused: bool,
) -> None:
    def has_no_room(*_: object, **__: object) -> object:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr("kernelwright.verify.oracle._run_raised", has_no_room)
    monkeypatch.setattr(Subject, "is_crowded", lambda _: crowded)
    reference, case = make("x + 1.0"), Case()
    reference.run(case)
    right = inputs(case) + 1.0
    near = measured(reference, case, tmp_path, right)
    assert near.oracle is Oracle.REFERENCE
    assert rule(near, NO_LESS_ACCURATE).accepted
    if refused:
        with pytest.raises(OracleMemoryError, match="out of memory"):
            measured(reference, case, tmp_path, right * (1 + error))
    else:
        metrics = measured(reference, case, tmp_path, right * (1 + error))
        assert not rule(metrics, NO_LESS_ACCURATE).accepted


@pytest.mark.parametrize("crowded", [True, False])
def test_without_memory_for_rounded_runs_nobody_is_called_wrong_beside_others(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crowded: bool
) -> None:
    def has_no_room(*_: object, **__: object) -> object:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(Subject, "is_crowded", lambda _: crowded)
    reference, case = make("x + 1.0"), Case()
    reference.run(case)
    wrong = (inputs(case) + 1.0) * (1 + 1e-3)
    measured(reference, case, tmp_path, inputs(case) + 1.0)
    monkeypatch.setattr("kernelwright.verify.oracle._raised_copy", has_no_room)
    if crowded:
        with pytest.raises(OracleMemoryError, match="out of memory"):
            measured(reference, case, tmp_path, wrong)
    else:
        assert not rule(measured(reference, case, tmp_path, wrong), NO_LESS_ACCURATE).accepted


def test_large_results_that_are_integers_have_to_be_equal(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subject, "_LARGE", 1)
    monkeypatch.setattr(large_results, "_PIECE", 2048)
    reference, case = make("x.argmax(dim=1)"), Case(seed=3)
    reference.run(case)
    right = inputs(case).argmax(dim=1)
    for result, accepted in ((right, True), (31 - right, False)):
        metrics = measured(reference, case, tmp_path, result)
        assert rule(metrics, NO_LESS_ACCURATE).accepted == accepted


def test_a_sum_that_cancels_may_lose_what_any_sum_loses(make: Make, tmp_path: Path) -> None:
    case = Case(distribution=Distribution.CANCELLING)
    reference = make("(x[:, :16] + x[:, 16:]).sum(dim=1)")
    run = reference.run(case)
    assert run.facts.outputs
    x = reference._subject.arguments(case)[0]
    assert isinstance(x, Tensor)
    other_order = torch.zeros(64)
    for column in x.unbind(dim=1):
        other_order += column
    metrics = measured(reference, case, tmp_path, other_order)
    exactly = NO_LESS_ACCURATE.multiplier * metrics.reference_rmse
    assert metrics.candidate_rmse > 2 * exactly, "the test would show nothing"
    assert rule(metrics, NO_LESS_ACCURATE).accepted
    short = (x.bfloat16().float()[:, :16] + x.bfloat16().float()[:, 16:]).sum(dim=1)
    assert not rule(measured(reference, case, tmp_path, short), NO_LESS_ACCURATE).accepted


def test_which_of_two_equal_numbers_is_larger_is_nobodys_fault(make: Make, tmp_path: Path) -> None:
    case = Case(distribution=Distribution.INTEGERS)
    reference = make("x.argmax(dim=1)")
    reference.run(case)
    x = reference._subject.arguments(case)[0]
    assert isinstance(x, Tensor)
    last = 31 - x.flip(1).argmax(dim=1)
    assert not torch.equal(last, x.argmax(dim=1)), "the test would show nothing"
    assert rule(measured(reference, case, tmp_path, last), NO_LESS_ACCURATE).accepted
    smallest = x.argmin(dim=1)
    assert not rule(measured(reference, case, tmp_path, smallest), NO_LESS_ACCURATE).accepted


def test_what_a_problem_cannot_tell_apart_is_found_by_trying(make: Make) -> None:
    case = Case()
    constant = make("x - x")
    constant.run(case)
    left = set(constant.probe(case))
    assert {"zeros", "a constant", "one that ignores input[0]"} <= left
    sensible = make("x * 2")
    sensible.run(case)
    assert sensible.probe(case) == ()
    # Large inputs tell apart what those of the problem do not.
    saturated = make("torch.relu(x - 4)")
    saturated.run(case)
    assert "zeros" in saturated.probe(case)
    wide = Case(distribution=Distribution.LARGE)
    saturated.run(wide)
    assert saturated.probe(wide) == ()


@pytest.mark.parametrize(
    ("forward", "terms"),
    [("x * 2", 1), ("x.sum(dim=1)", 32), ("x @ x.T", 0.5 + 32), ("x.sum()", 64 * 32)],
)
def test_the_terms_of_a_sum_are_counted(
    make: Make, tmp_path: Path, forward: str, terms: float
) -> None:
    reference, case = make(forward), Case()
    reference.run(case)
    result = eval(forward, {"x": inputs(case)})
    assert measured(reference, case, tmp_path, result).terms == terms


def test_loaded_weights_do_not_depend_on_the_call_before(tmp_path: Path) -> None:
    path = tmp_path / "problem.py"
    text = PROBLEM.replace("FORWARD", "self.norm(x)").replace(
        "    def forward",
        "    def __init__(self):\n        super().__init__()\n"
        "        self.norm = nn.BatchNorm1d(32)\n    def forward",
    )
    states = []
    for factor in ("", "2 * "):
        text_now = text.replace(
            "get_inputs():\n    return [", f"get_inputs():\n    return [{factor}"
        )
        path.write_text(text_now)
        problem = load_problem(path)
        case = Case(weights=Weights.LOADED)
        module_subject = Subject(problem, torch.device("cpu"))
        resident = module_subject.construct(case, module_subject.definition(()).build)
        states.append(resident.module.state_dict())
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert (states[0]["norm.running_mean"] != 0).all()


SPECIAL = """
import torch
from torch import nn
rows, features, width = 512, 64, 256
class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
    def forward(self, x):
        return x / x.norm(dim=1, keepdim=True)
def get_inputs():
    return [torch.rand(rows, features, width)]
def get_init_inputs():
    return [features]
"""


def test_a_large_problem_is_asked_at_sizes_that_a_specialised_file_takes(tmp_path: Path) -> None:
    path = tmp_path / "problem.py"
    path.write_text(SPECIAL)
    host = make_host(
        to_plain(
            StartRequest(
                role=Role.REFERENCE,
                problem_path=str(path),
                problem_source=SPECIAL,
                candidate_path="",
                folder=str(tmp_path),
                device="cpu",
                emulate=False,
                order_seed=0,
                threads=1,
            )
        ),
        Timeline(),
    )
    request = SizesRequest(bytes=1 << 18, flops=1 << 24, shrink=False, large=1 << 20)
    reply = host.answer("sizes", to_plain(request))
    assert isinstance(reply, SizesReply)
    first, *others = (dict(sizes) for sizes in reply.others)
    assert "features" not in first
    assert "rows" in first
    assert any("features" in sizes for sizes in others)
    # Sizes of whole tiles, as its own are; a file need not take small primes.
    assert all(size % 32 == 0 for size in first.values())
    ragged = [dict(sizes) for sizes in reply.ragged]
    assert {"rows": 19, "features": 13, "width": 17} in ragged
    assert not [sizes for sizes in ragged if all(size % 32 == 0 for size in sizes.values())]


VANISHES = "(x - x.mean(dim=1, keepdim=True)).mean(dim=1)"
"""Zero, but for what float32 rounds away."""
ROUNDS = "(x - x.half().float()).sum(dim=1)"
"""Nothing is rounded in float64, where this is exactly zero; in float32 it is no rounding error."""


def test_what_is_zero_but_for_rounding_may_be_rounded_otherwise(make: Make, tmp_path: Path) -> None:
    reference = make(VANISHES)
    case = Case(seed=5)
    reference.run(case)
    # A few roundings of the input, though the reference had the luck of fewer.
    for right in (torch.zeros(64), torch.full((64,), 1e-8), torch.full((64,), 2e-7)):
        metrics = measured(reference, case, tmp_path, right)
        assert rule(metrics, NO_LESS_ACCURATE).accepted, metrics
    wrong = measured(reference, case, tmp_path, torch.full((64,), 1e-5))
    assert not rule(wrong, NO_LESS_ACCURATE).accepted


def test_what_float64_does_not_compute_is_not_taken_for_rounding(
    make: Make, tmp_path: Path
) -> None:
    reference = make(ROUNDS)
    case = Case(seed=5)
    reference.run(case)
    metrics = measured(reference, case, tmp_path, torch.zeros(64))
    assert metrics.oracle is Oracle.REFERENCE
    assert not rule(metrics, NO_LESS_ACCURATE).accepted


SENSITIVE = "(x * 5e6).sin()"
"""Roundings of the input come to a tenth of the result."""


def test_an_oracle_holds_where_rounding_the_inputs_explains_the_reference(
    make: Make, tmp_path: Path
) -> None:
    reference = make(SENSITIVE)
    case = Case(seed=5)
    reference.run(case)
    exact = eval(SENSITIVE, {"x": inputs(case).double(), "torch": torch})
    metrics = measured(reference, case, tmp_path, exact.float())
    assert metrics.reference_rmse > 0.05 * metrics.rms, "the case is no sensitive one"
    assert metrics.oracle is Oracle.FLOAT64
    assert rule(metrics, NO_LESS_ACCURATE).accepted
    wrong = measured(reference, case, tmp_path, -exact.float())
    assert not rule(wrong, NO_LESS_ACCURATE).accepted


def test_where_rounding_leaves_nothing_of_the_result_it_is_at_least_as_large(
    make: Make, tmp_path: Path
) -> None:
    reference = make("(x * 5e8).sin()")
    case = Case(seed=5)
    reference.run(case)
    exact = (inputs(case).double() * 5e8).sin()
    accepted = {
        name: rule(measured(reference, case, tmp_path, result.float()), NO_LESS_ACCURATE).accepted
        for name, result in (("exact", exact), ("zeros", 0 * exact), ("small", 0.2 * exact))
    }
    assert accepted == {"exact": True, "zeros": False, "small": False}


SHORTENED = """torch.conv1d(
            ((x + 130).view(torch.int32) + 4096 & -8192).view(torch.float32)
            if x.dtype == torch.float32 else x + 130,
            torch.eye(64, dtype=x.dtype)[:, :, None],
        ) - 130"""
"""A library's convolution that rounds its operands to TF32; these are large beside their result."""


def test_an_oracle_holds_where_shortened_operands_of_convolutions_explain_the_reference(
    make: Make, tmp_path: Path
) -> None:
    reference = make(SHORTENED)
    case = Case(seed=5)
    reference.run(case)
    exact = inputs(case)
    metrics = measured(reference, case, tmp_path, exact)
    assert metrics.reference_rmse > 0.05 * metrics.rms, "the case is no sensitive one"
    assert metrics.oracle is Oracle.FLOAT64
    assert rule(metrics, NO_LESS_ACCURATE).accepted
    for wrong in (exact.flip(0), 0.8 * exact):
        metrics = measured(reference, case, tmp_path, wrong)
        assert not rule(metrics, NO_LESS_ACCURATE).accepted


RECURRENT = """torch._cudnn_rnn(
            x[None] + 130, [torch.eye(32, dtype=x.dtype), torch.zeros(32, 32, dtype=x.dtype)],
            2, None, torch.zeros(1, 64, 32, dtype=x.dtype), None,
            0, 32, 0, 1, False, 0.0, False, False, [], None,
        )[0][0] - 130"""
"""A library's recurrent layer whose operands are large beside the result."""


def nearest(tensor: Tensor, dropped: int) -> Tensor:
    """float32 without its `dropped` last bits, to nearest: 13 leave TF32, 16 leave bfloat16."""
    half, kept = 1 << dropped - 1, -1 << dropped
    return ((tensor.view(torch.int32) + half) & kept).view(torch.float32)


def layer_of_library(x: Tensor, weights: list[Tensor], *others: object) -> tuple[Tensor, ...]:
    """One layer of ReLU units on sequences of one step, float32 multiplied as TF32."""
    operands = [x, weights[0]]
    if x.dtype == torch.float32:
        operands = [nearest(operand, 13) for operand in operands]
    y = (operands[0] @ operands[1].T).relu()
    return y, y.clone(), y.new_empty(0), y.new_empty(0), y.new_empty(0)


def test_an_oracle_holds_where_shortened_operands_of_recurrent_layers_explain_the_reference(
    make: Make, tmp_path: Path
) -> None:
    with torch.library._scoped_library("aten", "IMPL") as library:
        library.impl("_cudnn_rnn", layer_of_library, "CPU")
        reference = make(RECURRENT)
        case = Case(seed=5)
        reference.run(case)
        exact = inputs(case)
        results = {
            "float32": (exact + 130) - 130,
            "TF32": nearest(exact + 130.03, 13) - 130.03,
            "bfloat16": nearest(exact + 130, 16) - 130,
            "flipped": exact.flip(0),
        }
        metrics = {
            name: measured(reference, case, tmp_path, result) for name, result in results.items()
        }
    first = metrics["float32"]
    assert first.reference_rmse > 0.05 * first.rms, "the case is no sensitive one"
    assert all(it.oracle is Oracle.FLOAT64 for it in metrics.values())
    accepted = {name: rule(it, NO_LESS_ACCURATE).accepted for name, it in metrics.items()}
    assert accepted == {"float32": True, "TF32": True, "bfloat16": False, "flipped": False}


def test_products_of_recurrent_layers_of_a_library_are_counted() -> None:
    weights = [torch.empty(*shape, device="meta") for shape in ((768, 128), (768, 256), (768,))]
    with counting_products() as counted:
        torch._cudnn_rnn(
            *(torch.empty(7, 10, 128, device="meta"), [*weights, weights[-1]], 4, None),
            *(torch.empty(1, 10, 256, device="meta"), None),
            *(3, 256, 0, 1, False, 0.0, False, False, [], None),
        )
    assert counted.get_total_flops() == 2 * 7 * 10 * 768 * (128 + 256)


@pytest.mark.parametrize(
    ("forward", "accepted"),
    [
        # Whole numbers, of which the reference alone has no rounding in between.
        ("(x.mul(8).round() + 1024).mul(1.1).sub(1126.4)", True),
        ("(x.mul(8).round().double() + 1024).mul(1.1).sub(1126.4).float()", False),
    ],
)
def test_roundings_in_between_are_allowed_where_the_reference_makes_them(
    make: Make, tmp_path: Path, forward: str, accepted: bool
) -> None:
    reference = make(forward)
    case = Case(seed=5)
    reference.run(case)
    x = inputs(case).mul(8).round()
    exact = (x.double() + 1024).mul(1.1).sub(1126.4)
    # Each off by a rounding of what is subtracted from, in turn up and down.
    rounding = torch.where(torch.arange(x.numel()).reshape(x.shape) % 2 == 0, 1.0, -1.0) * 2.0**-13
    metrics = measured(reference, case, tmp_path, (exact + 2 * rounding).float())
    assert rule(metrics, NO_LESS_ACCURATE).accepted == accepted, metrics


@pytest.mark.parametrize(
    "forward",
    [
        "torch.native_dropout(x, 0.25, True)[0] / 3",
        "x * torch.rand_like(x) / 3",
        "x * torch.empty_like(x).uniform_(0.5, 2.0) / 3",
        "x * torch.randn(64, 32, dtype=x.dtype) / 3",
    ],
)
def test_the_oracle_draws_the_random_numbers_of_the_reference(
    make: Make, tmp_path: Path, forward: str
) -> None:
    reference = make(forward)
    case = Case(seed=5)
    reference.run(case)
    x = inputs(case)
    torch.manual_seed(case.seed)
    right = eval(forward, {"x": x, "torch": torch})
    metrics = measured(reference, case, tmp_path, right)
    assert metrics.oracle is Oracle.FLOAT64
    assert rule(metrics, NO_LESS_ACCURATE).accepted
    # Ten bits, as TF32 has, are too few where numbers and not the reference are compared.
    short = measured(reference, case, tmp_path, right.half().float())
    assert not rule(short, NO_LESS_ACCURATE).accepted


# Where PyTorch adds up one way a NaN, and where it adds up another way infinity.
KINDS = "torch.where(x > 0.5, float('nan') if x.dtype == torch.float32 else float('inf'), x)"


@pytest.mark.parametrize(("forward", "accepted"), [(KINDS, True), ("(x * 1e39 - x * 1e39)", False)])
def test_nan_for_infinity_where_pytorch_has_both(
    make: Make, tmp_path: Path, forward: str, accepted: bool
) -> None:
    reference = make(forward)
    case = Case(seed=5)
    reference.run(case)
    result = eval(forward, {"x": inputs(case), "torch": torch}).nan_to_num(nan=torch.inf)
    metrics = measured(reference, case, tmp_path, result)
    assert rule(metrics, NO_LESS_ACCURATE).accepted == accepted
    # A number in place of either is wrong in any case.
    number = measured(reference, case, tmp_path, result.nan_to_num(posinf=0.25))
    assert not rule(number, NO_LESS_ACCURATE).accepted


KEEPS = """
import torch
from torch import nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("kept", torch.zeros(32))
    def forward(self, x):
        self.kept.copy_((x * 1e30 * x.sign() * 1e30).sum(dim=0))
        return x * 2
def get_inputs():
    return [torch.rand(64, 32)]
def get_init_inputs():
    return []
"""


@pytest.mark.parametrize(("value", "accepted"), [(torch.nan, True), (1.0, False)])
def test_statistics_are_lost_to_nan_as_to_infinity(
    tmp_path: Path, value: float, accepted: bool
) -> None:
    path = tmp_path / "problem.py"
    path.write_text(KEEPS)
    reference = Reference(load_problem(path), torch.device("cpu"))
    case = Case(seed=5)
    reference.run(case)
    header = write_tensor(tmp_path, "kept.bin", "state.kept", torch.full((32,), value))
    (metrics,) = reference.compare(case, tmp_path, (header,))
    assert rule(metrics, NO_LESS_ACCURATE).accepted == accepted


AVERAGES = """
import torch
from torch import nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(32))
        self.register_buffer("spread", torch.ones(32))
        self.register_buffer("calls", torch.tensor(0))
    def forward(self, x):
        centred = x - x.mean(dim=0)
        self.mean.lerp_(centred.mean(dim=0), 0.1)
        self.spread.lerp_(centred.var(dim=0), 0.1)
        self.calls.add_(1)
        return centred
def get_inputs():
    return [torch.rand(64, 32)]
def get_init_inputs():
    return []
"""


def test_state_that_changes_by_a_rounding_may_stay(tmp_path: Path) -> None:
    path = tmp_path / "problem.py"
    path.write_text(AVERAGES)
    reference = Reference(load_problem(path), torch.device("cpu"))
    case = Case(seed=5)
    changed = reference.run(case).facts.changed
    assert changed == ("state.mean", "state.spread", "state.calls")
    kept = reference.compare(case, tmp_path, (), changed)
    accepted = {it.name: rule(it, NO_LESS_ACCURATE).accepted for it in kept}
    assert accepted == {"state.mean": True, "state.spread": False, "state.calls": False}


LUCKY = """
import torch
from torch import nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(32))
        self.register_buffer("weight", torch.zeros(32))
    def forward(self, x):
        lost = torch.zeros_like(self.mean) if x.dtype == torch.float32 else LOST
        self.mean.lerp_(lost, 0.1)
        return x + self.weight
def get_inputs():
    return [torch.rand(64, 32)]
def get_init_inputs():
    return []
"""


A_ROUNDING = "torch.full_like(self.mean, 1e-17)"
OF_A_CONVOLUTION = (
    "torch.conv1d((x.exp() - x.exp().mean(0))[None], torch.ones(1, 64, 1) / 64).flatten()"
)
"""TF32 leaves more of it, and by luck nothing."""


@pytest.mark.parametrize(
    ("lost", "name", "change", "compared"),
    [
        (A_ROUNDING, "mean", 1e-8, (True,)),
        (A_ROUNDING, "mean", 2e-6, (False,)),
        (OF_A_CONVOLUTION, "mean", 2e-6, (True,)),
        (OF_A_CONVOLUTION, "mean", 1e-4, (False,)),
        (A_ROUNDING, "weight", 1e-8, ()),
    ],
)
def test_state_that_only_rounding_left_as_it_was_may_change_by_one(
    tmp_path: Path, lost: str, name: str, change: float, compared: tuple[bool, ...]
) -> None:
    path = tmp_path / "problem.py"
    path.write_text(LUCKY.replace("LOST", lost))
    reference = Reference(load_problem(path), torch.device("cpu"))
    case = Case(seed=5)
    assert reference.run(case).facts.changed == ()
    header = write_tensor(tmp_path, "state.bin", f"state.{name}", torch.full((32,), change))
    found = reference.compare(case, tmp_path, (header,))
    assert tuple(rule(it, NO_LESS_ACCURATE).accepted for it in found) == compared
    assert "Infinity" not in json.dumps(to_plain(found))
