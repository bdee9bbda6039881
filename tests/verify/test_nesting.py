"""Results that promise to be there when somebody looks."""

from collections import OrderedDict, namedtuple

import pytest
import torch
from torch import Tensor, nn

from kernelwright.verify.nesting import PLAIN, kind_of, structure

Pair = namedtuple("Pair", ["first", "second"])


class LazyList(list[Tensor]):
    def __iter__(self):  # type: ignore[no-untyped-def]
        return (item + 1 for item in super().__iter__())


class Named(dict[str, Tensor]):
    pass


class Other(Tensor):
    pass


def test_a_tensor_with_methods_of_its_own_is_no_plain_one() -> None:
    tensor = torch.rand(3)
    assert kind_of(tensor) == kind_of(nn.Parameter(tensor)) == PLAIN
    tensor.note = "kept by somebody"  # type: ignore[attr-defined]
    assert kind_of(tensor) == PLAIN
    vars(tensor)["cpu"] = tensor.clone
    assert kind_of(tensor) == "Tensor with a `cpu` of its own"
    assert kind_of(torch.rand(3).as_subclass(Other)) == "Other"


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ((torch.rand(1), [torch.rand(1)]), "(T, [T])"),
        (Pair(torch.rand(1), None), "(T, NoneType)"),
        (torch.rand(2, 2).max(dim=1), "(T, T)"),
        (OrderedDict(a=torch.rand(1)), "{'a': T}"),
        (Named(a=torch.rand(1)), "{'a': T}"),
        (LazyList([torch.rand(1)]), "LazyList[T]"),
    ],
)
def test_containers_that_give_their_items_in_their_own_way_are_named(
    result: object, text: str
) -> None:
    assert structure(result) == text
