"""Operands of a contraction as the matrix-product launchers expect them: views, no copies."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kernelwright.ir.kinds import Contract
from kernelwright.ir.plan import Kernel
from kernelwright.ir.sizes import ONE
from kernelwright.ir.types import Dim
from kernelwright.schedule.roles import Roles, roles


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrangement:
    """A view of one operand: its dimensions permuted, then dimensions of size 1 put in."""

    permute: tuple[int, ...]
    unsqueeze: tuple[int, ...]
    """Positions from the front, each counted after the insertions before it."""

    def text(self, name: str) -> str:
        """The view as a Python expression over the tensor called `name`."""
        if self.permute == (1, 0):
            name += ".t()"
        elif self.permute != tuple(range(len(self.permute))):
            name += f".permute({', '.join(map(str, self.permute))})"
        return name + "".join(f".unsqueeze({position})" for position in self.unsqueeze)

    def apply(self, tensor: Any) -> Any:
        """The view of a torch.Tensor."""
        tensor = tensor.permute(self.permute)
        for position in self.unsqueeze:
            tensor = tensor.unsqueeze(position)
        return tensor

    def sizes(self, shape: Sequence[Dim]) -> tuple[Dim, ...]:
        """The dimensions of the view of a tensor of this shape."""
        seen = [shape[dim] for dim in self.permute]
        for position in self.unsqueeze:
            seen.insert(position, ONE)
        return tuple(seen)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arranged:
    """Arguments of a launch: which results and inputs, and in which views."""

    results: tuple[Arrangement | None, ...]
    """The view of each result; None for what is taken as it is."""
    inputs: tuple[tuple[int, Arrangement | None], ...]
    """Index of the input, and its view, in the launcher's order."""


def as_they_are(kernel: Kernel) -> Arranged:
    """Results and inputs in the order and the views of the plan."""
    return Arranged(
        results=(None,) * len(kernel.outputs),
        inputs=tuple((at, None) for at, _ in enumerate(kernel.inputs)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """How out (..., m, n), left (..., m, k) and right (..., k, n) come from a contraction."""

    swapped: bool
    """The contraction's rhs is the left factor."""
    is_row: bool
    """A vector times a matrix: the result has no dimension for its one row."""
    out: Arrangement
    left: Arrangement
    right: Arrangement
    letters: str
    """One letter for each of the result's dimensions."""
    order: str
    """Those letters in the order that the launchers expect."""

    def joined(self, rank: int) -> Arrangement:
        """The view of a tensor of so many dimensions that broadcasts to the result."""
        if rank == 0:
            return Arrangement(permute=(), unsqueeze=())
        is_row = self.is_row and rank > 1
        return _arrange(self.letters[-rank:], self.order, is_row=is_row)


def product_of(contract: Contract) -> Product:
    """The arrangements for a contraction that the schedule room gave a gemm kernel."""
    found = roles(contract)
    assert isinstance(found, Roles), "the schedule room gives only matrix products an anchor"
    is_row = not found.m
    order = found.batch + found.m + found.n
    return Product(
        swapped=found.swapped,
        is_row=is_row,
        out=_arrange(contract.out, order, is_row=is_row),
        left=_arrange(found.left, found.batch + found.m + found.k, is_row=is_row),
        right=_arrange(found.right, found.batch + found.k + found.n, is_row=False),
        letters=contract.out,
        order=order,
    )


def _arrange(letters: str, wanted: str, *, is_row: bool) -> Arrangement:
    """Dimensions `letters` in the order of `wanted`, size 1 where one is missing.

    `is_row`: one of size 1 is put in before the last besides. Leading dimensions that are missing
    stay missing: the launchers broadcast by trailing ones.
    """
    present = [letter for letter in wanted if letter in letters]
    first = wanted.index(present[0])
    missing = [at - first for at in range(first + 1, len(wanted)) if wanted[at] not in letters]
    row = (len(present) + len(missing) - 1,) if is_row else ()
    return Arrangement(
        permute=tuple(letters.index(letter) for letter in present),
        unsqueeze=(*missing, *row),
    )
