"""PyTorch's own samples of its operators, captured and computed node by node.

    python tests/capture/opinfo.py                # every operator, rewrites opinfo.txt: minutes
    python tests/capture/opinfo.py softmax sort   # these, printed

opinfo.txt says for each operator which element types hold with nothing left to PyTorch, and for the
others what is left or what does not hold; `test_opinfo.py` holds it to that with fewer samples.
"""

import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import nn
from torch.utils._pytree import TreeSpec, tree_flatten, tree_leaves, tree_unflatten

from kernelwright.capture import CaptureError, UnsupportedValueError, capture_module
from kernelwright.ir.graph import Graph
from kernelwright.ir.interpreter import run_graph
from kernelwright.ir.kinds import Opaque

TABLE = Path(__file__).parent / "opinfo.txt"

HEADER = f"{'# operator':<44}{'ours in':<12}# what is left, or why samples do not hold"

DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}

TOLERANCES = {torch.float16: 4e-3, torch.bfloat16: 3e-2}

SAMPLES = 4
"""Of each operator and element type, spread over those that PyTorch has."""

_OTHER_FIELDS = (
    *("linalg.", "fft.", "sparse", "jiterator", "signal.", "torch.ops.aten._f", "torch._scaled"),
    *("special.airy", "special.bessel", "special.chebyshev", "special.hermite"),
    *("special.laguerre", "special.legendre", "special.modified", "special.scaled"),
    *("special.shifted", "special.spherical", "empty", "new_empty"),
)
_OURS_AMONG_THEM = ("linalg.vector_norm", "linalg.norm", "linalg.matrix_norm", "linalg.multi_dot")

_STATISTICS = "left to PyTorch, whose kernel gives statistics of another type than tracing says"

WHY = {
    "div.trunc_rounding": "the quotient is not rounded to 16 bits before it is cut off",
    "_native_batch_norm_legit": _STATISTICS,
    "native_batch_norm": _STATISTICS,
    "_batch_norm_with_update": _STATISTICS,
    "as_strided.partial_views": "reads beyond the tensor that it is given",
    "tensor_split": "the places to split at are the numbers in a tensor",
    "narrow": "where to start is the number in a tensor",
    "repeat_interleave": "how often is the numbers in a tensor",
}
"""What an exception does not say by itself."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One call: its leaves, with None in place of tensors, and these."""

    leaves: tuple[Any, ...]
    tree: TreeSpec
    tensors: tuple[torch.Tensor, ...]

    def call(self, operator: Callable[..., Any], tensors: Iterator[torch.Tensor]) -> Any:
        """The operator on the next of `tensors`."""
        values = [next(tensors) if leaf is _TENSOR else leaf for leaf in self.leaves]
        first, args, kwargs = tree_unflatten(values, self.tree)
        return operator(first, *args, **kwargs)


class _Marker:
    """In place of a tensor."""


_TENSOR = _Marker()


class Calls(nn.Module):
    """Operators on their samples, one after the other."""

    def __init__(self, calls: Sequence[tuple[Callable[..., Any], Sample]]) -> None:
        super().__init__()
        self.calls = calls

    def forward(self, *tensors: torch.Tensor) -> list[Any]:
        rest = iter(tensors)
        return [sample.call(operator, rest) for operator, sample in self.calls]

    @property
    def arguments(self) -> tuple[torch.Tensor, ...]:
        """Fresh tensors for one call."""
        return tuple(x.clone() for _, sample in self.calls for x in sample.tensors)


@cache
def operators() -> dict[str, Any]:
    """PyTorch's descriptions of its operators, by name and variant."""
    from torch.testing._internal.common_methods_invocations import op_db

    named = {".".join(filter(None, (op.name, op.variant_test_name))): op for op in op_db}
    return {
        name: op
        for name, op in named.items()
        if name.startswith(_OURS_AMONG_THEM) or not name.startswith(_OTHER_FIELDS)
        # These set the seed inside of the call, which no graph does.
        if "wrapper_set_seed" not in getattr(getattr(op.op, "__code__", None), "co_names", ())
    }


_READS_THE_STACK = (
    # Which unittest runs: none.
    *(f"torch.testing._internal.{it}.extract_test_fn" for it in ("common_utils", "opinfo.core")),
    # Who asks for a seed of cards that are not there.
    *(f"torch.{device}.manual_seed_all" for device in ("cuda", "xpu")),
)
"""What PyTorch does before every sample, and what takes longer than to make it."""


