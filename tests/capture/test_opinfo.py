"""PyTorch's own samples: what `opinfo.txt` says of our operators, with one sample of each.

All samples and element types are tried by hand: `python tests/capture/opinfo.py`.
"""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("expecttest", reason="PyTorch's samples need it")


def _load() -> Any:
    path = Path(__file__).parent / "opinfo.py"
    spec = importlib.util.spec_from_file_location("capture_opinfo", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["capture_opinfo"] = module  # where dataclasses look for their module
    spec.loader.exec_module(module)
    return module


opinfo = _load()
OURS = opinfo.ours()
GROUP = 32
FIRST = range(0, len(OURS), GROUP)


@pytest.mark.parametrize("first", FIRST, ids=[list(OURS)[at] for at in FIRST])
@pytest.mark.filterwarnings("ignore")
def test_samples(first: int) -> None:
    """A module of many operators, each on one sample, the element types taking turns."""
    known = opinfo.operators()
    calls = []
    for at, (name, shorts) in enumerate(list(OURS.items())[first : first + GROUP]):
        dtype = opinfo.DTYPES[shorts[at % len(shorts)]]
        if name in known:  # in this version of PyTorch
            made = opinfo.samples(name, dtype, 3)
            calls += [(known[name].op, sample) for sample in made[at % len(made) :][:1]]
    assert calls
    assert opinfo.left(opinfo.hold(opinfo.Calls(calls))) == set()


def test_few_operators_differ() -> None:
    """What is captured agrees with PyTorch, but where the table says why not."""
    lines = opinfo.TABLE.read_text().splitlines()
    assert len(OURS) > 300
    assert not [line for line in lines if "DIFFERS" in line]
