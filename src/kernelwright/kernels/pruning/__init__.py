"""Device text without what a problem's kernels cannot reach.

One emitted text is a closed world: nothing outside it can name what is inside. Two facts follow,
and nothing here relies on more:

- A declaration whose name no other declaration in use mentions is not used (`declarations`).
- A constant whose every declaration in the text has one value has that value wherever its name
  stands, whatever stands before the `::`; where there are a few, it has one of them (`constants`).
  Conditions on such constants are decided while the text is written (`folding`), and what only the
  other branch mentions is unused, too.

A name that might be anything else is left alone, and so is every condition that is not understood.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType

from kernelwright.kernels.pruning import declarations, folding
from kernelwright.kernels.pruning.constants import Known, Value, facts, known
from kernelwright.kernels.pruning.tokens import words


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """Code that uses device code, which together are the whole text."""

    code: str
    asserted: Mapping[str, bool] = field(default_factory=lambda: MappingProxyType({}))
    """Constants by name with their values, as a `static_assert` in the code says of each type that
    has one. The text alone does not tell such a value: it depends on types."""


def in_use(by: User, texts: Sequence[str]) -> list[str]:
    """What `by` uses of each text, directly or not; "" of those that it does not use."""
    wanted = words(by.code)
    before: list[tuple[str, ...]] = []
    kept = declarations.in_use([_blocks(text) for text in texts], wanted)
    while kept != before:
        before = kept
        parts = [facts(by.code), *(facts(block) for file in kept for block in file)]
        constants = known(parts, by.asserted)
        folded = [tuple(_folded(block, constants) for block in file) for file in kept]
        kept = declarations.in_use(folded, wanted)
    return ["\n\n".join(file) for file in kept]


@lru_cache(maxsize=256)
def _blocks(text: str) -> tuple[str, ...]:
    return tuple(declarations.block_texts(text))


def _folded(block: str, constants: Known) -> str:
    named = words(block)
    choices: dict[str, tuple[Value, ...]] = {
        name: (constants.values[name],) for name in constants.values.keys() & named
    }
    choices |= {name: constants.options[name] for name in constants.options.keys() & named}
    if not choices:
        return block
    # True and 1 are equal, and not the same condition.
    typed = tuple(
        (name, tuple((type(value), value) for value in choices[name])) for name in sorted(choices)
    )
    return _folded_by(block, typed, constants.enumerations & named)


@lru_cache(maxsize=8192)
def _folded_by(
    block: str,
    typed: tuple[tuple[str, tuple[tuple[type, Value], ...]], ...],
    enumerations: frozenset[str],
) -> str:
    """Texts of one module mostly know the same of the names of a block."""
    choices = {name: tuple(value for _, value in found) for name, found in typed}
    constants = Known(
        values={name: found[0] for name, found in choices.items() if len(found) == 1},
        options={name: found for name, found in choices.items() if len(found) > 1},
        enumerations=enumerations,
    )
    return folding.fold(block, constants)
