"""Modules in memory: on the emulator, on the CPU without it, and inside torch.compile."""

import copy
import json
import pickle
import warnings
from dataclasses import replace
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

import kernelwright as kw
from kernelwright import module_text
from kernelwright.api import OptimizeOptions, optimize_in_memory
from kernelwright.bench.measurement import Measurement, Series, Speedup, not_measured
from kernelwright.bench.statistics import Interval
from kernelwright.bench.timing import TimingPlan
from kernelwright.codegen import emit_module
from kernelwright.emulator import Session
from kernelwright.errors import UnsupportedError, UsageError
from kernelwright.machine import H200
from kernelwright.module import KernelsUnusedWarning, OptimizedModule, optimize_module
from kernelwright.worker import Baseline
from kernelwright.worker.errors import CandidateFileError

EXAMPLES = Path(__file__).parents[1] / "examples"


class Gate(nn.Module):
    """A parameter, a buffer, a child and an option."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.rand(8))
        self.register_buffer("shift", torch.rand(8))
        self.norm = nn.LayerNorm(8)

    def forward(self, x: Tensor, mask: Tensor | None = None, *, power: bool = False) -> Tensor:
        y = self.norm(x * self.scale + self.shift)
        if mask is not None:
            y = y * mask
        return y * y if power else y


class Sorted(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.sort().values


@pytest.fixture(scope="module")
def case() -> Any:
    """The model, its optimized form, and arguments, all made before the session that runs them."""
    torch.manual_seed(0)
    model = Gate().eval()
    x = torch.rand(6, 8)
    with torch.no_grad():
        fast = optimize_module(model, (x,), machine=H200)
    return model, fast, x, torch.rand(3, 8)


def runs(session: Session, module: nn.Module, *args: Any, **kwargs: Any) -> tuple[Tensor, int]:
    """The result and how many kernels it took."""
    session.take_launches()
    result = module(*args, **kwargs)
    return result, sum(session.take_launches().values())


def test_it_pickles(case: Any) -> None:
    model, fast, x, _ = case
    again = pickle.loads(pickle.dumps(fast))
    assert again.kernelwright == fast.kernelwright
    with torch.no_grad():
        assert torch.equal(again(x), model(x))


def test_state_is_the_models_own(case: Any) -> None:
    model, fast, _, _ = case
    assert isinstance(fast, Gate)
    assert [name for name, _ in fast.named_parameters()] == [n for n, _ in model.named_parameters()]
    assert all(a is b for a, b in zip(fast.parameters(), model.parameters(), strict=True))
    assert list(fast.state_dict()) == list(model.state_dict())
    fresh = copy.deepcopy(fast)
    others = {name: value + 1 for name, value in model.state_dict().items()}
    fresh.load_state_dict(others)
    assert all(torch.equal(value, others[name]) for name, value in fresh.state_dict().items())
    assert not torch.equal(fresh.scale, fast.scale)


def test_what_the_kernels_are_not_made_for_runs_in_the_models_own_forward(case: Any) -> None:
    model, fast, x, _ = case
    double = copy.deepcopy(fast).to(torch.float64)
    with torch.no_grad(), Session() as session:
        reasons = {
            "in eval mode": (copy.deepcopy(fast).train(), (x,), {}),
            "of other kinds": (fast, (x, torch.ones(8)), {}),
            "of other kinds than": (fast, (x,), {"power": True}),
            "x: expected dtype torch.float32": (double, (x.double(),), {}),
            "scale: expected dtype torch.float32": (double, (x,), {}),
            "x: expected shape": (fast, (torch.rand(3, 1),), {}),
        }
        for reason, (module, args, kwargs) in reasons.items():
            result, launches = runs(session, module, *args, **kwargs)
            assert launches == 0
            assert reason in str(module.why_not(*args, **kwargs))
            own = copy.deepcopy(model).to(module.scale.dtype)
            assert torch.equal(result, own(*args, **kwargs))


def test_kernels_run_and_agree_with_float64(case: Any) -> None:
    model, fast, x, other = case
    with torch.no_grad(), Session() as session:
        for value in (x, other, torch.rand(10, 8).t()[:, :8].contiguous().t()):
            result, launches = runs(session, fast, value)
            exact = copy.deepcopy(model).double()(value.double())
            assert launches == 1
            torch.testing.assert_close(result.double(), exact, rtol=1e-5, atol=1e-5)
        assert fast.why_not(x) is None
        assert session.findings == ()


def test_an_error_of_what_runs_is_raised_and_the_call_not_made_again(case: Any) -> None:
    _, fast, x, _ = case
    broken = copy.deepcopy(fast)

    def run(*args: Any) -> None:
        raise ValueError("raised after a buffer was updated")

    broken._run = FunctionType(run.__code__, fast._run.__globals__)
    with torch.no_grad(), pytest.raises(ValueError, match="after a buffer was updated"):
        broken(x)


def test_what_optimizing_compares_is_told(case: Any) -> None:
    model, given, x, _ = case
    with torch.no_grad(), Session():
        fast = optimize_module(model, (x,), machine=H200)
        assert fast.kernelwright.set_aside == ""
        assert fast.kernelwright.checks[0].startswith("output: RMSE ")
        # Nothing else has changed: x, the parameters and the buffer.
        assert len(fast.kernelwright.checks) == 6
    assert given.kernelwright.checks == ()  # made where nothing ran


def test_wrong_kernels_are_set_aside(case: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model, _, x, _ = case

    def emit_wrong(name: str, arguments: str, plan: Any) -> Any:
        text = emit_module(name, arguments, plan)
        wrong = text.source.replace("add_1 = mul_0 + c", "add_1 = mul_0 - c")
        return replace(text, source=wrong.replace("kernelwright_Gate_", "kernelwright_Wrong_"))

    monkeypatch.setattr(module_text, "emit_module", emit_wrong)
    with torch.no_grad(), Session() as session:
        fast = optimize_module(model, (x,), machine=H200)
        assert fast.kernelwright.set_aside.startswith("wrong results: ")
        result, launches = runs(session, fast, x)
        assert launches == 0
        assert torch.equal(result, model(x))


def test_a_gradient_falls_back_and_warns_once(case: Any) -> None:
    _, given, x, _ = case
    fast = copy.deepcopy(given)
    assert "parameter scale requires a gradient" in str(fast.why_not(x))
    with pytest.warns(KernelsUnusedWarning, match=r"parameter scale .* torch.no_grad") as told:
        fast(x).sum().backward()
    assert fast.scale.grad is not None
    assert told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fast(x)
        # Neither where a user trains on purpose.
        copy.deepcopy(given).train()(x)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients_kernels_run(case: Any, mode: Any) -> None:
    _, fast, x, _ = case
    assert fast.scale.requires_grad
    with Session() as session, mode():
        assert runs(session, fast, x)[1] == 1


def test_frozen_parameters_need_no_mode(case: Any) -> None:
    _, given, x, _ = case
    fast = copy.deepcopy(given).requires_grad_(False)
    with Session() as session:
        assert runs(session, fast, x)[1] == 1
        asking = x.clone().requires_grad_()
        assert "argument 0 requires a gradient" in str(fast.why_not(asking))


def test_the_original_shares_the_parameters(case: Any) -> None:
    model, fast, x, _ = case
    own = fast.original()
    assert type(own) is Gate
    assert own.scale is model.scale
    assert torch.equal(own(x), model(x))


def test_hooks_of_the_model_run_around_the_kernels() -> None:
    model, x, seen = nn.GELU().eval(), torch.rand(6, 8), []
    model.register_forward_pre_hook(lambda module, args: (args[0] * 3,))
    model.register_forward_hook(lambda module, args, result: seen.append(module) or result * 2)
    with torch.no_grad(), Session() as session:
        fast = optimize_module(model, (x,), machine=H200)
        assert fast.kernelwright.set_aside == ""
        seen.clear()
        result, launches = runs(session, fast, x)
        assert (launches, len(seen)) == (1, 1)
        torch.testing.assert_close(result, model(x))


def test_parametrized_modules_are_captured() -> None:
    model = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(8, 8)), nn.GELU())
    fast = kw.optimize(model, (torch.rand(2, 8),))
    assert "gelu" in fast.kernelwright.kernels[-1]
    assert kw.explain(model[0], (torch.rand(2, 8),)).left_to_pytorch


class Count(nn.Module):
    """It changes a buffer and its argument, and draws a random number."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(8))

    def forward(self, x: Tensor) -> Tensor:
        self.calls.add_(1)
        x.mul_(2)
        return (x + self.calls).relu() * torch.rand(())


