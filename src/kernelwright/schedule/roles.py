"""Which letters of a contraction play batch, m, n and k of a matrix product."""

from dataclasses import dataclass

from kernelwright.ir.kinds import Contract
from kernelwright.ir.product_configs import Major


@dataclass(frozen=True, slots=True, kw_only=True)
class Roles:
    """`out[batch..., m, n] = sum_k left[batch..., m, k] * right[batch..., k, n]`.

    The result itself may have its rows anywhere before its columns.
    """

    swapped: bool
    """True when the contraction's rhs is the product's left operand."""
    left: str
    """Letters of the left operand as they lie."""
    right: str
    batch: str
    """The other letters of the result."""
    m: str
    """One letter, or "" when the result has no row dimension (a vector times a matrix)."""
    n: str
    k: str

    @property
    def left_major(self) -> Major:
        """How the left factor lies if its tensor is contiguous."""
        return _major(self.left, self.m, self.k)

    @property
    def right_major(self) -> Major:
        """How the right factor lies if its tensor is contiguous."""
        return _major(self.right, self.n, self.k)


def _major(letters: str, own: str, summed: str) -> Major:
    return {summed: Major.K, own: Major.MN}.get(letters[-1], Major.NONE)


def roles(contract: Contract) -> Roles | str:
    """The roles of the letters, or a sentence that says why this is no matrix product."""
    summed = [x for x in contract.lhs if x in contract.rhs and x not in contract.out]
    # The kernels walk one contiguous or strided K.
    if len(summed) != 1:
        return f"it sums over {len(summed)} dimensions, and our kernels sum over one"
    # A full dot product has no tile to compute: it is a reduction.
    if not contract.out:
        return "its result is one number"
    n = contract.out[-1]
    # Columns of the result belong to one operand alone.
    if n in contract.lhs and n in contract.rhs:
        return "the last dimension of its result is a batch dimension"
    swapped = n in contract.lhs
    left, right = (contract.rhs, contract.lhs) if swapped else (contract.lhs, contract.rhs)
    rest = contract.out[:-1]
    rows = [x for x in rest if x in left and x not in right]
    m = rows[-1] if rows else ""
    # What has a right factor in common comes last: launchers take it for rows again.
    batch = "".join(sorted((x for x in rest if x != m), key=lambda x: x in rows))
    return Roles(swapped=swapped, left=left, right=right, batch=batch, m=m, n=n, k=summed[0])
