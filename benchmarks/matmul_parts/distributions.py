"""Values for the two factors of a product: what is ordinary, and what is hard for split numbers.

Every function fills `a`, (..., M, K), and `b`, (..., K, N), in place; both may be transposed views
and of a 16-bit type. The generator of the CUDA device is used as it stands: seed it before.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

Fill = Callable[[Tensor, Tensor], None]


def _uniform(a: Tensor, b: Tensor) -> None:
    a.uniform_()
    b.uniform_()


def _normal(a: Tensor, b: Tensor) -> None:
    a.normal_()
    b.normal_()


def _relu_normal(a: Tensor, b: Tensor) -> None:
    a.normal_().clamp_(min=0)
    b.normal_().clamp_(min=0)


def _constant(a: Tensor, b: Tensor) -> None:
    a.fill_(1 / 3)
    b.fill_(0.7)


def _graded_independent(a: Tensor, b: Tensor, bits: int) -> None:
    """Column k of A and row k of B each scaled by 2 to a power drawn from [-`bits`, 0]."""
    _normal(a, b)
    a.mul_(torch.exp2(-bits * _places(a)))
    b.mul_(torch.exp2(-bits * _places(a))[:, None])


def _graded_opposed(a: Tensor, b: Tensor, bits: int) -> None:
    """The same, but large columns of A meet small rows of B: every product counts alike."""
    _normal(a, b)
    places = _places(a)
    a.mul_(torch.exp2(-bits * places))
    b.mul_(torch.exp2(-bits * (1 - places))[:, None])


def _places(a: Tensor) -> Tensor:
    """A number in [0, 1) for each k."""
    return torch.rand(a.shape[-1], device=a.device, dtype=a.dtype)


def _one_huge(a: Tensor, b: Tensor) -> None:
    _normal(a, b)
    a[..., 0, 0] = 1e30


def _tiny_rows(a: Tensor, b: Tensor) -> None:
    _normal(a, b)
    a[..., ::2, :] *= 1e-30


def _huge_rows(a: Tensor, b: Tensor) -> None:
    """Every other row and column so large that their products just stay finite."""
    _uniform(a, b)
    largest = (torch.finfo(torch.float32).max / a.shape[-1]) ** 0.5
    a[..., ::2, :] *= largest
    b[..., ::2] *= largest


def _cancelling(a: Tensor, b: Tensor) -> None:
    """Every product is followed by its negative, all but a ten-thousandth."""
    _normal(a, b)
    pairs = a.shape[-1] // 2
    a[..., 1 : 2 * pairs : 2] = a[..., 0 : 2 * pairs : 2]
    b[..., 1 : 2 * pairs : 2, :] *= 1e-4
    b[..., 1 : 2 * pairs : 2, :] -= b[..., 0 : 2 * pairs : 2, :]


def _identity(a: Tensor, b: Tensor) -> None:
    a.normal_()
    b.zero_().diagonal(dim1=-2, dim2=-1).fill_(1)


def _powers_of_two(a: Tensor, b: Tensor) -> None:
    for factor in (a, b):
        exponents = torch.randint(-6, 7, factor.shape, device=factor.device, dtype=factor.dtype)
        signs = torch.randint(0, 2, factor.shape, device=factor.device, dtype=factor.dtype)
        factor.copy_(torch.exp2(exponents) * (2 * signs - 1))


def _integers(a: Tensor, b: Tensor) -> None:
    a.random_(-8, 9)
    b.random_(-8, 9)


def _subnormal(a: Tensor, b: Tensor) -> None:
    _normal(a, b)
    a.mul_(1e-30).mul_(1e-10)


def _plant(a: Tensor, b: Tensor, lhs: tuple[float, ...], rhs: tuple[float, ...]) -> None:
    """The values of `lhs` in different rows of A, those of `rhs` in different columns of B."""
    _normal(a, b)
    rows, inner, columns = a.shape[-2], a.shape[-1], b.shape[-1]
    for index, value in enumerate(lhs):
        a[..., (7 * index + 1) % rows, (5 * index + 2) % inner] = value
    for index, value in enumerate(rhs):
        b[..., (3 * index + 2) % inner, (11 * index + 1) % columns] = value


def _infinity_times_zero(a: Tensor, b: Tensor) -> None:
    """An Inf in B meets zeros in every third row of A: NaN there, Inf elsewhere."""
    _normal(a, b)
    a[..., ::3, 0] = 0
    b[..., 0, 0] = torch.inf


def _infinity_minus_infinity(a: Tensor, b: Tensor) -> None:
    """A row of A with Inf and -Inf, against columns of B of one sign: NaN in that row."""
    _uniform(a, b)
    a[..., 0, 0] = torch.inf
    a[..., 0, -1] = -torch.inf


def _overflow(a: Tensor, b: Tensor) -> None:
    """Finite factors, every element of the result beyond the largest float."""
    _uniform(a, b)
    a.add_(1).mul_(1e30)
    b.add_(1).mul_(1e30)


COMMON: dict[str, Fill] = {
    "uniform": _uniform,
    "normal": _normal,
    "relu(normal)": _relu_normal,
    "constant": _constant,
}
"""What every shape is measured on."""

_RANGES = (8, 18, 28, 34, 40, 60)

HARD: dict[str, Fill] = (
    {f"graded {bits} bits": partial(_graded_independent, bits=bits) for bits in _RANGES}
    | {f"graded {bits} bits, opposed": partial(_graded_opposed, bits=bits) for bits in _RANGES}
    | {
        "one huge element": _one_huge,
        "tiny rows": _tiny_rows,
        "huge rows": _huge_rows,
        "cancelling pairs": _cancelling,
        "identity": _identity,
        "powers of two": _powers_of_two,
        "integers": _integers,
        "subnormal": _subnormal,
        "infinities": partial(_plant, lhs=(torch.inf, -torch.inf), rhs=(torch.inf,)),
        "NaN": partial(_plant, lhs=(torch.nan,), rhs=(torch.nan,)),
        "infinities and NaN": partial(_plant, lhs=(torch.inf, torch.nan), rhs=(-torch.inf,)),
        "infinity times zero": _infinity_times_zero,
        "infinity minus infinity": _infinity_minus_infinity,
        "overflow": _overflow,
    }
)
"""What the representative shapes are measured on as well; float32 factors only."""

ALL = COMMON | HARD
