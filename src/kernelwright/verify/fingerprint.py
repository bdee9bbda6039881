"""A checksum of a tensor's values that a GPU computes as fast as it reads them."""

import hashlib
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from kernelwright.verify.waiting import settle

_CHUNK_WORDS = 1 << 22
_WORD_BYTES = 8


def raw_bytes(tensor: Tensor) -> Tensor:
    """The values in logical order as a flat uint8 tensor on the same device."""
    plain = tensor.detach().resolve_conj().resolve_neg().reshape(-1)
    if plain.numel() < 2 or not plain.is_contiguous():
        # Tensors of no or one element count as contiguous whatever their strides are, but only a
        # stride of one can be viewed as bytes.
        plain = plain.clone(memory_format=torch.contiguous_format)
    return plain.view(torch.uint8)


def fingerprint(tensor: Tensor) -> str:
    """Hexadecimal checksum of dtype, shape and values (bit for bit) in logical order.

    Every 8-byte word is mixed and weighted with its place, modulo 2^64, chunk by chunk, so that
    the same values give the same text on a CPU and on a GPU and equal sums in another order do
    not. It finds accidents; a checksum that withstands an attacker is not what it is for.
    """
    return fingerprints([tensor])[0]


@torch.no_grad()
def fingerprints(tensors: Sequence[Tensor]) -> list[str]:
    """The checksum of each.

    They are brought to the host together: where several processes use a device, waiting for it
    takes longer than what it computes.
    """
    parts = [_sums_and_rest(tensor) for tensor in tensors]
    return [
        _digest(tensor, numbers)
        for tensor, numbers in zip(tensors, _on_the_host(parts), strict=True)
    ]


def _digest(tensor: Tensor, numbers: Sequence[int]) -> str:
    digest = hashlib.blake2b(f"{tensor.dtype} {tuple(tensor.shape)}".encode(), digest_size=12)
    for number in numbers:
        digest.update(number.to_bytes(_WORD_BYTES, "little", signed=True))
    return digest.hexdigest()


def _on_the_host(parts: Sequence[Tensor]) -> list[list[int]]:
    """The numbers of each, with one wait for each device."""
    numbers: list[list[int]] = [[] for _ in parts]
    for device in {part.device for part in parts}:
        here = [place for place, part in enumerate(parts) if part.device == device]
        together = torch.cat([parts[place] for place in here])
        settle(device)
        joined = iter(together.tolist())
        for place in here:
            numbers[place] = [next(joined) for _ in range(parts[place].numel())]
    return numbers


def _sums_and_rest(tensor: Tensor) -> Tensor:
    """The sums of the chunks, then the bytes that make no whole word, as int64 on its device."""
    flat = raw_bytes(tensor)
    whole = flat.numel() // _WORD_BYTES * _WORD_BYTES
    step = _CHUNK_WORDS * _WORD_BYTES
    weights = torch.arange(min(whole, step) // _WORD_BYTES, device=flat.device) * 2 + 1
    sums = []
    for start in range(0, whole, step):
        # A slice of misaligned storage cannot be viewed as words; its copy can.
        words = flat[start : min(start + step, whole)].clone().view(torch.int64)
        mixed = (words ^ (words >> 29)) * weights[: words.numel()]
        sums.append(mixed.sum())
    return torch.cat([*(total.reshape(1) for total in sums), flat[whole:].to(torch.int64)])


@torch.no_grad()
def tells_apart(tensor: Tensor) -> bool:
    """Whether two of its finite values differ.

    That another tensor has the same bits says something only then: what is NaN or Inf throughout,
    or one number, comes out for many inputs.
    """
    plain = tensor.detach()
    flat = (plain.abs() if plain.is_complex() else plain).reshape(-1)
    low, high = math.inf, -math.inf
    for piece in torch.split(flat, _CHUNK_WORDS):
        if piece.numel():
            wide, finite = piece.to(torch.float64), piece.isfinite()
            ends = wide.where(finite, math.inf).min(), wide.where(finite, -math.inf).max()
            least, most = torch.stack(ends).tolist()
            low, high = min(low, least), max(high, most)
        if low < high:
            return True
    return False
