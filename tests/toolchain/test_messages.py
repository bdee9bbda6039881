"""The first error is found in what real compilers print, and the user's line in the candidate."""

from pathlib import Path

import pytest

from kernelwright.toolchain.messages import Message, first_error, locate

_CASES = {
    "nvcc": (
        "kernels.cu(9): warning #177-D: variable was declared but never referenced\n"
        'kernels.cu(12): error: identifier "tabel" is undefined\n'
        "    y[i] = tabel[i];\n           ^\n\n"
        '1 error detected in the compilation of "kernels.cu".\n',
        Message(text='identifier "tabel" is undefined', file="kernels.cu", line=12),
    ),
    "gcc": (
        "/x/main.cpp: In function 'int f()':\n"
        "/x/main.cpp:7:12: error: 'y' was not declared in this scope\n"
        "    7 |     return y;\n",
        Message(text="'y' was not declared in this scope", file="/x/main.cpp", line=7),
    ),
    "missing header": (
        "a.cpp:1:10: fatal error: foo.h: No such file or directory\ncompilation terminated.\n",
        Message(text="foo.h: No such file or directory", file="a.cpp", line=1),
    ),
    "ptxas counts the lines of its own input": (
        "ptxas /tmp/tmpxft_0000196a_00000000-6_c.ptx, line 30; error   : Unknown modifier '.bar'\n"
        "ptxas fatal   : Ptx assembly aborted due to errors\n",
        Message(text="Unknown modifier '.bar'", file=None, line=None),
    ),
    "ptxas": (
        "ptxas error   : Entry function 'k' uses too much shared data (0x61a80 bytes)\n",
        Message(
            text="Entry function 'k' uses too much shared data (0x61a80 bytes)",
            file=None,
            line=None,
        ),
    ),
    "nvcc itself": (
        "nvcc fatal   : Failed to preprocess host compiler properties.\n",
        Message(text="Failed to preprocess host compiler properties.", file=None, line=None),
    ),
    "linker": (
        "/usr/bin/ld: main.o: in function `g()':\n"
        "main.cpp:(.text+0x9): undefined reference to `f()'\n"
        "collect2: error: ld returned 1 exit status\n",
        Message(text="undefined reference to `f()'", file=None, line=None),
    ),
    "a file called error": (
        "my_error.cu(3): error: no\n",
        Message(text="no", file="my_error.cu", line=3),
    ),
    "ninja around it": (
        "Error building extension 'x': [1/2] c++ -Werror -c a.cpp\nFAILED: a.o\n"
        "a.cpp:2:1: error: bad\nninja: build stopped: subcommand failed.\n",
        Message(text="bad", file="a.cpp", line=2),
    ),
}


@pytest.mark.parametrize("name", _CASES)
def test_first_error(name: str) -> None:
    output, message = _CASES[name]
    assert first_error(output) == message


@pytest.mark.parametrize(
    "output", ["", "all good\n", "ptxas info    : 0 bytes gmem", "1 error detected\n"]
)
def test_no_error(output: str) -> None:
    assert first_error(output) is None


_CANDIDATE = '''import torch

CPP = "void f();"
CUDA_SOURCE = """
__global__ void first(float* x) {
  x[0] = 1;
}
__global__ void second(float* x) {
  x[0] = 1;
  y[0] = 2;
}
"""
'''


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (4, 5),  # A line that occurs once.
        (9, 10),
        (5, 6),  # Lines that occur twice, told apart by their neighbours.
        (8, 9),
        (1, None),  # Put in front by load_inline.
        (99, None),
    ],
)
def test_locate(tmp_path: Path, line: int, expected: int | None) -> None:
    candidate = tmp_path / "new.py"
    candidate.write_text(_CANDIDATE)
    text = _CANDIDATE.split('"""')[1]
    generated = "#include <cuda.h>\n#include <cuda_runtime.h>\n" + text
    wanted = f"{candidate}:{expected}" if expected else None
    assert locate(candidate, generated, line) == wanted
