"""What the types say of memory, against PyTorch's strides, and what the spec refuses."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.ir.calls import AtenCall, Ref
from kernelwright.ir.graph import Graph, Node
from kernelwright.ir.kind_values import laid_out
from kernelwright.ir.kinds import (
    Conv,
    Expand,
    Input,
    Permute,
    Relayout,
    Reshape,
    Slice,
    Squeeze,
    View,
    ViewMap,
)
from kernelwright.ir.layouts import layout_of
from kernelwright.ir.spec import MalformedGraphError, check
from kernelwright.ir.types import Dim, DType, Layout, TensorType

NHWC = Layout((0, 2, 3, 1))


def tensor(shape: Sequence[int], layout: Layout | None = None) -> TensorType:
    return TensorType(DType.F32, tuple(map(Dim.static, shape)), layout)


def leaf(shape: Sequence[int], layout: Layout | None = None) -> Node:
    return Node(name="x", kind=Input("x"), type=tensor(shape, layout))


def viewed(how: ViewMap, source: Node, shape: Sequence[int]) -> Node:
    view = Node(name="view", kind=View(how), type=tensor(shape), inputs=(source.name,))
    return replace(view, type=replace(view.tensor, layout=layout_of(view, [source])))


def lies_so(value: torch.Tensor, layout: Layout | None) -> bool:
    order = layout.order if layout else tuple(range(value.dim()))
    return value.permute(order).is_contiguous()


@given(st.lists(st.integers(1, 3), min_size=2, max_size=5), st.data())
def test_layouts_of_views_are_those_of_pytorch(sizes: list[int], data: st.DataObject) -> None:
    dims = tuple(data.draw(st.permutations(range(len(sizes)))))
    value = torch.rand(sizes).permute(dims)
    first = viewed(Permute(dims), leaf(sizes), value.shape)
    assert lies_so(value, first.tensor.layout)
    # Neighbouring dimensions as one, or a dimension as two.
    at = data.draw(st.integers(0, len(sizes) - 2))
    shape = list(value.shape)
    if data.draw(st.booleans()):
        shape[at : at + 2] = [shape[at] * shape[at + 1]]
    else:
        shape[at : at + 1] = [1, shape[at]]
    second = viewed(Reshape(), first, shape)
    assert lies_so(value.reshape(shape), second.tensor.layout)
    ones = tuple(dim for dim, size in enumerate(value.shape) if size == 1)
    narrow = value.squeeze(ones)
    third = viewed(Squeeze(ones), first, narrow.shape)
    assert lies_so(narrow, third.tensor.layout)


def test_a_dimension_of_one_element_lies_anywhere() -> None:
    between = viewed(Permute((2, 1, 3, 0)), leaf((2, 2, 1, 2)), (1, 2, 2, 2))
    assert between.tensor.layout == Layout((3, 1, 0, 2))
    merged = viewed(Reshape(), between, (1, 4, 2)).tensor.layout
    assert merged is not None and merged.order.index(2) < merged.order.index(1)


def test_channels_in_groups_stay_innermost() -> None:
    source = leaf((2, 12, 5, 7), NHWC)
    grouped = viewed(Reshape(), source, (2, 3, 4, 5, 7))
    assert grouped.tensor.layout == Layout((0, 3, 4, 1, 2))
    assert grouped.tensor.is_transposed
    assert viewed(Reshape(), grouped, (2, 12, 5, 7)).tensor.layout == NHWC
    assert not viewed(Reshape(), source, (2, 12 * 35)).tensor.is_transposed  # A copy.
    assert not viewed(Permute((0, 2, 3, 1)), source, (2, 5, 7, 12)).tensor.is_transposed


def test_parts_of_a_tensor_have_no_layout() -> None:
    source = leaf((2, 12, 5, 7), NHWC)
    part = Slice(1, Dim.static(0), Dim.static(6), 1)
    assert viewed(part, source, (2, 6, 5, 7)).tensor.layout is None
    assert viewed(Expand(), source, (3, 2, 12, 5, 7)).tensor.layout is None


@pytest.mark.parametrize("spatial", [1, 2, 3])
def test_the_library_keeps_the_memory_format_of_its_operand(spatial: int) -> None:
    shape = (2, 8, *[5] * spatial)
    layout = Layout.channels_last(len(shape))
    conv = Conv((1,) * spatial, (0,) * spatial, (1,) * spatial)
    node = Node(name="z", kind=conv, type=tensor(shape), inputs=("x", "w"))
    weight = leaf((8, 8, *[1] * spatial))
    found = layout_of(node, [leaf(shape, layout), weight])
    assert found == (layout if spatial > 1 else None)
    assert layout_of(node, [leaf(shape), weight]) is None


def test_a_value_is_laid_out_as_its_type_says() -> None:
    value = torch.rand(2, 3, 4, 5)
    copy = Node(name="z", kind=Relayout(), type=tensor(value.shape, NHWC), inputs=("x",))
    found = laid_out(value, copy)
    assert found.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(found, value)
    assert laid_out(found, replace(copy, type=tensor(value.shape))).is_contiguous()


def graph(*nodes: Node) -> Graph:
    return Graph(name="g", nodes=nodes, returns=Ref(nodes[-1].name))


def test_graphs_print_layouts_and_changes_of_them() -> None:
    view = viewed(Permute((0, 3, 1, 2)), leaf((2, 5, 7, 8)), (2, 8, 5, 7))
    copy = Node(name="z", kind=Relayout(), type=tensor((2, 8, 5, 7)), inputs=("view",))
    text = str(check(graph(leaf((2, 5, 7, 8)), view, copy)))
    assert "view: f32[2, 8, 5, 7] in order (0, 2, 3, 1) = permute(x; dims=(0, 3, 1, 2))" in text
    assert "z: f32[2, 8, 5, 7] = relayout(view)" in text


@pytest.mark.parametrize(
    "broken",
    [
        # Row-major dimensions under another order.
        Node(name="z", kind=View(Reshape()), type=tensor((2, 8, 35), Layout((0, 2, 1)))),
        # Kernels write row-major order.
        Node(name="z", kind=Relayout(), type=tensor((2, 8, 5, 7), NHWC)),
        Node(name="z", kind=Relayout(), type=tensor((2, 8, 35))),
    ],
)
def test_layouts_that_do_not_follow_are_refused(broken: Node) -> None:
    with pytest.raises(MalformedGraphError, match=r"does not follow|elements of its one input"):
        check(graph(leaf((2, 8, 5, 7)), replace(broken, inputs=("x",))))


def test_a_convolution_of_ours_writes_row_major() -> None:
    conv = Conv((1, 1), (0, 0), (1, 1))
    call = AtenCall("aten.conv2d.default", (Ref("x"), Ref("w")))
    weight = Node(name="w", kind=Input("w"), type=tensor((8, 8, 1, 1)))
    node = Node(
        name="z", kind=conv, type=tensor((2, 8, 5, 7), NHWC), inputs=("x", "w"), origin=call
    )
    with pytest.raises(MalformedGraphError, match="does not follow"):
        check(graph(leaf((2, 8, 5, 7)), weight, node))
