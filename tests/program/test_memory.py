"""What is said of a view's memory, against PyTorch's views."""

from math import prod

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.ir.kinds import Permute, Reshape, Select, Slice, Squeeze, Unsqueeze
from kernelwright.ir.types import Dim, DType, TensorType
from kernelwright.program.memory import Memory, memory_of_view, only_splits

SIZES = st.lists(st.integers(1, 4), min_size=1, max_size=4)


def typed(tensor: torch.Tensor) -> TensorType:
    return TensorType(DType.F32, tuple(Dim.static(size) for size in tensor.shape))


def dims(text: str) -> list[Dim]:
    return [Dim(part, int(part) if part.isdigit() else 6) for part in text.split()]


@given(SIZES, st.data())
def test_reshapes_are_views_where_memory_is_known(sizes: list[int], data: st.DataObject) -> None:
    x = torch.empty(data.draw(st.permutations(sizes)))
    x = x.permute(data.draw(st.permutations(range(x.dim()))))
    wanted, rest = [], prod(sizes)
    for size in data.draw(SIZES):
        if rest % size == 0:
            wanted.append(size)
            rest //= size
    wanted.append(rest)
    source = Memory(type=typed(x), is_contiguous=x.is_contiguous())
    result = x.reshape(wanted)
    found = memory_of_view(Reshape(), source, typed(result))
    if found is not None:
        x.view(wanted)
        assert not found.is_contiguous or result.is_contiguous()


@pytest.mark.parametrize(
    ("source", "result", "splits"),
    [
        ("s0 24", "s0 4 6", True),
        ("s0 1 24", "1 s0 2 3 4 1", True),
        ("s0 24", "24 s0", False),
        ("4 6", "24", False),
        ("s0 s1", "s0 s1", True),
        ("s0 s1", "6 6", False),
    ],
)
def test_only_splits(source: str, result: str, splits: bool) -> None:
    assert only_splits(dims(source), dims(result)) is splits


@pytest.mark.parametrize(
    ("how", "view"),
    [
        (Permute((1, 0, 2)), torch.empty(3, 4, 5).permute(1, 0, 2)),
        (Slice(0, Dim.static(1), Dim.static(3), 1), torch.empty(3, 4, 5)[1:3]),
        (Slice(1, Dim.static(1), Dim.static(3), 1), torch.empty(3, 4, 5)[:, 1:3]),
        (Slice(0, Dim.static(0), Dim.static(3), 2), torch.empty(3, 4, 5)[::2]),
        (Select(0, Dim.static(1)), torch.empty(3, 4, 5)[1]),
        (Select(2, Dim.static(1)), torch.empty(3, 4, 5)[:, :, 1]),
        (Unsqueeze(1), torch.empty(3, 1, 4, 5)),
        (Squeeze(()), torch.empty(3, 4, 5)),
    ],
)
def test_order_is_known_where_it_is(how: object, view: torch.Tensor) -> None:
    source = Memory(type=typed(torch.empty(3, 4, 5)), is_contiguous=True)
    found = memory_of_view(how, source, typed(view))  # type: ignore[arg-type]
    assert found is not None and found.is_contiguous is view.is_contiguous()
