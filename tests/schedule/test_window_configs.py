"""Which configurations poolings get, and in which order they are tried."""

import pytest

from kernelwright.ir.kinds import Pooling, Window
from kernelwright.ir.types import Dim, DType, TensorType
from kernelwright.ir.window_configs import WindowConfig, WindowWay
from kernelwright.machine import H200
from kernelwright.schedule.window_configs import window_configs

IMAGES = (256, 112, 112, 64)
"""Many enough that no walk is shortened to fill the card."""


def _kind(shape: tuple[int, ...]) -> TensorType:
    return TensorType(DType.F32, tuple(Dim.static(size) for size in shape))


def _configs(
    size: int, stride: int, images: tuple[int, ...] = IMAGES, channel_operands: int = 0
) -> tuple[WindowConfig, ...]:
    """Of windows over two dimensions before the channels."""
    window = Window(
        op=Pooling.SUM,
        size=(size, size, 1),
        stride=(stride, stride, 1),
        padding=(0, 0, 0),
        dilation=(1, 1, 1),
    )
    batch, *sides, channels = images
    result = (batch, *((side - size) // stride + 1 for side in sides), channels)
    inputs = [_kind(images), *[_kind((channels,))] * channel_operands]
    return window_configs(window, _kind(result), inputs, H200)


@pytest.mark.parametrize(("size", "stride", "steps"), [(2, 2, 4), (3, 2, 4), (3, 1, 16)])
def test_segments_are_short_where_channels_come_last(size: int, stride: int, steps: int) -> None:
    first = _configs(size, stride)[0]
    assert (first.way, first.steps, first.blocks) == (WindowWay.WALK, steps, 4)
    read = steps * stride + size - stride
    assert 8 * (read - steps * stride) <= steps * stride


def test_long_segments_are_left_to_the_tuner() -> None:
    assert [config.steps for config in _configs(3, 2)[:3]] == [4, 2, 64]


def test_small_images_have_still_shorter_segments() -> None:
    assert _configs(2, 2, images=(16, 32, 32, 64))[0].steps == 1


@pytest.mark.parametrize(
    ("size", "channel_operands", "blocks"),
    [(2, 0, 4), (2, 1, 4), (2, 2, 3), (2, 4, 2), (3, 0, 4), (3, 1, 2), (3, 2, 2)],
)
def test_blocks_leave_registers_for_what_is_read(
    size: int, channel_operands: int, blocks: int
) -> None:
    assert _configs(size, 2, channel_operands=channel_operands)[0].blocks == blocks


@pytest.mark.parametrize(("size", "channel_operands"), [(5, 0), (3, 4)])
def test_what_would_spill_walks_far(size: int, channel_operands: int) -> None:
    assert _configs(size, 2, channel_operands=channel_operands)[0].steps == 64


def test_windows_over_columns_walk_far() -> None:
    window = Window(op=Pooling.MAXIMUM, size=(3, 3), stride=(2, 2), padding=(1, 1), dilation=(1, 1))
    source, result = _kind((256, 64, 112, 112)), _kind((256, 64, 56, 56))
    assert window_configs(window, result, [source], H200)[0].steps == 64


@pytest.mark.parametrize(
    ("shape", "size", "stride", "padding", "shared"),
    [
        # Lines of no whole vectors, and of such.
        ((129, 192, 1001), 4, 2, 0, 32),
        ((64, 128, 4096), 4, 2, 0, None),
        ((65, 64, 113, 111), 2, 2, 0, 0),
        ((64, 64, 112, 112), 2, 2, 0, 32),
        # A tile has one step of three dimensions, or none.
        ((33, 16, 32, 64, 64), 2, 2, 0, 40),
        # Extremes of volumes of odd rows need no tile.
        ((33, 16, 31, 63, 65), 2, 2, 0, 0),
        ((33, 16, 32, 128, 64), 2, 2, 0, None),
        # Neighbours share half of what they read; a few tiles.
        ((65, 64, 113, 111), 4, 2, 0, None),
        ((65, 64, 113, 111), 3, 2, 1, None),
        ((2, 64, 113, 111), 2, 2, 0, None),
    ],
)
def test_windows_that_share_little_are_pooled_in_tiles(
    shape: tuple[int, ...], size: int, stride: int, padding: int, shared: int | None
) -> None:
    dims = len(shape) - 2
    window = Window(
        op=Pooling.MAXIMUM,
        size=(size,) * dims,
        stride=(stride,) * dims,
        padding=(padding,) * dims,
        dilation=(1,) * dims,
    )
    sides = ((side + 2 * padding - size) // stride + 1 for side in shape[2:])
    first = window_configs(window, _kind((*shape[:2], *sides)), [_kind(shape)], H200)[0]
    is_run = first.way in (WindowWay.TILES, WindowWay.FLAT)
    assert is_run == (shared is not None)
    assert shared is None or first.shared == shared * 1024


@pytest.mark.parametrize(
    ("dtype", "width", "vector"),
    [(DType.F32, 56, 4), (DType.BF16, 28, 4), (DType.BF16, 56, 4), (DType.BF16, 57, 1)],
)
def test_large_windows_of_weights_are_walked_in_accesses_that_fit(
    dtype: DType, width: int, vector: int
) -> None:
    """Eight columns of a 7 x 7 window are more than registers hold, four are not."""
    configs = _depthwise((32, 96, 56, width), 7, dtype=dtype)
    first = next(config for config in configs if config.way is WindowWay.WALK)
    assert first.vector == vector


def _depthwise(
    shape: tuple[int, ...], size: int, stride: int = 1, dtype: DType = DType.BF16
) -> tuple[WindowConfig, ...]:
    """Of a depthwise convolution whose result is as large as its source over the stride."""
    window = Window(
        op=Pooling.DOT,
        size=(size, size),
        stride=(stride, stride),
        padding=(size // 2, size // 2),
        dilation=(1, 1),
    )
    result = (*shape[:-2], *(-(-side // stride) for side in shape[-2:]))
    source, output, weights = (
        TensorType(dtype, tuple(map(Dim.static, sizes)))
        for sizes in (shape, result, (shape[-3], size, size))
    )
    return window_configs(window, output, [source, weights], H200)


@pytest.mark.parametrize(
    ("shape", "size", "vector", "outputs", "steps"),
    [
        ((32, 768, 7, 7), 7, 1, 4, 7),
        ((32, 384, 14, 14), 7, 2, 4, 14),
        ((32, 192, 28, 28), 7, 4, 4, 28),
    ],
)
def test_small_planes_are_whole_bands(
    shape: tuple[int, ...], size: int, vector: int, outputs: int, steps: int
) -> None:
    """Rows beyond a plane cost nothing, and rows of another band would."""
    first, *_ = _depthwise(shape, size)
    assert (first.way, first.vector) == (WindowWay.BANDS, vector)
    assert (first.outputs, first.steps) == (outputs, steps)


def test_few_planes_are_cut_in_bands() -> None:
    first, *_ = _depthwise((1, 96, 56, 56), 7)
    blocks = 96 * -(-56 // first.steps) / (first.threads // (56 // first.outputs))
    assert first.way is WindowWay.BANDS and blocks > H200.sm_count / 2


@pytest.mark.parametrize(
    ("shape", "dtype"), [((16, 64, 512, 512), DType.F32), ((8, 16, 30, 30), DType.F64)]
)
def test_wide_planes_and_wide_elements_are_walked(shape: tuple[int, ...], dtype: DType) -> None:
    assert _depthwise(shape, 3, dtype=dtype)[0].way is WindowWay.WALK


@pytest.mark.parametrize("size", [3, 5, 7])
@pytest.mark.parametrize("dtype", [DType.BF16, DType.F32])
@pytest.mark.parametrize("stride", [1, 2])
def test_threads_of_bands_have_room(size: int, stride: int, dtype: DType) -> None:
    configs = _depthwise((32, 64, 56, 56), size, stride, dtype)
    banded = [config for config in configs if config.way is WindowWay.BANDS]
    assert banded
    for config in banded:
        sums = ((size - 1) // stride + 1) * config.outputs
        registers = H200.registers_per_sm // (config.threads * config.blocks)
        assert registers >= sums + size * size
        reserved = H200.limits.reserved_shared_bytes
        most = H200.shared_memory_per_block + reserved
        assert config.blocks * (config.shared + reserved) <= most
        assert config.outputs % config.store == 0


def _by_channel(
    shape: tuple[int, ...], size: int, stride: int = 1, dtype: DType = DType.BF16
) -> tuple[WindowConfig, ...]:
    """Of a depthwise convolution of (images, height, width, channels), as above."""
    window = Window(
        op=Pooling.DOT_LAST,
        size=(size, size, 1),
        stride=(stride, stride, 1),
        padding=(size // 2, size // 2, 0),
        dilation=(1, 1, 1),
    )
    images, *sides, channels = shape
    result = (images, *(-(-side // stride) for side in sides), channels)
    source, output, weights = (
        TensorType(dtype, tuple(map(Dim.static, sizes)))
        for sizes in (shape, result, (size, size, channels))
    )
    return window_configs(window, output, [source, weights], H200)


@pytest.mark.parametrize("size", [3, 5, 7])
@pytest.mark.parametrize("dtype", [DType.BF16, DType.F32])
@pytest.mark.parametrize("stride", [1, 2])
def test_threads_of_channels_have_room(size: int, stride: int, dtype: DType) -> None:
    *configs, general = _by_channel((32, 28, 28, 240), size, stride, dtype)
    assert general.way is WindowWay.ELEMENTS and len(configs) > 2
    for config in configs:
        warps = config.threads * config.blocks // 32
        registers = H200.registers_per_sm // 4 // -(-warps // 4) // 32
        sums = ((size - 1) // stride + 1) * config.outputs
        assert config.way is WindowWay.CHANNELS
        assert registers >= (size * size + sums) * config.vector
        assert config.vector * dtype.itemsize <= 16


def test_maps_of_seven_are_one_segment_of_whole_rows() -> None:
    """Products with what is outside are left out, and rows of another segment are not read."""
    first, *_ = _by_channel((32, 7, 7, 768), 7)
    assert (first.outputs, first.steps) == (7, 7)


@pytest.mark.parametrize(("channels", "most"), [(97, 1), (98, 2), (100, 4), (96, 8)])
def test_channels_are_whole_accesses(channels: int, most: int) -> None:
    configs = _by_channel((32, 14, 14, channels), 3)[:-1]
    assert configs and all(most % config.vector == 0 for config in configs)


def test_wide_elements_of_channels_are_for_themselves() -> None:
    (general,) = _by_channel((8, 30, 30, 16), 3, dtype=DType.F64)
    assert general.way is WindowWay.ELEMENTS
