"""`kernelwright emulate`: one call of a file's module on the emulator."""

from pathlib import Path

import pytest

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


def test_sizes_that_take_minutes_are_refused_with_the_names_of_the_constants(
    candidate: Path,
) -> None:
    with pytest.raises(UsageError, match=f"{MOST_ELEMENTS:,}") as raised:
        emulate(candidate, Case())
    assert "--case 'size:M=33 size:N=33'" in str(raised.value)