def test_asking_and_optimizing_change_nothing() -> None:
    model, x = Count(), torch.rand(6, 8)
    before, seed = x.clone(), torch.get_rng_state()
    with torch.no_grad(), Session() as session:
        fast = optimize_module(model, (x,), machine=H200)
        assert fast.why_not(x) is None
        assert torch.equal(model.calls, torch.zeros(8))
        assert torch.equal(x, before)
        assert torch.equal(torch.get_rng_state(), seed)
        assert runs(session, fast, x)[1] > 0
    assert torch.equal(model.calls, torch.ones(8))
    assert torch.equal(x, 2 * before)
    assert not torch.equal(torch.get_rng_state(), seed)


def test_timing_a_module_changes_nothing_and_compares_like_with_like() -> None:
    """On the emulator, whose times say nothing about a GPU: the path, not the numbers."""
    model, x = Count(), torch.rand(6, 8)
    quick = TimingPlan(warm_up_seconds=0.0, batch=2, samples=4, seconds=0.0, least_samples=2)
    options = kw.JudgeOptions(baselines=(Baseline.EAGER,), timing=quick)
    with Session() as session:
        fast = optimize_module(model, (x,), machine=H200)
        session.take_launches()
        measured = kw.measure(fast, (x,), options=options)
        assert sum(session.take_launches().values()) > 4
        assert "float64" in kw.measure(fast, (x.double(),), options=options).note
    assert measured.note == ""
    assert [speedup.baseline for speedup in measured.speedups] == ["eager"]
    assert torch.equal(model.calls, torch.zeros(8))


