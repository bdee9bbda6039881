"""Where the values of the inputs come from, and what is kept of those that the problem makes.

A distribution replaces values, not meaning: zeros stay zeros where a tensor has many of them (a
triangle, a mask), tensors of two values (signs, labels) stay as they are, symmetric matrices stay
symmetric and probabilities still add up to one. A kernel may rely on what the problem promises.
"""

import math
from collections.abc import Callable, Iterator
from enum import Enum

import torch
from torch import Tensor

_CHUNK = 1 << 24
"""Elements looked at together."""


class Distribution(Enum):
    """Where the floating-point values of the inputs come from; integers stay as made."""

    OWN = "own"
    """What `get_inputs` makes."""
    NORMAL = "normal"
    """Zero mean, unit variance: sums cancel, so lost low bits show."""
    SMALL = "small"
    """NORMAL times 1e-3."""
    LARGE = "large"
    """NORMAL times 64: exponentials overflow where a formula is not stable."""
    HEAVY = "heavy-tailed"
    """Cubes of normal numbers: a few are a hundred times the others."""
    INTEGERS = "integers"
    """Whole numbers from -4 to 4: many results are exact, and many values are equal."""
    CANCELLING = "cancelling"
    """The second half of every row takes back the first, but for its lowest bits."""
    NAN = "nan"
    """What `get_inputs` makes, with one NaN in every tensor."""
    INFINITE = "infinite"
    """What `get_inputs` makes, with one +Inf and one -Inf in every tensor."""


Refill = Callable[[Tensor, int], None]
"""Replaces a tensor's values in place, the same for the same seed on the same kind of device."""


def _keep(tensor: Tensor, seed: int) -> None:
    del tensor, seed


def _drawn(shape: Callable[[Tensor, torch.Generator], None]) -> Refill:
    """A refill that draws with `shape` and keeps what the problem promises of the values."""

    def refill(tensor: Tensor, seed: int) -> None:
        target = _unexpanded(tensor)
        if _has_two_values(target):
            return
        zeros = target == 0 if _zero_share(target) > _MANY else None
        symmetric, probabilities = _is_symmetric(target), _is_probabilities(target)
        generator = torch.Generator(device=target.device)
        generator.manual_seed(seed)
        target.normal_(generator=generator)
        shape(target, generator)
        if probabilities:
            target.copy_(target.softmax(dim=-1))
        if symmetric:
            target.copy_(target.tril() + target.tril(-1).transpose(-1, -2))
        if zeros is not None:
            target.masked_fill_(zeros, 0)

    return refill


def _as_drawn(tensor: Tensor, generator: torch.Generator) -> None:
    del tensor, generator


def _scaled(factor: float) -> Callable[[Tensor, torch.Generator], None]:
    def scale(tensor: Tensor, generator: torch.Generator) -> None:
        del generator
        tensor.mul_(factor)

    return scale


def _cubed(tensor: Tensor, generator: torch.Generator) -> None:
    del generator
    for chunk in _chunks(tensor):
        chunk.pow_(3)


def _whole(tensor: Tensor, generator: torch.Generator) -> None:
    del generator
    tensor.mul_(2).round_().clamp_(-4, 4)


def _cancelling(tensor: Tensor, generator: torch.Generator) -> None:
    row = tensor if tensor.dim() else tensor.reshape(1)
    half = row.shape[-1] // 2
    first, second = row[..., :half], row[..., half : 2 * half]
    noise = torch.empty_like(second).normal_(generator=generator)
    second.copy_(first.neg() * (1 + noise * 2.0**-10))


def _with(*values: float) -> Refill:
    """A refill that puts each of `values` somewhere and keeps everything else."""

    def put(tensor: Tensor, seed: int) -> None:
        generator = torch.Generator()
        generator.manual_seed(seed)
        target = _unexpanded(tensor)
        for value in values:
            place = tuple(
                int(torch.randint(size, (), generator=generator).item()) for size in target.shape
            )
            target[place] = value

    return put


