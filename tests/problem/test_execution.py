"""Executing a problem file: what comes back, and where its own mistakes are reported."""

import sys
from pathlib import Path

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor

from kernelwright.problem import Problem, errors, execute, instantiate, resize
from kernelwright.problem.execution import Shapes, instantiate_fake
from kernelwright.problem.loading import parse_problem

TEXT = """\
import torch
from torch import nn
M = 4
class Model(nn.Module):
    def __init__(self, width, bias=True):
        super().__init__()
        self.linear = nn.Linear(width, 3, bias=bias)
    def forward(self, x, scale):
        return self.linear(x) * scale
def get_inputs():
    return [torch.rand(2, M), 3.14]
def get_init_inputs():
    return [M]
"""


def problem(text: str = TEXT) -> Problem:
    return parse_problem(Path("/somewhere/model.py"), text)


def test_an_instance() -> None:
    torch.manual_seed(3)
    instance = instantiate(problem())
    x, scale = instance.inputs
    assert (x.shape, scale) == ((2, 4), 3.14)
    assert (instance.init_args, instance.init_kwargs) == ((4,), {})
    assert instance.module(x, scale).shape == (2, 3)
    assert type(instance.module) is instance.model_class
    torch.manual_seed(3)
    assert torch.equal(instantiate(problem()).inputs[0], x), "the caller's seed decides"


def test_keyword_arguments_of_the_constructor() -> None:
    instance = instantiate(problem(TEXT.replace("return [M]", "return [[M], {'bias': False}]")))
    assert (instance.init_args, dict(instance.init_kwargs)) == ((4,), {"bias": False})
    assert instance.module.linear.bias is None


def test_module_names() -> None:
    definition = execute(problem(), "a_problem_of_its_own")
    assert sys.modules["a_problem_of_its_own"] is definition.namespace
    assert definition.model_class.__module__ == "a_problem_of_its_own"


@pytest.mark.parametrize(
    ("old", "new", "message", "line"),
    [
        ("M = 4", "M = 1 // 0", "the file raised ZeroDivisionError", 3),
        ("M = 4", "M = 4; exit(3)", "the file raised SystemExit: 3", 3),
        ("M = 4", "import no_such_module; M = 4", "ModuleNotFoundError", 3),
        ("nn.Linear(width", "nn.Linear('wide'", "the constructor of `Model` raised", 7),
        ("torch.rand(2, M)", "torch.rand(2, -M)", "`get_inputs` raised RuntimeError", 11),
        ("return [M]", "return [N]", "`get_init_inputs` raised NameError", 13),
    ],
)
def test_exceptions_come_with_the_line(old: str, new: str, message: str, line: int) -> None:
    with pytest.raises(errors.ProblemRaisedError, match=message) as caught:
        instantiate(problem(TEXT.replace(old, new)))
    assert caught.value.location == f"/somewhere/model.py:{line}"
    assert caught.value.__cause__ is not None


def test_a_failed_file_leaves_no_module() -> None:
    with pytest.raises(errors.ProblemRaisedError):
        execute(problem("1 / 0\n" + TEXT), "a_problem_that_failed")
    assert "a_problem_that_failed" not in sys.modules


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("return [torch.rand(2, M), 3.14]", "return torch.rand(2, M)", "returns a Tensor"),
        ("return [torch.rand(2, M), 3.14]", "pass", "`get_inputs` returns None"),
        ("return [M]", "return M", "`get_init_inputs` returns an int"),
    ],
)
def test_wrong_results(old: str, new: str, message: str) -> None:
    with pytest.raises(errors.WrongReturnError, match=message):
        instantiate(problem(TEXT.replace(old, new)))


def test_a_fake_tensor_is_a_tensor_to_its_user() -> None:
    wrong = TEXT.replace("return [torch.rand(2, M), 3.14]", "return torch.rand(2, M)")
    with pytest.raises(errors.WrongReturnError, match="returns a Tensor"):
        instantiate_fake(problem(wrong), Shapes())


def test_a_model_that_is_no_module() -> None:
    with pytest.raises(errors.ModelNotModuleError) as caught:
        instantiate(problem(TEXT.replace("nn.Module", "dict")))
    assert caught.value.location == "/somewhere/model.py:4"


def test_fake_tensors_cost_nothing() -> None:
    instance = instantiate_fake(resize(problem(), {"M": 10**9}), Shapes())
    assert isinstance(instance.inputs[0], FakeTensor)
    assert instance.module.linear.weight.shape == (3, 10**9)
    assert instance.notes == ()


def test_parts_that_need_numbers_get_them() -> None:
    text = TEXT.replace("nn.Linear(width, 3", "nn.Linear(width, int(torch.ones(3).sum().item())")
    instance = instantiate_fake(problem(text), Shapes())
    assert isinstance(instance.module.linear.weight, FakeTensor)
    assert isinstance(instance.module.linear.weight, torch.nn.Parameter)
    assert instance.notes == ("the constructor ran with real tensors",)
    text = TEXT.replace("3.14", "torch.ones(3).sum().item()")
    instance = instantiate_fake(problem(text), Shapes())
    assert isinstance(instance.inputs[0], FakeTensor)
    assert instance.inputs[1] == 3.0
    assert instance.notes == ("get_inputs ran with real tensors",)


def test_inputs_that_the_file_puts_on_a_card_are_beside_the_module() -> None:
    text = TEXT.replace("torch.rand(2, M)", "torch.rand(2, M, device='cuda')")
    instance = instantiate_fake(problem(text), mode := Shapes())
    with mode:
        assert instance.module(*instance.inputs).device == torch.device("cpu")