def test_optimizing_twice_is_optimizing_once(case: Any) -> None:
    model, fast, x, _ = case
    with torch.no_grad():
        again = optimize_module(fast, (x,), machine=H200)
    assert type(again).__bases__[1] is Gate
    assert again.scale is model.scale
    assert again.kernelwright.source == fast.kernelwright.source


def test_without_a_gpu_the_models_own_forward_runs() -> None:
    model, x = nn.Sequential(nn.Linear(4, 4), nn.GELU()).eval(), torch.rand(2, 4)
    fast = kw.optimize(model, (x,))
    with torch.no_grad():
        assert "expected a tensor on one CUDA device" in str(fast.why_not(x))
        assert torch.equal(fast(x), model(x))
    assert fast.kernelwright.checks == ()
    assert kw.measure(fast, (x,)).note == fast.kernelwright.times == "not measured: no GPU"


def test_what_is_no_call_is_refused() -> None:
    model, x = nn.ReLU(), torch.rand(2, 4)
    for words in ("model_new.py", x, None):
        with pytest.raises(UsageError, match="arguments of a call"):
            kw.optimize(model, words)  # type: ignore[call-overload]
        with pytest.raises(UsageError, match="arguments of a call"):
            kw.explain(model, words)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="turned into a file"):
        kw.optimize("model.py", (x,))  # type: ignore[call-overload]
    with pytest.raises(UsageError, match="is neither a module nor"):
        kw.optimize(torch.relu, (x,))  # type: ignore[call-overload]
    with pytest.raises(UsageError, match=r"torch\.compile"):
        kw.optimize(torch.compile(model), (x,))
    with pytest.raises(UsageError, match="timed against each other"):
        kw.measure(model, (x,))  # type: ignore[call-overload]


def test_a_module_that_is_left_to_pytorch_says_so() -> None:
    model, x = Sorted().eval(), torch.rand(4, 3)
    with pytest.warns(KernelsUnusedWarning, match="everything is left to PyTorch") as told:
        fast = kw.optimize(model, (x,))
    assert told[0].filename == __file__
    assert fast.kernelwright.kernels == ()
    with pytest.raises(UnsupportedError, match=r"sort.* is left to PyTorch"):
        kw.optimize(model, (x,), options=kw.OptimizeOptions(rest=kw.Rest.REFUSED))


def measured(own: tuple[float, float], ours: tuple[float, float]) -> Measurement:
    """Device and host milliseconds of the model's own forward and of the kernels, 1 % unsure."""
    kernels, eager = (
        Series(name=name, device_ms=device, host_ms=host, samples=100)
        for name, (device, host) in (("candidate", ours), ("eager", own))
    )
    ratios = [before / after for before, after in zip(own, ours, strict=True)]
    device, host = (Interval(value=it, low=0.99 * it, high=1.01 * it) for it in ratios)
    return replace(
        not_measured("", None, H200),
        candidate=kernels,
        baselines=(eager,),
        speedups=(Speedup(baseline="eager", device=device, host=host),),
    )


