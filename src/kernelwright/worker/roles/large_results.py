"""Results of gigabytes against a float64 oracle that runs on some of their rows at a time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from kernelwright.verify.compare import Comparison, compare, note_unrepresentative, represents
from kernelwright.verify.nesting import named_tensors
from kernelwright.verify.observation import UNUSED
from kernelwright.verify.oracle import RowOracle, rows_oracle
from kernelwright.verify.tolerance import ErrorMetrics, Oracle
from kernelwright.worker.roles.expectation import Expectation
from kernelwright.worker.roles.magnitudes import counting_products

_PIECE = 128 << 20
"""Bytes of arguments and results that the oracle is run on together, at least."""
_MOST_PIECES = 32
"""Where there would be more, each is larger: the device is waited for after each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OracleByRows:
    """The oracle of one case, of which never more than a piece is there."""

    oracle: RowOracle
    piece: int
    """Rows of a piece."""

    def compare(
        self, expected: Expectation, found: Mapping[str, Tensor]
    ) -> tuple[tuple[ErrorMetrics, ...], int]:
        """Errors of the tensors `found`, in order, and the operations of the whole oracle."""
        floats = {n: t for n, t in found.items() if expected.effects[n].is_floating_point()}
        totals = {n: Comparison(n, expected.effects[n], Oracle.FLOAT64) for n in floats}
        # Counted on one piece: whatever runs while products are counted takes several times longer.
        flops = counting_products()
        for start, stop, tensors in self.oracle.pieces(self.piece, expected.case.seed, flops):
            for name, tensor in floats.items():
                rows = slice(start, stop)
                totals[name].add(tensor[rows], expected.effects[name][rows], tensors[name])
        metrics = {name: total.metrics() for name, total in totals.items()}
        for name, tensor in found.items():
            if name not in metrics:
                metrics[name] = compare(name, tensor, expected.effects[name], None)
            elif not represents(metrics[name]):
                note = note_unrepresentative(metrics[name])
                metrics[name] = compare(name, tensor, expected.effects[name], None, note)
        counted = flops.get_total_flops() * self.oracle.rows // self.piece
        return tuple(metrics[name] for name in found), counted


def oracle_by_rows(
    expected: Expectation, module: nn.Module, arguments: Sequence[object]
) -> OracleByRows | None:
    """The oracle of a call whose rows do not depend on each other; None where they may."""
    outputs = expected.effects
    only_outputs = all(name.startswith("output") for name in outputs)
    first = next(iter(outputs.values()))
    if not only_outputs or expected.random != UNUSED or first.dim() == 0:
        return None
    total = sum(t.numel() * t.element_size() for t in outputs.values())
    total += sum(t.numel() * t.element_size() for _, t in named_tensors(arguments, "input"))
    size = max(_PIECE, total // _MOST_PIECES)
    piece = max(2, first.shape[0] * size // total // 2 * 2)
    oracle = rows_oracle(module, arguments, outputs, piece)
    return None if oracle is None else OracleByRows(oracle=oracle, piece=piece)
