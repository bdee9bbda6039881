"""Stand-ins for modules of PyTorch: what they answer, and when the real ones take over."""

import subprocess
import sys

import pytest

_ASKING = """
import sys
import torch
from kernelwright.problem.stand_ins import ALGEBRA, COMPILER, SYMBOLS, stand_ins

with stand_ins():
    import sympy
    from torch.fx.experimental.symbolic_shapes import guard_or_false, sym_and, sym_eq
    known = guard_or_false(True), sym_and(True, False), sym_eq((2, [3]), [2, (3,)]), sym_eq(2, 3)
    early = "__file__" not in vars(sys.modules[ALGEBRA])
{inside}
print(known, early, [it for it in (ALGEBRA, COMPILER, SYMBOLS) if it in sys.modules])
from torch.fx.experimental.symbolic_shapes import ShapeEnv
symbol = ShapeEnv().create_unbacked_symint()
print(guard_or_false(symbol == 3), isinstance(symbol.node.expr, sympy.Basic))
"""


@pytest.mark.parametrize(
    ("inside", "left"),
    [
        ("", "[]"),
        ("    sympy.Symbol", "['sympy']"),
        (
            "    from torch.fx.experimental.symbolic_shapes import ShapeEnv",
            "['sympy', 'torch.fx.experimental.symbolic_shapes']",
        ),
    ],
)
def test_plain_numbers_are_answered_and_all_else_is_the_real_ones(inside: str, left: str) -> None:
    """What somebody has kept of a stand-in gives the answers of the real one later."""
    command = [sys.executable, "-c", _ASKING.replace("{inside}", inside)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    known = f"(True, False, True, False) True {left}"
    assert done.stdout.splitlines() == [known, "False True"]
