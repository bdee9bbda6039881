"""Calls that several nodes stand for: reductions, norms, softmaxes, and what is made of them."""

from dataclasses import replace

from kernelwright.capture import (
    arrangements,
    classification,
    distances,
    joins,
    losses,
    norms,
    reductions,
    scans,
    scatters,
    softmaxes,
    windows,
)
from kernelwright.capture.builder import Builder, Call
from kernelwright.capture.making import ItemRule, Rule, make, make_items

RULES: dict[str, Rule] = {
    **reductions.RULES,
    **softmaxes.RULES,
    **norms.RULES,
    **losses.RULES,
    **classification.RULES,
    **distances.RULES,
    **scans.RULES,
    **windows.RULES,
    **joins.RULES,
    **scatters.RULES,
    **arrangements.RULES,
}
"""By the operator's short name, or else by the name that people know it by."""

ITEM_RULES: dict[str, ItemRule] = {
    **reductions.ITEM_RULES,
    **norms.ITEM_RULES,
    **windows.ITEM_RULES,
    **arrangements.ITEM_RULES,
}
"""Operators with several results, by the same names."""

_KNOWN_AS = {
    **{name: "batch_norm" for name in ("native_batch_norm", "_native_batch_norm_legit")},
    "_native_batch_norm_legit_functional": "batch_norm",
    "_native_batch_norm_legit_no_training": "batch_norm",
    "_softmax": "softmax",
    "_log_softmax": "log_softmax",
    "linalg_vector_norm": "norm",
}
"""Operators under the name that the user called them by."""


def composite(builder: Builder, call: Call) -> str | None:
    """The node of the value of a call with one result; None if no rule makes it."""
    known = _renamed(call)
    rule = RULES.get(known.operator)
    return None if rule is None else make(builder, known, rule)


def composite_items(builder: Builder, call: Call) -> dict[int, str] | None:
    """The nodes of those results that are used, of a call with several; None as above."""
    known = _renamed(call)
    rule = ITEM_RULES.get(known.operator)
    if rule is None or not isinstance(call.result, tuple | list):
        return None
    return make_items(builder, known, rule)


def _renamed(call: Call) -> Call:
    return replace(call, operator=_KNOWN_AS.get(call.operator, call.operator))
