"""Which sizes of the arguments a trace leaves open, and what that may cost.

torch.export asks for the truth of conditions on open sizes, and simplifies each with sympy. A
module that cuts maps into windows makes them longer from layer to layer: minutes for a network of
twelve blocks. So the terms of the conditions are counted, which is the same number on every machine
and in every thread, and a trace that asks for too many ends.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any
from unittest.mock import patch

import sympy
from sympy.core.relational import Relational
from sympy.solvers import inequalities
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from kernelwright.capture.errors import SymbolicWorkError

TERMS = 20_000
"""Terms of the conditions in one trace. Simplifying them takes 3 to 8 s on a laptop's core; a
ResNet-50 has 200 in all, a DenseNet-201 19,500, a tiny Swin transformer more than 400,000."""
LONGEST = 300
"""Terms of one condition. Where maps are cut into windows one has more within the first second, and
those that follow are longer; elsewhere none has 150 (docs/measured/capture.md)."""


class Extent(Enum):
    """How many of the sizes are open, widest first."""

    ALL = "all sizes"
    BATCH = "the first size of each tensor"
    NONE = "no size"


Place = tuple[str, int]
"""A size of an argument: the argument's text over `forward`'s ("x", "xs[0]"), the dimension."""


@dataclass(frozen=True, slots=True)
class OpenSizes:
    """The sizes that a trace leaves open where the module allows."""

    extent: Extent
    held: frozenset[Place] = frozenset()
    """Those that are as they are at capture all the same."""

    def reaches(self, place: Place) -> bool:
        """Whether a size is among those of the extent."""
        return {Extent.ALL: True, Extent.BATCH: place[1] == 0, Extent.NONE: False}[self.extent]

    def has(self, place: Place) -> bool:
        """Whether a size is open."""
        return self.reaches(place) and place not in self.held

    def without(self, places: frozenset[Place]) -> "OpenSizes":
        """Open sizes without these, which are held at what they are at capture."""
        return replace(self, held=self.held | places)


@dataclass(slots=True)
class Watch:
    """What is known of one trace's conditions so far."""

    limit: int
    terms: int = 0
    longest: int = 0
    """Terms of the longest condition."""
    sizes: dict[sympy.Basic, str] = field(default_factory=dict)
    """The arguments' sizes as the user would write them, by PyTorch's symbols: "x.shape[2]"."""
    values: dict[sympy.Basic, sympy.Basic] = field(default_factory=dict)
    """What PyTorch's symbols are at capture."""
    _seen: set[sympy.Basic] = field(default_factory=set)

    @property
    def is_spent(self) -> bool:
        """Whether the trace asked about more than it may."""
        return self.terms > self.limit or self.longest > LONGEST

    def ask(self, env: ShapeEnv, condition: object) -> None:
        """Count a condition that tracing asks about. SymbolicWorkError if it is one too many."""
        if isinstance(condition, sympy.Basic) and condition not in self._seen:
            self._seen.add(condition)
            if not _is_bound(condition):
                terms = sum(1 for _ in sympy.preorder_traversal(condition))
                self.terms += terms
                self.longest = max(self.longest, terms)
            for symbol in condition.free_symbols - self.values.keys():
                self._meet(env, symbol)
        if self.is_spent:
            raise SymbolicWorkError

    def _meet(self, env: ShapeEnv, symbol: sympy.Basic) -> None:
        known = getattr(env, "backed_var_to_val", None) or getattr(env, "var_to_val", {})
        if symbol in known:
            self.values[symbol] = known[symbol]
        for source in getattr(env, "var_to_sources", {}).get(symbol, ()):
            name = source.name if isinstance(source.name, str) else source.name()
            if match := _SOURCE.fullmatch(name):
                self.sizes[symbol] = f"{match[1]}{match[2]}.shape[{match[3]}]"

    def plain(self, message: str) -> str:
        """A message of PyTorch's with its symbols replaced by what the user calls the sizes."""
        named = {str(symbol): size for symbol, size in self.sizes.items()}
        return re.sub(r"\bs\d+\b", lambda found: named.get(found[0], found[0]), message)


_SOURCE = re.compile(r"L\['(\w+)'\](.*)\.size\(\)\[(\d+)\]")
"""How PyTorch writes where a symbol comes from; early releases name no argument there."""


def _is_bound(condition: sympy.Basic) -> bool:
    """True for one size compared with a number: `s1 > 7`."""
    sides = condition.args if isinstance(condition, Relational) else ()
    return bool(sides) and all(isinstance(it, sympy.Symbol | sympy.Integer) for it in sides)


@contextmanager
def watched_conditions(limit: int) -> Iterator[Watch]:
    """A block in which tracing may ask about conditions of `limit` terms; SymbolicWorkError after.

    A condition that was asked about before costs nothing, nor does a bound of one size: a loop asks
    for one in each step, and the size's range has the answer. Where sympy cannot solve equations
    for a size, they are taken as solved by its present value: torch.export looks only for sizes
    that the user wants open and that cannot be, and the equations are relations of the graph in any
    case.
    """
    watch = Watch(limit=limit)
    evaluate, solve = ShapeEnv.evaluate_expr, inequalities.reduce_inequalities

    def asked(env: ShapeEnv, condition: Any, *args: Any, **options: Any) -> Any:
        watch.ask(env, condition)
        return evaluate(env, condition, *args, **options)

    def solved(conditions: Any, symbols: Any = ()) -> Any:
        try:
            return solve(conditions, symbols)
        except NotImplementedError:
            if symbols not in watch.values:
                raise
            return sympy.Eq(symbols, watch.values[symbols])

    with (
        patch.object(ShapeEnv, "evaluate_expr", asked),
        patch.object(inequalities, "reduce_inequalities", solved),
    ):
        yield watch