def samples(name: str, dtype: torch.dtype, count: int) -> list[Sample]:
    """So many samples of an operator, spread over those that PyTorch has; none if it has none."""
    op = operators()[name]
    if not op.supports_dtype(dtype, "cpu"):
        return []
    torch.manual_seed(0)
    with ExitStack() as stack:
        for name in _READS_THE_STACK:
            stack.enter_context(patch(name, lambda *_: None))
        made = list(islice(op.sample_inputs("cpu", dtype, requires_grad=False), 200))
    step = max(len(made) / count, 1.0)
    return [_sample(made[int(at * step)]) for at in range(min(count, len(made)))]


def _sample(sample: Any) -> Sample:
    leaves, tree = tree_flatten((sample.input, tuple(sample.args), dict(sample.kwargs)))
    tensors = tuple(leaf for leaf in leaves if isinstance(leaf, torch.Tensor))
    marked = tuple(_TENSOR if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves)
    return Sample(marked, tree, tensors)


def calls(name: str, made: Iterable[Sample]) -> Calls:
    """A module of an operator's samples."""
    return Calls([(operators()[name].op, sample) for sample in made])


def left(graph: Graph) -> set[str]:
    """Operators that a graph leaves to PyTorch."""
    return {
        node.operators[0] if node.operators else str(node.origin)
        for node in graph.nodes
        if isinstance(node.kind, Opaque)
    }


def hold(module: Calls) -> Graph:
    """The graph of the calls, which computes what they compute; AssertionError otherwise.

    Of 16-bit floats PyTorch's kernels for the CPU round on the way where those for CUDA do not, so
    that what they compute in float32 is as good.
    """
    with torch.no_grad():
        torch.manual_seed(1)
        expected = module(*module.arguments)
        graph = capture_module(module, module.arguments)
        torch.manual_seed(1)
        actual = run_graph(graph, module, module.arguments, {})
        try:
            _compare(actual, expected)
        except AssertionError:
            torch.manual_seed(1)
            wide = [x.float() if x.dtype in TOLERANCES else x for x in module.arguments]
            _compare(actual, _narrowed(module(*wide), expected))
    return graph


def _narrowed(wide: Any, like: Any) -> list[Any]:
    pairs = zip(tree_leaves(wide), tree_leaves(like), strict=True)
    return [a.to(b.dtype) if isinstance(a, torch.Tensor) else a for a, b in pairs]


def _compare(actual: Any, expected: Any) -> None:
    for ours, theirs in zip(tree_leaves(actual), tree_leaves(expected), strict=True):
        tolerance = TOLERANCES.get(getattr(theirs, "dtype", None), 2e-4)
        torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance, equal_nan=True)


# --- The table ---------------------------------------------------------------------------------


def ours() -> dict[str, tuple[str, ...]]:
    """What the table says: operators, with the element types in which nothing is left."""
    rows = (line.partition("#")[0].split() for line in TABLE.read_text().splitlines())
    return {row[0]: tuple(row[1:]) for row in rows if len(row) > 1}


def row(name: str) -> str | None:
    """The operator's line of the table, None where PyTorch has no samples for it."""
    good, remarks = [], {}
    for short, dtype in DTYPES.items():
        found = _verdict(name, samples(name, dtype, SAMPLES))
        if found == "":
            good.append(short)
        elif found is not None:
            remarks[short] = found
    if not good and not remarks:
        return None
    texts = dict.fromkeys(remarks.values())
    told = [(", ".join(dt for dt in remarks if remarks[dt] == text), text) for text in texts]
    remark = "; ".join(f"{which}: {text}" for which, text in told)
    if len(texts) == 1 and not good:
        (remark,) = texts
    start = f"{name:<44}{' '.join(good):<12}"
    return f"{start}# {remark}" if remarks else start.rstrip()


def _verdict(name: str, made: list[Sample]) -> str | None:
    """ "" where nothing is left to PyTorch; what is, or why samples do not hold; None for none."""
    if not made:
        return None
    found = _left_at_once(name, made)
    for sample in made if found is None else []:
        try:
            found = (found or set()) | left(hold(calls(name, [sample])))
        except (CaptureError, UnsupportedValueError) as error:
            return WHY.get(name, f"not captured: {str(error).partition(chr(10))[0]}")
        except Exception as error:
            return WHY.get(name, f"DIFFERS: {type(error).__name__}: {_line(error)}")
    return f"left to PyTorch: {', '.join(sorted(found))}" if found else ""


def _left_at_once(name: str, made: list[Sample]) -> set[str] | None:
    """What a module of all samples leaves, which is faster than one by one; None if any fails."""
    try:
        return left(hold(calls(name, made)))
    except Exception:
        return None


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:120]


def main(names: list[str]) -> None:
    """Print the rows of these operators, or write those of all."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    rows = []
    for name in names or sorted(operators()):
        found = row(name)
        if found is not None:
            print(found, flush=True)
            rows.append(found)
    if not names:
        TABLE.write_text("\n".join([HEADER, *rows]) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
