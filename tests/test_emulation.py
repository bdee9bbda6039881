"""`kernelwright emulate`: one call of a file's module on the emulator."""

from pathlib import Path

import pytest
import torch

from kernelwright import machine
from kernelwright.compiling import compile_problem, write_candidate
from kernelwright.emulation import MOST_ELEMENTS, emulate
from kernelwright.errors import UsageError
from kernelwright.problem import load_problem
from kernelwright.verify.cases import Case

PROBLEM = Path(__file__).parents[1] / "examples" / "scalar_mul.py"
SMALL = Case.parse("seed=3 size:M=13 size:N=33")


@pytest.fixture
def candidate(tmp_path: Path) -> Path:
    path = tmp_path / "scalar_mul_new.py"
    write_candidate(compile_problem(load_problem(PROBLEM), machine.H200), path)
    return path


def test_a_call_shows_its_launches_and_its_result(candidate: Path) -> None:
    done = emulate(candidate, SMALL)
    assert sum(done.launches.values()) == 1
    assert done.findings == ()
    assert done.outputs[0].shape == (13, 33)
    assert done.lines()[1:2] == ["found       nothing"]


def test_a_kernel_that_reads_what_nobody_allocated_is_named_with_its_line(candidate: Path) -> None:
    text = candidate.read_text()
    body = "{ return a * scalar1; }"
    assert body in text
    text = text.replace(body, "{ return *reinterpret_cast<const float*>(8); }")
    # Another library's name, which is a hash of the content: the first one may be loaded already.
    candidate.write_text(text.replace("kernelwright_scalar_mul_", "kernelwright_null_read_"))
    done = emulate(candidate, SMALL)
    assert any("cuda.cu" in it.location for it in done.findings)
    assert "cudaErrorIllegalAddress" in done.error


_SHARED_BY_ROWS = """
import torch
from torch import nn

ROWS = 512


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.means, self.scale = nn.Parameter(torch.rand(8192)), nn.Parameter(torch.rand(8192))
        self.shift, self.most = nn.Parameter(torch.rand(8192)), nn.Parameter(torch.rand(8192))

    def forward(self, x):
        normed = (x - self.means) * self.scale + self.shift
        return torch.softmax(torch.minimum(normed, self.most), dim=1)


def get_inputs():
    return [torch.rand(ROWS, 8192)]


def get_init_inputs():
    return []
"""


def test_rows_on_chip_have_no_room_for_what_all_of_them_share(tmp_path: Path) -> None:
    """Two rows under way, each with 128 KB of these beside its own 32, would not fit a block."""
    problem, path = tmp_path / "scaled.py", tmp_path / "scaled_new.py"
    problem.write_text(_SHARED_BY_ROWS)
    write_candidate(compile_problem(load_problem(problem), machine.H200), path)
    assert "rows on chip" in path.read_text()
    done = emulate(path, Case.parse("seed=3 size:ROWS=2"))
    assert (done.error, done.findings) == ("", ())
    assert not [name for name in done.launches if name.endswith("_any_kernel")]
    torch.testing.assert_close(done.outputs[0].sum(dim=1), torch.ones(2))


def test_sizes_that_take_minutes_are_refused_with_the_names_of_the_constants(
    candidate: Path,
) -> None:
    with pytest.raises(UsageError, match=f"{MOST_ELEMENTS:,}") as raised:
        emulate(candidate, Case())
    assert "--case 'size:M=33 size:N=33'" in str(raised.value)
