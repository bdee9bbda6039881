"""What reading a candidate shows."""

from pathlib import Path

import pytest

from kernelwright.verify.static.reading import read_candidate
from kernelwright.verify.verdict import Outcome, Status

PROBLEM = """
class Model(nn.Module):
    def __init__(self, size, *, bias=True): ...
    def forward(self, x): ...
"""
GOOD = """
import math, torch, os.path
from torch import nn

class ModelNew(nn.Module):
    def __init__(self, size, *, bias=True): ...
    def forward(self, x): ...
"""


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("(self, x)", "(self, x, y)", 7, "`forward` takes (x, y), the reference's takes (x)"),
        ("*, bias=True", "*args", 6, "`__init__` takes (size, *args)"),
        ("import math", "import cupy", 2, "imports `cupy`"),
        ("...\n    def forward", "import pandas.io\n    def forward", 6, "imports `pandas`"),
        ("(self, x): ...", "(self, x):\n        try: ...\n        finally: ...", 8, "`try`"),
    ],
)
def test_what_is_worth_a_look(tmp_path: Path, old: str, new: str, line: int, words: str) -> None:
    path = tmp_path / "new.py"
    path.write_text(GOOD.replace(old, new))
    (check,) = read_candidate(path, PROBLEM)
    assert check.outcome is Outcome.WARNING
    assert check.evidence.startswith(f"new.py:{line}: ")
    assert words in check.evidence


NEVER_HONEST = [
    ("import inspect\ninspect.stack()", 2, "`inspect.stack` looks at the functions"),
    ("from sys import _getframe as f\nf()", 2, "`sys._getframe`"),
    ("import gc\n[o for o in gc.get_objects()]", 2, "`gc.get_objects`"),
    ("import urllib.request", 1, "imports `urllib.request`"),
    ("from urllib import request", 1, "imports `urllib.request`"),
    ("import subprocess\nsubprocess.run(['sh', '-c', 'ls'])", 2, "starts a program"),
    ("import os\nos.system('ls')", 2, "starts a program"),
    ("import torch\ntorch.cuda.synchronize = print", 2, "replaces `torch.cuda.synchronize`"),
    ("import torch as t\nt.Tensor.__eq__ = print", 2, "replaces `torch.Tensor.__eq__`"),
    ("import time\nsetattr(time, 'time', print)", 2, "replaces something of `time`"),
    ("from base64 import b64decode\nexec(b64decode('cGFzcw=='))", 2, "`exec` of text"),
    ("__import__('so' + 'cket')", 1, "whose name is put together"),
    ("import os\nany('K' in name for name in os.environ)", 2, "looks through all of `os.environ`"),
    ("import sys\nfor m in list(sys.modules.items()):\n    m", 2, "all of `sys.modules`"),
    ("open('/proc/self/mem', 'r+b')", 1, "looks into `/proc/self/mem`"),
    ("import ctypes\nctypes.CDLL(None).ptrace(0)", 2, "`ptrace` reaches into"),
    ("from pathlib import Path\nPath('model.py').write_text('')", 2, "names `model.py`"),
    (
        "import ctypes, zlib\nopen('k.so', 'wb').write(zlib.decompress(b''))\nctypes.CDLL('k.so')",
        3,
        "`ctypes.CDLL` of a library that the file carries encoded",
    ),
    ('S = """\n#include <unistd.h>\nint f() { return fork(); }"""', 3, "`fork` starts a process"),
    ('S = "__global__ void k();  int f() { return system(0); }"', 1, "`system` starts a program"),
    ('S = """#include <thread>\nvoid f() { std::thread(g).detach(); }"""', 2, "leaves a thread"),
    (
        'S = """#include <x>\nauto a = cudaLimitPersistingL2CacheSize;"""',
        2,
        "across the timer's flush",
    ),
]


@pytest.mark.parametrize(("text", "line", "words"), NEVER_HONEST)
def test_what_is_never_honest(tmp_path: Path, text: str, line: int, words: str) -> None:
    path = tmp_path / "new.py"
    path.write_text(f"{text}\n{GOOD}")
    checks = read_candidate(path, PROBLEM)
    assert checks[0].outcome is Outcome.FAILED
    assert checks[0].status is Status.CHEATING
    assert checks[0].evidence.startswith(f"new.py:{line}: ")
    assert words in checks[0].evidence


HONEST = [
    '"""Beats inspect.stack and os.fork of /proc/self/mem."""',
    "import os\nos.environ['TORCH_CUDA_ARCH_LIST'] = '9.0'\nos.environ.get('CUDA_HOME')",
    "import subprocess\nsubprocess.run(['nvcc', '--version'])",
    "import torch\ntorch.backends.cudnn.benchmark = True\ntorch._inductor.config.triton.x = 1",
    "import torch.utils.cpp_extension as c\nc.CUDA_HOME = '/usr/local/cuda'",
    "import torch\nclass F(torch.autograd.Function):\n    pass\nF.forward = print",
    "import importlib\nimportlib.import_module('triton')",
    "self = object()\nsetattr(self, 'k', 1)",
    'S = """#include <x>\n// system(1) and fork() are only words here\nsocket.connect(1);"""',
    'TEXT = "call fork() or system()"',
    "from base64 import b64encode\nb64encode(b'')",
]


@pytest.mark.parametrize("text", HONEST)
def test_what_honest_files_do(tmp_path: Path, text: str) -> None:
    path = tmp_path / "new.py"
    path.write_text(f"{text}\n{GOOD}")
    assert [check for check in read_candidate(path, PROBLEM) if check.status is not None] == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import torch\ns = torch.cuda.Stream()", "a stream of its own"),
        ("import torch\ntorch.backends.cudnn.benchmark = True", "for the whole process"),
        ("y = x.half()", "computes in 16 bits"),
        ("import torch\ng = torch.cuda.CUDAGraph()", "captures a CUDA graph"),
        ("import threading\nthreading.Thread(target=print)", "starts a thread"),
        ("exec('x = ' + 'y')", "put together"),
        ('S = """#include <x>\ncudaStreamCreate(&s);"""', "a stream of its own"),
    ],
)
def test_what_informs(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "new.py"
    path.write_text(f"{text}\n{GOOD}")
    (check,) = read_candidate(path, PROBLEM)
    assert check.outcome is Outcome.WARNING
    assert words in check.evidence


def test_16_bits_are_no_news_where_the_problem_has_them(tmp_path: Path) -> None:
    path = tmp_path / "new.py"
    path.write_text(f"y = x.half()\n{GOOD}")
    assert read_candidate(path, PROBLEM + "x = torch.float16") == ()


def test_a_good_file_gives_no_findings(tmp_path: Path) -> None:
    path = tmp_path / "new.py"
    path.write_text(GOOD)
    assert read_candidate(path, PROBLEM) == ()
    path.write_text("from torch.nn import Linear as ModelNew")
    assert read_candidate(path, PROBLEM) == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [("def f(:\n", "new.py:1"), ("x = 1\n", "defines no class `ModelNew`"), ("\0", "new.py")],
)
def test_what_cannot_be_a_candidate(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "new.py"
    path.write_text(text)
    (check,) = read_candidate(path, PROBLEM)
    assert check.outcome is Outcome.FAILED
    assert check.status is Status.BUILD_FAILED
    assert words in check.evidence
