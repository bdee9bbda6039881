"""Copies in the mode im2col give what the PTX ISA says, and refuse what it does not have."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice, product
from typing import Any

import pytest
import torch

Build = Callable[..., Any]

_SPANS = (16, 32, 64, 128)


@dataclass(frozen=True, slots=True)
class Copy:
    """One copy; W first, three of each."""

    images: int
    channels: int
    sizes: tuple[int, int, int]
    lower: tuple[int, int, int]
    upper: tuple[int, int, int]
    steps: tuple[int, int, int]
    box_channels: int
    box_pixels: int
    swizzle: int
    channel: int
    image: int
    place: tuple[int, int, int]
    offset: tuple[int, int, int]

    @property
    def spatial(self) -> int:
        """Dimensions of an image."""
        return 3 if self.sizes[2] > 1 else 2 if self.sizes[1] > 1 else 1

    def numbers(self) -> list[int]:
        """As run_fetch_pixels takes them."""
        box = (self.box_channels, self.box_pixels, self.swizzle, self.channel, self.image)
        corners = (*self.sizes, *self.lower, *self.upper, *self.steps)
        return [
            self.images,
            self.channels,
            self.channels,
            *corners,
            *box,
            *self.place,
            *self.offset,
        ]


_PLAIN = Copy(
    images=2, channels=72, sizes=(9, 7, 1), lower=(-1, -1, 0), upper=(-1, -1, 0),
    steps=(1, 1, 1), box_channels=64, box_pixels=80, swizzle=3, channel=0, image=0,
    place=(-1, -1, 0), offset=(0, 0, 0),
)  # fmt: skip
_COPIES = (
    _PLAIN,
    # From the middle of a row over two images and beyond; the last channels are outside.
    replace(_PLAIN, channel=32, place=(4, 2, 0), offset=(2, 1, 0)),
    # Strides that leave a rest, and rows of 32 bytes.
    replace(_PLAIN, steps=(3, 2, 1), upper=(1, 0, 0), box_channels=16, swizzle=1, box_pixels=20,
            place=(2, 1, 0), offset=(1, 2, 0)),
    Copy(3, 32, (21, 1, 1), (-3, 0, 0), (3, 0, 0), (2, 1, 1), 32, 50, 2, 0, 1, (-1, 0, 0),
         (4, 0, 0)),
    Copy(2, 16, (5, 4, 3), (-2, -1, 0), (0, 1, -1), (1, 1, 1), 16, 100, 0, 0, 0, (-2, -1, 0),
         (2, 0, 1)),
    Copy(2, 64, (5, 4, 3), (0, 0, 0), (0, 0, 0), (2, 3, 2), 64, 9, 3, 0, 0, (4, 3, 2), (0, 0, 0)),
)  # fmt: skip


def _expected(copy: Copy, data: torch.Tensor) -> torch.Tensor:
    """The pixels as they must lie in shared memory; data [image][D][H][W][channel]."""
    ranges = [
        range(low, size + high, step)
        for size, low, high, step in zip(
            copy.sizes, copy.lower, copy.upper, copy.steps, strict=True
        )
    ]
    walk = product(range(copy.images + 9), ranges[2], ranges[1], ranges[0])
    start = (copy.image, copy.place[2], copy.place[1], copy.place[0])
    rows = torch.zeros(copy.box_pixels, copy.box_channels, dtype=data.dtype)
    pixels = islice((at for at in walk if at >= start), copy.box_pixels)
    for row, (image, depth, height, width) in zip(rows, pixels, strict=True):
        at = tuple(a + o for a, o in zip((width, height, depth), copy.offset, strict=True))
        inside = all(0 <= a < size for a, size in zip(at, copy.sizes, strict=True))
        if inside and image < copy.images:
            channels = data[image, at[2], at[1], at[0]][copy.channel :][: copy.box_channels]
            row[: len(channels)] = channels
    chunks = rows.view(torch.uint8).view(-1, 16)
    number = torch.arange(len(chunks))
    return chunks[torch.argsort(number ^ (number // 8 % (_SPANS[copy.swizzle] // 16)))].flatten()


def _run(unit: Any, copy: Copy) -> tuple[int, torch.Tensor, torch.Tensor]:
    data = torch.randn(copy.images, *reversed(copy.sizes), copy.channels).half()
    out = torch.zeros(copy.box_pixels * copy.box_channels * 2, dtype=torch.uint8)
    status = unit.run("run_fetch_pixels", data, copy.spatial, copy.numbers(), out)
    return status, data, out


def test_pixels_across_rows_and_images(build: Build) -> None:
    unit = build("pixels")
    for copy in _COPIES:
        status, data, out = _run(unit, copy)
        assert status == 0, copy
        assert torch.equal(out, _expected(copy, data)), copy
    assert unit.session.findings == ()


def test_maps_of_pixels_that_the_driver_refuses(build: Build) -> None:
    unit = build("pixels")
    wide = replace(_PLAIN, sizes=(300, 7, 1))
    deep = replace(_PLAIN, sizes=(9, 7, 5), lower=(-1, -1, 0), upper=(-1, -1, 0))
    for copy in (
        replace(_PLAIN, box_channels=128),  # more than the swizzle's 128 bytes
        replace(_PLAIN, steps=(9, 1, 1)),
        replace(wide, upper=(-200, 0, 0)),  # 8 bits
        replace(deep, lower=(-17, 0, 0)),  # 5 bits
        replace(_PLAIN, upper=(-11, 0, 0)),  # no pixel is left
    ):
        assert _run(unit, copy)[0] == 1, copy
    assert _run(unit, replace(wide, upper=(-128, 0, 0)))[0] == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"place": (8, 0, 0)}, "bounding box"),
        ({"offset": (256, 0, 0)}, "offset"),
        ({"channel": 20}, "16 bytes"),
    ],
)
def test_copies_of_pixels_that_do_not_exist(
    build: Build, change: dict[str, Any], message: str
) -> None:
    unit = build("pixels")
    assert _run(unit, replace(_PLAIN, **change))[0] != 0
    assert any(message in finding.message for finding in unit.session.findings)


@pytest.mark.parametrize("seed", [0, 1])
def test_words_that_many_read_between_barriers_of_some_warps(build: Build, seed: int) -> None:
    unit = build("pixels", order_seed=seed)
    out = torch.zeros(64, dtype=torch.int32)
    assert unit.run("run_share_words", 0, out) == 0
    assert unit.session.findings == ()
    assert out.tolist() == [192] * 64
    unit.run("run_share_words", 1, out)
    assert any("that another thread read" in f.message or "read" in f.message
               for f in unit.session.findings)  # fmt: skip
