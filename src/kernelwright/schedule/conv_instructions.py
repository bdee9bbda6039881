"""Instructions of what becomes of a convolution's sums where they are stored."""

from kernelwright.ir.expr import Call, Expr, walk

_INSTRUCTIONS = {
    **dict.fromkeys(("sigmoid", "silu", "tanh", "mish"), 16),
    **dict.fromkeys(("softplus", "log_sigmoid", "gelu_tanh", "erf"), 22),
    **dict.fromkeys(("gelu", "log", "log1p", "expm1", "elu"), 28),
    **{"exp": 8, "exp2": 8, "hardswish": 10},
}
"""Instructions of one element, as nvcc 13.0 writes them for capability 9.0."""


def long_instructions(expr: Expr) -> int:
    """Instructions of the long functions of an expression, for one element."""
    return sum(_INSTRUCTIONS.get(part.op, 0) for part in walk(expr) if isinstance(part, Call))
