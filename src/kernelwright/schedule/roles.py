"""Which letters of a contraction play batch, m, n and k of a matrix product."""

from dataclasses import dataclass

from kernelwright.ir.graph import Contract
from kernelwright.ir.plan import Major


@dataclass(frozen=True, slots=True, kw_only=True)
class Roles:
    """`out[batch..., m, n] = sum_k left[batch..., m, k] * right[batch..., k, n]`."""

    swapped: bool
    """True when the contraction's rhs is the product's left operand."""
    left: str
    """Letters of the left operand as they lie."""
    right: str
    batch: str
    """Letters of the leading dimensions of the result, in its order."""
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
        return f"it sums over {len(summed)} dimensions, the kernel over one"
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
    m = rest[-1] if rest and rest[-1] in left and rest[-1] not in right else ""
    # A row dimension further left would need a permuted result.
    if not m and any(x in left and x not in right for x in rest):
        return "the rows of its result are not next to its columns"
    batch = rest[: len(rest) - len(m)]
    return Roles(swapped=swapped, left=left, right=right, batch=batch, m=m, n=n, k=summed[0])