NOT_FINITE = (Distribution.NAN, Distribution.INFINITE)
"""Distributions that are not numbers alone."""

REFILL: dict[Distribution, Refill] = {
    Distribution.OWN: _keep,
    Distribution.NORMAL: _drawn(_as_drawn),
    Distribution.SMALL: _drawn(_scaled(1e-3)),
    Distribution.LARGE: _drawn(_scaled(64.0)),
    Distribution.HEAVY: _drawn(_cubed),
    Distribution.INTEGERS: _drawn(_whole),
    Distribution.CANCELLING: _drawn(_cancelling),
    Distribution.NAN: _with(math.nan),
    Distribution.INFINITE: _with(math.inf, -math.inf),
}


_FEW_CHANGED = 8
"""Elements: few enough that a sample of an input hardly ever has one of them."""


@torch.no_grad()
def change_few(tensor: Tensor, seed: int) -> None:
    """Change some floating-point elements by much, wherever the seed says; integers stay."""
    if not tensor.is_floating_point() or tensor.numel() < 2:
        return
    generator = torch.Generator()
    generator.manual_seed(seed)
    target = _unexpanded(tensor)
    # Piece by piece: picking the finite ones out takes several times the memory of the tensor.
    finite = (piece.abs().where(piece.isfinite(), 0.0) for piece in _chunks(target))
    step = 1 + float(torch.stack([piece.max() for piece in finite]).max().item())
    for _ in range(_FEW_CHANGED):
        place = tuple(
            int(torch.randint(size, (), generator=generator).item()) for size in target.shape
        )
        target[place] += step


# --- What the problem promises of its inputs --------------------------------------------------

_MANY = 0.02
"""Share of zeros above which they are a pattern; drawn numbers are hardly ever zero."""

_FEW = 16
"""Elements below which two values or a symmetry may be chance."""


def _zero_share(tensor: Tensor) -> float:
    zeros = torch.stack([(chunk == 0).sum() for chunk in _chunks(tensor)])
    return int(zeros.sum().item()) / tensor.numel()


def _has_two_values(tensor: Tensor) -> bool:
    """Signs, labels and masks, which a kernel may compare with; constants are no such thing."""
    if tensor.numel() < _FEW:
        return False
    low, high = torch.stack(torch.aminmax(tensor)).tolist()
    return low != high and all(
        bool(((chunk == low) | (chunk == high)).all()) for chunk in _chunks(tensor)
    )


def _is_symmetric(tensor: Tensor) -> bool:
    square = tensor.dim() >= 2 and tensor.shape[-1] == tensor.shape[-2]
    if not square or tensor.numel() < _FEW:
        return False
    return bool((tensor == tensor.transpose(-1, -2)).all())


def _is_probabilities(tensor: Tensor) -> bool:
    if tensor.dim() == 0 or tensor.shape[-1] < 2 or float(tensor.min().item()) < 0:
        return False
    # The accuracy of a sum of so many rounded numbers.
    tolerance = 4 * torch.finfo(tensor.dtype).eps * math.sqrt(tensor.shape[-1])
    rows = tensor.sum(dim=-1, dtype=torch.float32)
    return bool(((rows - 1).abs() < tolerance + 1e-5).all())


def _chunks(tensor: Tensor) -> Iterator[Tensor]:
    """Views that together are the tensor, so that what is computed of one needs little memory."""
    if tensor.is_contiguous():
        yield from torch.split(tensor.view(-1), _CHUNK)
    else:
        yield tensor


def _unexpanded(tensor: Tensor) -> Tensor:
    """A view with one element of each that `expand` repeats: writing through it is allowed."""
    for dim, stride in enumerate(tensor.stride()):
        if stride == 0 and tensor.shape[dim] > 1:
            tensor = tensor.narrow(dim, 0, 1)
    return tensor
