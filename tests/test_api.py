"""Modules in memory: on the emulator, on the CPU without it, and inside torch.compile."""

import copy
import pickle
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import kernelwright
from kernelwright.build.emulator import Session
from kernelwright.errors import UsageError
from kernelwright.machine import H200
from kernelwright.module import OptimizedModule, optimize_module


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
    fresh.load_state_dict(Gate().state_dict())
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


def test_gradients_flow_through_the_models_own_forward(case: Any) -> None:
    _, given, x, _ = case
    fast = copy.deepcopy(given)
    assert "no backward" in str(fast.why_not(x))
    fast(x).sum().backward()
    assert fast.scale.grad is not None


def test_without_a_gpu_the_models_own_forward_runs() -> None:
    model, x = nn.Sequential(nn.Linear(4, 4), nn.GELU()).eval(), torch.rand(2, 4)
    fast = kernelwright.optimize(model, (x,))
    with torch.no_grad():
        assert "expected a tensor on one CUDA device" in str(fast.why_not(x))
        assert torch.equal(fast(x), model(x))
    assert fast.kernelwright.checks == ()
    with pytest.raises(UsageError):
        kernelwright.optimize(model, "model_new.py")  # type: ignore[call-overload]


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


def _with(fast: OptimizedModule, source: str) -> Any:
    return replace(fast.kernelwright, source=source)


def test_torch_compile_takes_what_kernels_refuse(case: Any) -> None:
    model, fast, x, _ = case
    with torch.no_grad():
        compiled = torch.compile(fast, fullgraph=True, backend="eager")
        torch.testing.assert_close(compiled(x), model(x))