@pytest.mark.parametrize(
    ("own", "ours", "stays"),
    [
        ((2.0, 3.0), (1.0, 2.0), True),
        ((2.0, 3.0), (1.0, 3.0), True),  # hidden behind the host, and worth it all the same
        ((2.32, 3.68), (1.94, 4.49), False),  # quicker on the device, later by the wall clock
        ((11.8, 11.9), (17.8, 17.9), False),
        ((2.0, 3.0), (2.0, 3.0), False),
    ],
)
def test_kernels_stay_where_they_are_faster(
    case: Any, own: tuple[float, float], ours: tuple[float, float], stays: bool
) -> None:
    model, _, x, _ = case
    clock = lambda *call: measured(own, ours)  # noqa: E731
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", KernelsUnusedWarning)
        fast = optimize_in_memory(model, (x,), None, OptimizeOptions(), lambda event: None, clock)
    made = fast.kernelwright
    assert f"{ours[0]:g} ms on the device and {ours[1]:g} ms by the wall clock with" in made.times
    assert f"{own[0]:g} ms on the device and {own[1]:g} ms by the wall clock without" in made.times
    assert (made.set_aside == "") is stays
    assert [str(it.message) for it in told] == (
        [] if stays else [f"Gate runs in PyTorch, without kernels: not faster: {made.times}"]
    )
    with torch.no_grad():
        assert stays or fast.why_not(x) == made.set_aside
    everything = OptimizeOptions(keep=kw.Keep.ALL)
    kept = optimize_in_memory(model, (x,), None, everything, lambda event: None, clock)
    assert (kept.kernelwright.set_aside, kept.kernelwright.times) == ("", "not measured")


def test_ctrl_c_while_calls_are_timed_keeps_the_kernels(case: Any) -> None:
    model, _, x, _ = case

    def clock(*_: object) -> Measurement:
        raise KeyboardInterrupt

    fast = optimize_in_memory(model, (x,), None, OptimizeOptions(), lambda event: None, clock)
    made = fast.kernelwright
    assert (made.set_aside, made.times) == ("", "not measured: interrupted")


def test_explaining_a_module_and_a_file_is_one_thing(case: Any) -> None:
    model, fast, x, _ = case
    facts = kw.explain(model, (x,))
    assert [kernel.name for kernel in facts.kernels] == ["mul_add_layer_norm_kernel"]
    assert [f"{name}_kernel" for name in fast.kernelwright.kernels] == [facts.kernels[0].name]
    # x and the result, 6 x 8; scale, shift, and the norm's weight and bias, 8 each; floats.
    assert facts.bytes == facts.least_bytes == 4 * (2 * 48 + 4 * 8)
    assert facts.left_to_pytorch == ()
    of_file = kw.explain(EXAMPLES / "diag_matmul.py")
    assert of_file.rewrites[0].algebraic
    assert json.loads(json.dumps(of_file.to_json()))["rewrites"][0]["algebraic"] is True


def test_timing_a_file_without_a_gpu_names_the_floor() -> None:
    measurement = kw.measure(EXAMPLES / "scalar_mul.py", EXAMPLES / "scalar_mul.py")
    assert measurement.note == "not measured: no GPU"
    assert measurement.floor is not None
    assert measurement.floor.bytes == 2 * 4 * 16384 * 4096
    with pytest.raises(CandidateFileError, match=r"nowhere\.py"):
        kw.measure(EXAMPLES / "scalar_mul.py", "nowhere.py")


def test_every_name_that_is_offered_is_there() -> None:
    for name in kw.__all__:
        assert getattr(kw, name).__doc__


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_torch_compile_sees_the_kernels_as_operators(case: Any, backend: str) -> None:
    model, fast, x, other = case
    # PyTorch's compiler asks the device itself, which the emulator cannot pretend to.
    source = fast.kernelwright.source.replace("not value.is_cuda or ", "")
    on_host: OptimizedModule = copy.deepcopy(fast)
    on_host.__setstate__({**on_host.__dict__, "kernelwright": _with(fast, source)})
    with torch.no_grad(), Session() as session:
        compiled = torch.compile(on_host, fullgraph=True, backend=backend)
        for value in (x, other):
            result, launches = runs(session, compiled, value)
            assert launches == 1
            torch.testing.assert_close(result, model(value))


@pytest.mark.parametrize("way", ["called", "aot_eager"])
def test_buffers_that_kernels_update_where_they_are(way: str) -> None:
    """Those with strides, too, and inside torch.compile, which functionalises the update."""
    torch.manual_seed(0)
    model, x = nn.BatchNorm2d(4).train(), torch.rand(3, 4, 8, 12)
    with torch.no_grad():
        fast = optimize_module(model, (x,), machine=H200)
    source = fast.kernelwright.source.replace("not value.is_cuda or ", "")
    assert "running_mean.view(" not in source  # the native call sees it in its own shape
    on_host: OptimizedModule = copy.deepcopy(fast)
    on_host.__setstate__({**on_host.__dict__, "kernelwright": _with(fast, source)})
    on_host.running_var = torch.stack([torch.ones(4), torch.zeros(4)], dim=1)[:, 0]
    assert on_host.running_var.stride() == (2,)
    with torch.no_grad(), Session():
        run: Any = on_host
        if way != "called":
            run = torch.compile(on_host, fullgraph=True, backend=way)
        for _ in range(2):
            torch.testing.assert_close(run(x), model(x))
    for name, buffer in model.named_buffers():
        torch.testing.assert_close(on_host.get_buffer(name), buffer)


