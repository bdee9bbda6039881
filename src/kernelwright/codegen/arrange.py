"""Operands of a contraction as the matrix-product launchers expect them: views, no copies."""

from kernelwright.ir.graph import Contract
from kernelwright.schedule.roles import Roles, roles


def arranged_product(contract: Contract, out: str, lhs: str, rhs: str) -> tuple[str, str, str]:
    """Expressions for out (..., m, n), left (..., m, k) and right (..., k, n)."""
    found = roles(contract)
    assert isinstance(found, Roles), "the schedule room gives only matrix products an anchor"
    left, right = (rhs, lhs) if found.swapped else (lhs, rhs)
    if not found.m:
        # A vector times a matrix: one row.
        out = f"{out}.unsqueeze(-2)"
    return (
        out,
        _arranged(left, found.left, found.batch + found.m + found.k, found.m),
        _arranged(right, found.right, found.batch + found.k + found.n, "always"),
    )


def _arranged(text: str, letters: str, wanted: str, row: str) -> str:
    """`text` with dimensions `letters`, permuted to the order of `wanted`, size 1 where missing.

    Leading dimensions that are missing stay missing: the launchers broadcast by trailing ones.
    """
    present = [letter for letter in wanted if letter in letters]
    order = [letters.index(letter) for letter in present]
    if order == [1, 0]:
        text += ".t()"
    elif order != sorted(order):
        text += f".permute({', '.join(map(str, order))})"
    first = wanted.index(present[0])
    for position in range(first + 1, len(wanted)):
        if wanted[position] not in letters:
            text += f".unsqueeze({position - first})"
    if not row:
        text += ".unsqueeze(-2)"
    return text
