"""A checksum of a tensor's values that a GPU computes as fast as it reads them."""

import hashlib
import math
from collections.abc import Iterator, Sequence
from itertools import accumulate, islice

import torch
from torch import Tensor

from kernelwright.verify.waiting import on_the_host

_CHUNK_WORDS = 1 << 22
_WORD_BYTES = 8
_SMALL = 1 << 20
"""Bytes of a tensor up to which it is looked at together with others."""
_TOGETHER = 64 << 20
"""Bytes that are looked at together."""


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
    takes longer than what it computes. Small ones are computed together as well.
    """
    flats = [raw_bytes(tensor) for tensor in tensors]
    groups = _groups(flats)
    parts = on_the_host([_numbers([flats[place] for place in group]) for group in groups])
    marks = [""] * len(flats)
    for group, found in zip(groups, parts, strict=True):
        own = [flats[place] for place in group]
        for place, numbers in zip(group, _shared_out(found.tolist(), own), strict=True):
            marks[place] = _digest(tensors[place], numbers)
    return marks


def _groups(flats: Sequence[Tensor]) -> list[list[int]]:
    """Places of those that are looked at together: small ones of a device, each large one."""
    open_groups: dict[torch.device, tuple[int, list[int]]] = {}
    groups: list[list[int]] = []
    for place, flat in enumerate(flats):
        size, group = open_groups.get(flat.device, (_TOGETHER + 1, []))
        if _is_large(flat) or size + flat.numel() > _TOGETHER:
            size, group = 0, []
            groups.append(group)
        group.append(place)
        if not _is_large(flat):
            open_groups[flat.device] = size + flat.numel(), group
    return groups


def _digest(tensor: Tensor, numbers: Sequence[int]) -> str:
    digest = hashlib.blake2b(f"{tensor.dtype} {tuple(tensor.shape)}".encode(), digest_size=12)
    for number in numbers:
        digest.update(number.to_bytes(_WORD_BYTES, "little", signed=True))
    return digest.hexdigest()


def _numbers(flats: Sequence[Tensor]) -> Tensor:
    """Sums of words, then the bytes that make no whole word, as int64 on the device of all."""
    wholes = [_whole(flat) for flat in flats]
    sums = _sums(flats[0]) if _is_large(flats[0]) else _sums_of_small(flats)
    rests = torch.cat([flat[whole:] for flat, whole in zip(flats, wholes, strict=True)])
    return torch.cat([sums, rests.to(torch.int64)])


def _shared_out(numbers: Sequence[int], flats: Sequence[Tensor]) -> Iterator[list[int]]:
    """What `_numbers` gave, by tensor."""
    rests = [flat.numel() - _whole(flat) for flat in flats]
    count = len(numbers) - sum(rests)
    sums, bytes_ = numbers[:count], iter(numbers[count:])
    for place, rest in enumerate(rests):
        own = sums if _is_large(flats[0]) else sums[place : place + 1]
        yield [*own, *islice(bytes_, rest)]


def _is_large(flat: Tensor) -> bool:
    return flat.numel() > _SMALL


def _whole(flat: Tensor) -> int:
    """Bytes in whole words."""
    return flat.numel() // _WORD_BYTES * _WORD_BYTES


def _sums_of_small(flats: Sequence[Tensor]) -> Tensor:
    """The sum of each.

    They are differences of running totals over all of them, in which weights go on from one to the
    next: modulo 2^64 that is taken back exactly.
    """
    words = torch.cat([flat[: _whole(flat)] for flat in flats]).view(torch.int64)
    mixed = words ^ (words >> 29)
    weighted = mixed * (torch.arange(mixed.numel(), device=mixed.device) * 2 + 1)
    begins = [0, *accumulate(_whole(flat) // _WORD_BYTES for flat in flats)]
    places = torch.tensor(begins).to(mixed.device, non_blocking=True)
    plain_sums, weighted_sums = (
        torch.cat([it.new_zeros(1), it.cumsum(0)])[places].diff() for it in (mixed, weighted)
    )
    return weighted_sums - 2 * places[:-1] * plain_sums


def _sums(flat: Tensor) -> Tensor:
    """The sums of the chunks of one large tensor."""
    whole, step = _whole(flat), _CHUNK_WORDS * _WORD_BYTES
    weights = torch.arange(min(whole, step) // _WORD_BYTES, device=flat.device) * 2 + 1
    sums = []
    for start in range(0, whole, step):
        # A slice of misaligned storage cannot be viewed as words; its copy can.
        words = flat[start : min(start + step, whole)].clone().view(torch.int64)
        mixed = (words ^ (words >> 29)) * weights[: words.numel()]
        sums.append(mixed.sum())
    return torch.stack(sums)


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
