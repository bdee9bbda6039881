"""What the emitted file keeps of the user's file."""

import pytest

from kernelwright.codegen.constructor import Kept, keep
from kernelwright.errors import UnsupportedError

TAIL = """
def get_inputs():
    return [torch.rand(2)]

def get_init_inputs():
    return []
"""
FORWARD = "    def forward(self, x):\n        return x\n"
MODEL = f"class Model(nn.Module):\n{FORWARD}"
HEAD = "import torch\nfrom torch import nn\n"


def kept(*parts: str, tail: str = TAIL) -> Kept:
    return keep(HEAD + "\n".join(parts) + tail)


def init(*lines: str) -> str:
    return "class Model(nn.Module):\n" + "\n".join(f"    {line}" for line in lines) + "\n" + FORWARD


def test_only_imports_in_use_under_their_own_names() -> None:
    code = init("def __init__(self):", "    super().__init__()", "    self.k = F.pad and th.ones")
    result = kept("import torch.nn.functional as F\nimport torch as th\nimport math, sys", code)
    assert result.imports == ("import torch.nn.functional as F", "import torch as th")


def test_future_imports_come_apart() -> None:
    result = keep("from __future__ import annotations\n" + HEAD + MODEL + TAIL)
    assert result.future == ("from __future__ import annotations",)
    assert result.imports == ()


def test_helper_classes_lose_forward_and_what_only_it_calls() -> None:
    helper = (
        "class Block(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.build()\n    def build(self):\n        self.n = 1\n"
        "    def forward(self, x):\n        return self.used(x)\n    def used(self, x):\n"
        "        return x\n"
    )
    code = init("def __init__(self):", "    super().__init__()", "    self.b = Block()")
    (text,) = kept(helper, code).helpers
    assert "def build" in text and "def forward" not in text and "def used" not in text


def test_base_classes_in_the_file() -> None:
    base = (
        "class Base(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.build()\n    def forward(self, x, scale=2):\n        return x\n"
    )
    model = "class Model(Base):\n    def build(self):\n        self.n = 1\n"
    result = kept(base, model)
    assert result.bases == "Base"
    assert result.forward_arguments == "self, x, scale=2"
    assert ["def build" in method for method in result.methods] == [True]


def test_two_columns_of_indentation_and_super_of_the_old_class() -> None:
    code = (
        "class Model(nn.Module):\n  def __init__(self, n=3):\n    super(Model, self).__init__()\n"
        '    self.text = """\nleft\n  """\n  def forward(self, x):\n    return x\n'
    )
    (method,) = kept(code).methods
    assert "super(ModelNew, self)" in method and '"""\nleft\n  """' in method
    compile("if True:\n" + method, "method", "exec")


def test_body_on_the_line_of_the_head() -> None:
    (method,) = kept(init("def __init__(self, n=3): super().__init__()")).methods
    compile("if True:\n" + method, "method", "exec")
    assert "raise ValueError" in method


def test_class_attributes_that_the_constructor_reads() -> None:
    code = init(
        "SIZE = 4",
        "WIDTH = SIZE * 2",
        "unused = 1",
        "def __init__(self):",
        "    super().__init__()",
        "    self.n = self.WIDTH",
    )
    assert kept(code).attributes == ("    SIZE = 4", "    WIDTH = SIZE * 2")


def test_constants_stand_after_what_they_call() -> None:
    result = kept("def double(x):\n    return 2 * x\nN = double(3)", MODEL)
    assert result.constants == ("def double(x):\n    return 2 * x", "N = double(3)")
    assert result.helpers == ()


@pytest.mark.parametrize(
    ("arguments", "checked"),
    [
        ("n", "if [n] != [*get_init_inputs()]:"),
        ("n, m=2", "if [n, m] != [*get_init_inputs(), *[2][len(get_init_inputs()) - 1 :]]:"),
        ("n, *, m=2", "if [n, m] != [*get_init_inputs(), 2]:"),
        ("*n", None),
        ("n, **m", None),
    ],
)
def test_constructor_arguments_are_checked(arguments: str, checked: str | None) -> None:
    code = init(f"def __init__(self, {arguments}):", "    super().__init__()")
    (method,) = kept(code, tail=TAIL.replace("[]", "[3]")).methods
    assert (checked in method) if checked else ("raise" not in method)


def test_arguments_that_may_be_tensors_are_not_compared() -> None:
    code = init("def __init__(self, n):", "    super().__init__()")
    (method,) = kept(code, tail=TAIL.replace("[]", "[torch.ones(3)]")).methods
    assert "raise" not in method


def test_signature_of_forward() -> None:
    code = FORWARD.replace("self, x)", "self, *xs, k: int=1, **more) -> int")
    code = f"class Model(nn.Module):\n{code}"
    result = kept(code)
    assert result.forward_arguments == "self, *xs, k: int=1, **more"
    assert result.forward_returns == " -> int"


@pytest.mark.parametrize("name", ["_launch", "struct", "KERNELS"])
def test_names_that_the_file_needs_are_refused(name: str) -> None:
    with pytest.raises(UnsupportedError, match=f"`{name}`"):
        kept(f"{name} = 3", MODEL)


def test_arguments_that_the_file_needs_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="`device`"):
        kept(MODEL.replace("self, x", "self, device"))


def test_functions_from_elsewhere_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="`get_init_inputs`"):
        keep(HEAD + MODEL + "from other import get_init_inputs\ndef get_inputs(): return []\n")


def test_forward_from_elsewhere_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="inherits `forward`"):
        kept("class Model(nn.Sequential):\n    depth = 1\n")


def test_the_module_under_another_name_than_self() -> None:
    code = "class Model(nn.Module):\n    def forward(this, x, /, *, y=1):\n        return x\n"
    assert kept(code).forward_arguments == "self, x, /, *, y=1"
