"""Which headers are made ready for a candidate: PyTorch's only for one that asks for them."""

from pathlib import Path

import pytest

from kernelwright.emulator.headers import (
    Headers,
    headers_of,
    headers_of_candidate,
    torch_headers_of,
)

_ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "path", sorted(_ROOT.glob("tests/codegen/golden/test_golden/*.py")), ids=lambda p: p.stem
)
def test_a_file_of_ours_asks_for_none_of_pytorch(path: Path) -> None:
    assert headers_of_candidate(path.read_text()) is Headers.CUDA


@pytest.mark.parametrize("path", sorted(_ROOT.glob("tests/strangers/*.py")), ids=lambda p: p.stem)
def test_a_stranger_asks_for_pytorch_without_saying_so(path: Path) -> None:
    assert headers_of_candidate(path.read_text()) is Headers.TORCH


def test_words_ask_for_more() -> None:
    assert headers_of_candidate("import torch") is Headers.CUDA
    module = "torch::nn::Linear layer(3, 4);"
    assert headers_of_candidate(f"import torch.utils.cpp_extension\n{module}") is Headers.TORCH_ALL
    assert headers_of(("int x;", module)) is Headers.CUDA, "nothing is included"
    assert headers_of(("#include <ATen/ATen.h>", module)) is Headers.TORCH_ALL
    assert headers_of(("#include <ATen/ATen.h>",)) is Headers.TORCH
    assert torch_headers_of(("int x;",)) is Headers.TORCH