class Dense(nn.Module):
    """Its second tensor is made of the first one's parts, which that has already."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = [x.exp(), x + 1.0]
        parts.append((torch.cat(parts, 1) * 0.5).cos())
        return torch.cat(parts, 1)


@pytest.mark.parametrize("way", ["called", "aot_eager"])
def test_parts_that_kernels_write_where_the_whole_has_them(way: str) -> None:
    model, large = Dense(), torch.empty(16, 8, 128, 128)
    with torch.no_grad():
        fast = optimize_module(model, (large,), machine=H200)
    source = fast.kernelwright.source.replace("not value.is_cuda or ", "")
    assert "torch.cat(" not in source
    on_host: OptimizedModule = copy.deepcopy(fast)
    on_host.__setstate__({**on_host.__dict__, "kernelwright": _with(fast, source)})
    with torch.no_grad(), Session():
        run: Any = on_host
        if way != "called":
            run = torch.compile(on_host, fullgraph=True, backend=way)
        for sizes in ((2, 8, 6, 5), (1, 8, 4, 12)):
            x = torch.rand(sizes)
            torch.testing.assert_close(run(x), model(x))


def _with(fast: OptimizedModule, source: str) -> Any:
    return replace(fast.kernelwright, source=source)


def test_torch_compile_takes_what_kernels_refuse(case: Any) -> None:
    model, fast, x, _ = case
    with torch.no_grad():
        compiled = torch.compile(fast, fullgraph=True, backend="eager")
        torch.testing.assert_close(compiled(x), model(x))


@pytest.mark.gpu
def test_a_module_on_a_gpu_is_checked_and_timed() -> None:
    model, x = nn.Sequential(nn.GELU(), nn.LayerNorm(512)).cuda(), torch.rand(256, 512).cuda()
    assert "by the wall clock without" in kw.optimize(model, (x,)).kernelwright.times
    fast = kw.optimize(model, (x,), options=kw.OptimizeOptions(keep=kw.Keep.ALL))
    assert fast.kernelwright.set_aside == ""
    assert fast.kernelwright.checks
    measured = kw.measure(fast, (x,))
    assert measured.note == ""
    assert {series.name for series in measured.baselines} == {"eager", "torch.compile"}
    assert "float64" in kw.measure(fast, (x.double(),)).note


class Masked(nn.Module):
    """Attention with a bias of each head."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        return nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias)


@pytest.mark.gpu
@torch.no_grad()
def test_a_mask_on_a_gpu_is_read_before_the_next_takes_its_place() -> None:
    # The emulator's loads end where they stand; on a card they may be under way.
    q, k, v = (torch.rand(8, 12, 512, 64, device="cuda") for _ in range(3))
    bias = torch.rand(1, 12, 512, 512, device="cuda")
    options = kw.OptimizeOptions(keep=kw.Keep.ALL)
    fast = kw.optimize(Masked(), (q, k, v, bias), options=options)
    first = fast(q, k, v, bias)
    assert all(torch.equal(fast(q, k, v, bias), first) for _ in range(30))


class This(nn.Module):
    """The module under another name than self, and a result of a class of its own."""

    def __init__(this) -> None:
        super().__init__()
        this.scale = nn.Parameter(torch.rand(8))

    def forward(this, x: Tensor, *, more: float = 1.0) -> "Scaled":
        return Scaled(x * this.scale + more, [x + torch.tensor([1.5] * 8)])


class Scaled(NamedTuple):
    value: Tensor
    parts: list[Tensor]


def test_self_by_another_name_and_results_of_named_classes() -> None:
    model, x = This(), torch.rand(6, 8)
    with torch.no_grad(), Session() as session:
        fast = optimize_module(model, (x,), machine=H200)
        assert fast.kernelwright.set_aside == ""
        result = fast(x)
        assert sum(session.take_launches().values()) > 0
        expected = model(x)
    assert type(result) is Scaled
    torch.testing.assert_close(result, expected)
