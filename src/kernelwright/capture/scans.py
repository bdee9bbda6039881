"""Running sums and products."""

from kernelwright.capture.making import Maker, NotMadeError, Part, Rule, accumulated
from kernelwright.ir.kinds import Accumulation, Scan
from kernelwright.ir.types import DType


def _scan(op: Accumulation) -> Rule:
    def rule(m: Maker) -> Part:
        if m.dtype is DType.BOOL:
            raise NotMadeError
        value = m.tensor()
        if not value.shape:
            return m.converted(value, m.dtype)
        wide = m.converted(value, accumulated(m.dtype))
        kind = Scan(op, m.call.arguments["dim"] % len(value.shape))
        name = m.node(kind, wide.type, [wide])
        return m.converted(Part(name, wide.type), m.dtype)

    return rule


RULES: dict[str, Rule] = {"cumsum": _scan(Accumulation.SUM), "cumprod": _scan(Accumulation.PRODUCT)}
"""By the operator's short name."""
