"""What the kernels compute on the host, and functions of one element, under the C++ compiler.

The kernels themselves run on the emulator through the files that codegen emits, and on a GPU in
benchmarks/kernels.
"""

import ctypes
import subprocess
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelwright import kernels
from kernelwright.program.abi import pack
from kernelwright.toolchain.compilers import require_cxx

_HERE = Path(__file__).parent / "host"


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    target = tmp_path_factory.mktemp("host") / "host.so"
    command = [str(require_cxx().path), "-std=c++17", "-O1", "-Wall", "-Wno-unknown-pragmas"]
    command += ["-shared", "-fPIC", f"-I{_HERE}", str(_HERE / "host.cpp")]
    command += [f"-I{folder}" for folder in kernels.folders()]
    done = subprocess.run([*command, "-o", str(target)], capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return ctypes.CDLL(str(target))


def _call(entry: Callable[..., int], *arguments: torch.Tensor | int) -> Iterator[int]:
    """The numbers that an entry point writes."""
    found = (ctypes.c_int64 * 128)()
    assert entry(pack(arguments), found) == 0
    return iter(found)


# --- Views between launches ----------------------------------------------------------------------

_SIZES = st.tuples(*[st.integers(1, 4)] * 3)


@given(_SIZES, st.permutations(range(3)), st.integers(0, 2), st.data())
@settings(max_examples=200, deadline=None)
def test_views(
    host: ctypes.CDLL, sizes: tuple[int, ...], order: list[int], dim: int, data: st.DataObject
) -> None:
    x = torch.empty(sizes).permute(order)
    in_order = x.contiguous()
    start = data.draw(st.integers(0, x.shape[dim] - 1))
    step = data.draw(st.integers(1, 3))
    stop = data.draw(st.integers(start + 1, x.shape[dim]))
    wide = data.draw(st.integers(1, 3))
    expanded = (wide, *(x.shape[:dim]), 5, *(x.shape[dim + 1 :]))
    parts = 2 if x.shape[dim] % 2 == 0 else 1
    split = (*x.shape[:dim], parts, x.shape[dim] // parts, *x.shape[dim + 1 :])
    wanted = [
        (x, 0, (*order, 0), x.permute(order)),
        (x, 1, (dim, 0, 0, 0), x.unsqueeze(dim)),
        (x, 2, (dim, start, -(-(stop - start) // step), step), _slice(x, dim, start, stop, step)),
        (x, 3, (dim, start, 0, 0), x.select(dim, start)),
        (x, 5, split, x.view(split)),
        (in_order, 5, (1, x.numel(), 1, 1), in_order.view(1, -1, 1, 1)),
        (x, 6, (0, 0, 0, 0), x.diagonal(dim1=-2, dim2=-1)),
    ]
    one = x.narrow(dim, 0, 1)
    wanted.append((one, 4, expanded, one.expand(expanded)))
    for source, which, numbers, view in wanted:
        found = list(_call(host.view_of, source, which, *numbers))
        assert found[0] == view.data_ptr() - source.data_ptr()
        assert found[1] == view.dim()
        assert found[2 : 2 + view.dim()] == list(view.shape)
        strides = zip(found[2 + view.dim() :], view.stride(), view.shape, strict=False)
        assert all(mine == theirs for mine, theirs, size in strides if size > 1)


def _slice(x: torch.Tensor, dim: int, start: int, stop: int, step: int) -> torch.Tensor:
    return x[(*[slice(None)] * dim, slice(start, stop, step))]


# --- Division by invariant integers --------------------------------------------------------------


@given(st.integers(0, 2**31 - 1), st.integers(1, 2**31 - 1))
@settings(max_examples=400, deadline=None)
def test_quotient(host: ctypes.CDLL, value: int, divisor: int) -> None:
    host.quotient.restype = ctypes.c_uint32
    for near in {value, value // divisor * divisor, max(0, value // divisor * divisor - 1)}:
        assert host.quotient(ctypes.c_uint32(near), ctypes.c_uint32(divisor)) == near // divisor


@given(st.integers(0, 2**63 - 1), st.integers(1, 2**62 - 1) | st.integers(1, 2**20))
@settings(max_examples=400, deadline=None)
def test_long_quotient(host: ctypes.CDLL, value: int, divisor: int) -> None:
    host.long_quotient.restype = ctypes.c_int64
    for near in {value, value // divisor * divisor, max(0, value // divisor * divisor - 1)}:
        assert host.long_quotient(ctypes.c_int64(near), ctypes.c_int64(divisor)) == near // divisor


# --- Index spaces --------------------------------------------------------------------------------


def _space(host: ctypes.CDLL, *tensors: torch.Tensor) -> tuple[list[int], list[tuple[int, ...]]]:
    numbers = _call(host.index_space, *tensors)
    rank = next(numbers)
    rows = [tuple(next(numbers) for _ in range(4)) for _ in range(rank)]
    return [row[0] for row in rows], [row[1:] for row in rows]


def _offsets(sizes: list[int], strides: list[tuple[int, ...]]) -> set[tuple[int, ...]]:
    """Every triple of element offsets that a walk over the space visits."""
    return {
        tuple(sum(i * s[o] for i, s in zip(index, strides, strict=True)) for o in range(3))
        for index in product(*(range(size) for size in sizes))
    }


@st.composite
def _operands(draw: st.DrawFn) -> tuple[torch.Tensor, ...]:
    """A result and two operands that broadcast to it: permuted, strided, expanded."""
    shape = draw(st.lists(st.integers(1, 4), max_size=4))
    order = draw(st.permutations(range(len(shape))))

    def tensor(own: list[int]) -> torch.Tensor:
        dense = torch.empty([own[d] for d in order])
        inverse = [order.index(d) for d in range(len(own))]
        return dense.permute(inverse) if draw(st.booleans()) else torch.empty(own)

    def operand() -> torch.Tensor:
        kept = [size if draw(st.booleans()) else 1 for size in shape]
        found = tensor(kept)
        if found.dim() and draw(st.booleans()):
            found = torch.empty([*kept[:-1], 2 * kept[-1]])[..., ::2]
        return found.reshape(found.shape[1:]) if kept and kept[0] == 1 else found

    return tensor(shape), operand(), operand()


@given(_operands())
@settings(max_examples=150, deadline=None)
def test_index_space_visits_what_broadcasting_does(
    host: ctypes.CDLL, operands: tuple[torch.Tensor, ...]
) -> None:
    sizes, strides = _space(host, *operands)
    expected = [tensor.expand(operands[0].shape) for tensor in operands]
    plain = [tuple(t.stride(d) for t in expected) for d in range(operands[0].dim())]
    assert _offsets(sizes, strides) == _offsets(list(operands[0].shape), plain)
    assert all(size > 1 for size in sizes)


def test_dimensions_that_are_one_in_memory_merge(host: ctypes.CDLL) -> None:
    out = torch.empty(3, 4, 5)
    assert _space(host, out, torch.empty(3, 4, 5), torch.empty(())) == ([60], [(1, 1, 0)])
    assert _space(host, out, torch.empty(3, 1, 1), out) == ([3, 20], [(20, 1, 20), (1, 0, 1)])
    transposed = torch.empty(5, 3).t()
    assert _space(host, transposed, transposed, transposed) == ([15], [(1, 1, 1)])


def test_halves_cover_the_space_at_whole_vectors(host: ctypes.CDLL) -> None:
    out, row = torch.empty(2, 40), torch.empty(40, dtype=torch.float16)
    numbers = _call(host.halve, 8, out, torch.empty(2, 1), row)
    first, second = ([next(numbers) for _ in range(5)] for _ in range(2))
    assert first == [2, 16, 0, 0, 0]
    assert second == [2, 24, 16 * 4, 0, 16 * 2]


def test_a_rank_above_the_limit_is_an_error(host: ctypes.CDLL) -> None:
    large = torch.empty([1] * 9)
    assert host.index_space(pack([large, large, large]), (ctypes.c_int64 * 128)()) == 1


# --- Matrix products -----------------------------------------------------------------------------


def _describe(host: ctypes.CDLL, *tensors: torch.Tensor) -> tuple[list[int], list[list[int]]]:
    numbers = _call(host.describe, *tensors)
    sizes = [next(numbers) for _ in range(5)]
    sizes += [next(numbers) for _ in range(sizes[4])]
    return sizes, [[next(numbers) for _ in range(3 + sizes[4])] for _ in range(4)]


def test_a_batch_that_shares_the_right_factor_becomes_rows(host: ctypes.CDLL) -> None:
    sizes, (out, lhs, rhs, bias) = _describe(
        host,
        torch.empty(2, 3, 8, 12),
        torch.empty(2, 3, 8, 20),
        torch.empty(12, 20).t(),
        torch.empty(12),
    )
    assert sizes == [48, 12, 20, 1, 0]
    assert out == [12, 1, 1]
    assert lhs[:2] == [20, 1]
    assert rhs[:2] == [1, 20]
    assert bias == [0, 1, 1]


def test_a_batch_of_row_dependent_extras_stays_a_batch(host: ctypes.CDLL) -> None:
    # The extra has one row for all batches: row b * M + m of a folded product would not find it.
    sizes, operands = _describe(
        host,
        torch.empty(3, 8, 12),
        torch.empty(3, 8, 20),
        torch.empty(20, 12),
        torch.empty(8, 12),
    )
    assert sizes == [8, 12, 20, 3, 1, 3]
    assert operands[3] == [12, 1, 1, 0]


def test_one_row_a_batch_becomes_a_matrix(host: ctypes.CDLL) -> None:
    sizes, (out, lhs, _, _) = _describe(
        host, torch.empty(5, 1, 12), torch.empty(5, 1, 20), torch.empty(20, 12), torch.empty(())
    )
    assert sizes == [5, 12, 20, 1, 0]
    assert out[:2] == [12, 1]
    assert lhs[:2] == [20, 1]


def test_column_vectors_need_alignment_and_whole_vectors(host: ctypes.CDLL) -> None:
    lhs, rhs = torch.empty(8, 4), torch.empty(4, 12)
    misaligned = torch.empty(8 * 12 + 1)[1:].view(8, 12)
    padded = torch.empty(8, 13)[:, :12]
    for out, expected in ((torch.empty(8, 12), 1), (misaligned, 0), (padded, 0)):
        _, operands = _describe(host, out, lhs, rhs, torch.empty(12))
        assert (operands[0][2], operands[3][2]) == (expected, 1)
    _, operands = _describe(host, torch.empty(8, 6), lhs, torch.empty(4, 6), torch.empty(6))
    assert operands[0][2] == 0


# --- Functions of one element --------------------------------------------------------------------

_F = torch.nn.functional
_FUNCTIONS: tuple[tuple[str, Callable[..., torch.Tensor]], ...] = (
    ("relu", lambda x, y: _F.relu(x)),
    ("sigmoid", lambda x, y: torch.sigmoid(x)),
    ("silu", lambda x, y: _F.silu(x)),
    ("gelu", lambda x, y: _F.gelu(x)),
    ("gelu_tanh", lambda x, y: _F.gelu(x, approximate="tanh")),
    ("softplus", lambda x, y: _F.softplus(x, 1.5, 20.0)),
    ("mish", lambda x, y: _F.mish(x)),
    ("hardswish", lambda x, y: _F.hardswish(x)),
    ("hardsigmoid", lambda x, y: _F.hardsigmoid(x)),
    ("hardtanh", lambda x, y: _F.hardtanh(x, -0.5, 2.0)),
    ("leaky_relu", lambda x, y: _F.leaky_relu(x)),
    ("elu", lambda x, y: _F.elu(x, 1.5)),
    ("softsign", lambda x, y: _F.softsign(x)),
    ("log_sigmoid", lambda x, y: _F.logsigmoid(x)),
    ("clamp", lambda x, y: x.clamp(-1, 1)),
    ("sign", lambda x, y: torch.sign(x)),
    ("floor_divide", torch.floor_divide),
    ("floor_remainder", torch.remainder),
    ("maximum", torch.maximum),
    ("minimum", torch.minimum),
    ("xlogy", torch.xlogy),
    ("logaddexp", torch.logaddexp),
    ("logaddexp2", torch.logaddexp2),
    ("digamma", lambda x, y: torch.digamma(x)),
    ("power", torch.pow),
)
_INTEGER: tuple[tuple[str, Callable[..., torch.Tensor]], ...] = (
    ("floor_divide", lambda x, y: torch.div(x, y, rounding_mode="floor")),
    ("floor_remainder", torch.remainder),
    ("power", torch.pow),
    ("absolute", lambda x, y: x.abs()),
    ("sign", lambda x, y: x.sign()),
    ("relu", lambda x, y: x.relu()),
    ("shift_left", lambda x, y: x << (9 * y)),
    ("shift_right", lambda x, y: x >> (9 * y)),
    ("clamp", lambda x, y: x.clamp(-3, 3)),
)


def _apply(
    entry: Callable[..., None], which: int, x: torch.Tensor, y: torch.Tensor
) -> torch.Tensor:
    out = torch.full_like(x, 77)
    pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (x, y, out)]
    entry(which, *pointers, ctypes.c_int64(x.numel()))
    return out


@pytest.mark.parametrize(("which", "name"), [(i, name) for i, (name, _) in enumerate(_FUNCTIONS)])
@pytest.mark.parametrize(
    ("entry", "dtype", "rtol"), [("float", "f4", 3e-6), ("double", "f8", 1e-13)]
)
def test_functions_of_floats(
    host: ctypes.CDLL, which: int, name: str, entry: str, dtype: str, rtol: float
) -> None:
    edge = [numpy.nan, numpy.inf, -numpy.inf, 0.0, -0.0, 1e-42, 90, -90, 13.3, 13.4, 1, -1, 3, -3]
    numbers = numpy.concatenate([edge, numpy.linspace(-9, 9, 361)]).astype(dtype)
    x = torch.from_numpy(numpy.tile(numbers, 5))
    y = torch.from_numpy(
        numpy.repeat([0.75, -1.5, 2.0, -2.0, numpy.nan], len(numbers)).astype(dtype)
    )
    if name == "gelu":
        # PyTorch's vectorised erf on the CPU makes NaN of infinity; on a GPU it does not. Below
        # zero 1 + erf cancels, and what is left of two roundings differs.
        x = x.nan_to_num(posinf=30.0, neginf=-30.0)
    actual = _apply(getattr(host, f"apply_{entry}"), which, x, y)
    expected = _FUNCTIONS[which][1](x, y)
    # PyTorch scales by a float 1/6 here, also in double.
    loose = entry == "double" and name in ("hardswish", "hardsigmoid")
    torch.testing.assert_close(
        actual, expected, rtol=1e-7 if loose else rtol, atol=rtol / 4, equal_nan=True
    )


@pytest.mark.parametrize("which", range(len(_INTEGER)), ids=[name for name, _ in _INTEGER])
def test_functions_of_integers(host: ctypes.CDLL, which: int) -> None:
    x = torch.arange(-20, 21).repeat(6)
    y = torch.tensor([3, -3, 7, 2, 1, -1]).repeat_interleave(41)
    assert torch.equal(_apply(host.apply_integer, which, x, y), _INTEGER[which][1](x, y))


# --- Division by what a row shares ---------------------------------------------------------------


def _divided(
    entry: Callable[..., None], x: numpy.ndarray, divisors: numpy.ndarray
) -> numpy.ndarray:
    out = numpy.full_like(x, 77)
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in (x, divisors, out)]
    entry(*pointers, ctypes.c_int64(x.size))
    return out


def _pairs(x: numpy.ndarray, divisors: numpy.ndarray) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Each number with each divisor."""
    return numpy.tile(x, divisors.size), numpy.repeat(divisors, x.size)


def _numbers(generator: numpy.random.Generator, count: int) -> numpy.ndarray:
    """Of any bits: all exponents and signs, numbers without one, infinities, NaN."""
    return generator.integers(0, 2**32, count, dtype=numpy.uint32).view(numpy.float32)


def _mantissas(count: int) -> numpy.ndarray:
    """The least and the largest numbers of [1, 2), and some between."""
    steps = numpy.arange(count, dtype=numpy.uint32)
    one, past = numpy.uint32(0x3F800000), numpy.uint32(0x40000000)
    middle = one + steps * numpy.uint32(2**23 // count + 1)
    return numpy.concatenate([one + steps, past - 1 - steps, middle]).view(numpy.float32)


def _same_bits(actual: numpy.ndarray, expected: numpy.ndarray) -> bool:
    nan = numpy.isnan(expected)
    same = actual.view(numpy.int32) == expected.view(numpy.int32)
    return bool(numpy.all(numpy.where(nan, numpy.isnan(actual), same)))


@pytest.mark.parametrize("which", ["any bits", "mantissas", "edges"])
def test_division_by_a_row_is_division(host: ctypes.CDLL, which: str) -> None:
    generator = numpy.random.default_rng(0)
    edges = numpy.array([0, 1e-45, 1e-38, 2e-19, 1e-12, 1, 3, 1e12, 2e30, 3e38, numpy.inf], "f4")
    edges = numpy.concatenate([edges, -edges, [numpy.float32(numpy.nan)]])
    x, divisors = {
        "any bits": lambda: (_numbers(generator, 10**6), _numbers(generator, 10**6)),
        "mantissas": lambda: _pairs(_mantissas(250), _mantissas(250)),
        "edges": lambda: _pairs(numpy.concatenate([edges, _numbers(generator, 999)]), edges),
    }[which]()
    actual = _divided(host.divide_by_row, x, divisors)
    with numpy.errstate(all="ignore"):
        expected = x / divisors
        exact = x.astype(numpy.float64) / divisors
        error = abs(actual - exact) / numpy.spacing(abs(expected))
    is_exact = (abs(x) >= 2.0**-101) & (abs(expected) >= 2.0**-126)
    is_exact |= (x == 0) | ~numpy.isfinite(expected)
    assert is_exact.mean() > 0.3
    assert _same_bits(actual[is_exact], expected[is_exact])
    assert numpy.all(error[~is_exact] <= 1.5)


def test_a_share_of_a_sum_is_its_quotient(host: ctypes.CDLL) -> None:
    generator = numpy.random.default_rng(0)
    x = numpy.abs(_numbers(generator, 10**6))
    x = numpy.where(x <= 1, x, generator.random(x.size, dtype=numpy.float32))
    x[:3] = 0, 1, 1e-45
    sums = numpy.exp2(60 * generator.random(x.size) ** 4).astype(numpy.float32)
    sums[:1000] = 1
    actual, expected = _divided(host.share_of_sum, x, sums), x / sums
    is_tiny = expected < 2.0**-101
    assert 0.1 < is_tiny.mean() < 0.9
    assert _same_bits(actual[~is_tiny], expected[~is_tiny])
    exact = x.astype(numpy.float64) / sums
    spacing = numpy.spacing(expected).astype(numpy.float64)
    assert numpy.all(
        numpy.abs(actual - exact)[is_tiny] <= (spacing / 2 + 2.0**-150)[is_tiny] * 1.0001
    )
    nan = numpy.array([numpy.nan], "f4")
    assert numpy.isnan(_divided(host.share_of_sum, numpy.ones(1, "f4"), nan)).all()
