"""Whether a traced tensor lies in one run, seen from how its strides are written.

PyTorch asks this about most results, and proves the answer with sympy: that each stride is the
product of the sizes behind it, whatever those are. Where the two are written alike there is nothing
to prove. That is half of the time that it takes to trace a network whose sizes are long sums.
"""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import sympy
import torch
from torch import _prims_common
from torch.utils._sympy.functions import Max

_OF_TENSORS = "is_contiguous"
_OF_STRIDES = "_is_non_overlapping_and_dense_or_false"
"""Functions of `_prims_common` that are true of such tensors. Early releases lack the second."""

Written = tuple[tuple[sympy.Expr, sympy.Expr], ...]
"""Size and stride of each dimension, as expressions of the arguments' sizes."""


@contextmanager
def contiguity_by_sight() -> Iterator[None]:
    """While it lasts, PyTorch proves the contiguity of those tensors alone that do not show it."""
    known: dict[Written, bool] = {}

    def shows(sizes: Iterable[Any], strides: Iterable[Any]) -> bool:
        written = tuple(zip(map(_written, sizes), map(_written, strides), strict=True))
        if written not in known:
            known[written] = _is_run(written)
        return known[written]

    def asked_of_tensor(tensor: torch.Tensor, *options: Any, **more: Any) -> bool:
        return shows(tensor.shape, tensor.stride()) or prove_tensor(tensor, *options, **more)

    def asked_of_strides(sizes: Any, strides: Any) -> bool:
        return shows(sizes, strides) or prove_strides(sizes, strides)

    prove_tensor = getattr(_prims_common, _OF_TENSORS)
    prove_strides: Any = getattr(_prims_common, _OF_STRIDES, None)
    with ExitStack() as stack:
        stack.enter_context(patch.object(_prims_common, _OF_TENSORS, asked_of_tensor))
        if prove_strides is not None:
            stack.enter_context(patch.object(_prims_common, _OF_STRIDES, asked_of_strides))
        yield


def _is_run(written: Written) -> bool:
    """Whether each stride is the next one times its size, or, as PyTorch writes it where that may
    be 0, times `Max(1, size)`."""
    fitting = {sympy.Integer(1)}
    for size, stride in reversed(written):
        if stride not in fitting:
            return False
        fitting = {stride * size, stride * Max(1, size)}  # type: ignore[no-untyped-call]
    return True


def _written(size: Any) -> sympy.Expr:
    return size.node.expr if isinstance(size, torch.SymInt) else sympy.Integer(size)
