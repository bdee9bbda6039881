"""Contiguity seen from how strides are written is what PyTorch proves."""

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor, _prims_common
from torch._prims_common import is_contiguous_for_memory_format
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

from kernelwright.capture.contiguity import contiguity_by_sight

WAYS: dict[str, Callable[[Tensor], Tensor]] = {
    "as it is": lambda x: x,
    "pooled": lambda x: torch.nn.functional.avg_pool2d(x, 3, 2),
    "turned": lambda x: x.transpose(2, 3),
    "a part of the rows": lambda x: x[:, :, 1:],
    "a part of the columns": lambda x: x[..., 1:],
    "one channel": lambda x: x[:, :1],
    "repeated": lambda x: x[:, :1].expand(-1, 5, -1, -1),
    "one number": lambda x: x.sum(),
    "channels last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "as a matrix": lambda x: x.flatten(1),
}


def _symbolic() -> Tensor:
    """A tensor of three open sizes."""
    sizes = [DimDynamic.DYNAMIC, DimDynamic.STATIC, DimDynamic.DYNAMIC, DimDynamic.DYNAMIC]
    mode = FakeTensorMode(shape_env=ShapeEnv())
    context: Any = StatelessSymbolicContext(dynamic_sizes=sizes)
    return mode.from_tensor(torch.empty(4, 3, 17, 23), symbolic_context=context)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("form", [torch.contiguous_format, torch.channels_last])
def test_the_answer_is_pytorchs(way: str, form: torch.memory_format) -> None:
    tensor = WAYS[way](_symbolic())
    expected = is_contiguous_for_memory_format(tensor, memory_format=form)
    with contiguity_by_sight():
        assert is_contiguous_for_memory_format(tensor, memory_format=form) is expected


def test_what_shows_it_is_not_proved() -> None:
    pooled = WAYS["pooled"](_symbolic())
    with (
        patch.object(_prims_common, "check_contiguous_sizes_strides", side_effect=AssertionError),
        contiguity_by_sight(),
    ):
        assert is_contiguous_for_memory_format(pooled, memory_format=torch.contiguous_format)
        with pytest.raises(AssertionError):
            is_contiguous_for_memory_format(
                pooled.transpose(2, 3), memory_format=torch.contiguous_format
            )
