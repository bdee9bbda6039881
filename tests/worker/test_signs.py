"""What a candidate's text says of its kernels before anybody runs it."""

from pathlib import Path

import pytest

from kernelwright.verify.sanitizer_report import Tool
from kernelwright.worker.judging.sanitizer import tools_for
from kernelwright.worker.judging.signs import brings_kernels, may_bring_kernels
from kernelwright.worker.options import Sanitizers

PLAIN = "import torch\nx = torch.relu(y)"
TRITON = "@triton.jit"


def test_plain_pytorch_is_not_guarded(tmp_path: Path) -> None:
    assert not brings_kernels(PLAIN)
    assert brings_kernels(TRITON)
    assert brings_kernels("load_inline(cuda_sources='__global__')")
    assert may_bring_kernels(tmp_path / "to be written.py")


@pytest.mark.parametrize(
    ("text", "tools"),
    [(PLAIN, ()), (TRITON, (Tool.MEMCHECK,)), (TRITON + "torch.cuda.graph", ())],
)
def test_memcheck_looks_at_kernels_and_not_at_graphs(
    tmp_path: Path, text: str, tools: tuple[Tool, ...]
) -> None:
    path = tmp_path / "candidate.py"
    path.write_text(text)
    assert tools_for(Sanitizers.MEMCHECK, path) == tools
    assert tools_for(Sanitizers.ALL, path) == tuple(Tool)
    assert tools_for(Sanitizers.OFF, path) == ()
