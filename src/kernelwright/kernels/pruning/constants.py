"""Constants of a whole text that have one value wherever their name stands, or one of a few.

A name has a known value if every declaration of it in the text is `constexpr` with that value, or
copies a constant of the same name (`STAGES = Config::STAGES`). With several values it is known to
have one of them, which decides what is the same for all. A template parameter, an enumerator, a
variable or a type of that name makes it unknown. Values are bools, numbers from 0 to 2^31 - 1,
which no C++ type in use represents differently, and enumerators such as `Feed::AHEAD`.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from math import prod
from types import MappingProxyType

from kernelwright.kernels.pruning.tokens import Token, closing, closing_angle, is_name, tokenise

Value = bool | int | str
"""A constant's value; a str is an enumerator with its enumeration, `"Feed::AHEAD"`."""

_LARGEST = 2**31 - 1
_MOST_OPTIONS = 8
_MOST_CASES = 64
_NO_TYPE = frozenset(
    ("return", "case", "else", "sizeof", "typename", "template", "operator", "new")
)


class Undecided(Exception):  # noqa: N818 - no error: most expressions are
    """An expression whose value the text does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is known of the names of one text."""

    values: Mapping[str, Value]
    """Constants by their last name, without what stands before `::`."""
    options: Mapping[str, tuple[Value, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """Constants with several values, each once: one of them wherever the name stands."""
    enumerations: frozenset[str]
    """Names of `enum class` types."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What one part of a text declares; those of several parts add up."""

    initialisers: tuple[tuple[str, tuple[Token, ...]], ...]
    """Names of constants with the expressions that they get."""
    spoiled: frozenset[str]
    """Names that something else than a constant has."""
    enumerations: frozenset[str]


@lru_cache(maxsize=8192)
def facts(code: str) -> Facts:
    """What a part of a text declares, outside and inside all braces."""
    tokens = tokenise(code)
    enumerations, enumerators = _enumerations(tokens)
    initialisers, places = _constants(tokens)
    return Facts(
        initialisers=initialisers,
        spoiled=frozenset(enumerators) | frozenset(_other_declarations(tokens, places)),
        enumerations=frozenset(enumerations),
    )


def known(parts: Iterable[Facts], asserted: Mapping[str, bool] = MappingProxyType({})) -> Known:
    """The constants with one value in a text that consists of these parts.

    `asserted`: values that are known besides. A name of them that means something else than a
    constant somewhere is not known all the same.
    """
    spoiled: set[str] = set()
    enumerations: set[str] = set()
    initialisers: dict[str, list[tuple[Token, ...]]] = defaultdict(list)
    for part in parts:
        spoiled |= part.spoiled
        enumerations |= part.enumerations
        for name, expression in part.initialisers:
            if not _copies(name, expression):
                initialisers[name].append(expression)
    values: dict[str, Value] = {name: it for name, it in asserted.items() if name not in spoiled}
    options: dict[str, tuple[Value, ...]] = {}
    so_far = Known(values=values, enumerations=frozenset(enumerations), options=options)
    left = {name: it for name, it in initialisers.items() if name not in {*spoiled, *values}}
    growing = True
    while growing:
        new = dict(_decided(left, so_far))
        values |= {name: found[0] for name, found in new.items() if len(found) == 1}
        options |= {name: found for name, found in new.items() if len(found) > 1}
        left = {name: found for name, found in left.items() if name not in new}
        growing = bool(new)
    return so_far


def evaluate(tokens: Sequence[Token], known: Known) -> Value:
    """The value of an expression; Undecided where the text does not say it."""
    value, *others = _possible(tokens, known)
    if others:
        raise Undecided
    return value


def _possible(tokens: Sequence[Token], known: Known) -> tuple[Value, ...]:
    """The values that an expression may have, each once: names with several have any of them.

    Also two mentions of one name, which may mean constants of two types.
    """
    texts = [token.text for token in tokens]
    places = [at for at, text in enumerate(texts) if text in known.options]
    choices = [known.options[texts[at]] for at in places]
    if prod(map(len, choices)) > _MOST_CASES:
        raise Undecided
    found: dict[tuple[type, Value], Value] = {}
    for chosen in product(*choices):
        parser = _Parser(texts, known, dict(zip(places, chosen, strict=True)))
        value = parser.expression(0)
        if value is None or not parser.is_done():
            raise Undecided
        found[type(value), value] = value
    return tuple(found.values())


def _decided(
    left: Mapping[str, list[tuple[Token, ...]]], so_far: Known
) -> Iterator[tuple[str, tuple[Value, ...]]]:
    for name, expressions in left.items():
        found: dict[tuple[type, Value], Value] = {}
        try:
            for expression in expressions:
                found |= {(type(it), it): it for it in _possible(expression, so_far)}
        except Undecided:
            continue
        if len({kind for kind, _ in found}) == 1 and len(found) <= _MOST_OPTIONS:
            yield name, tuple(found.values())


def _copies(name: str, expression: Sequence[Token]) -> bool:
    """Whether an initialiser is `Some::NAME` for the same name."""
    texts = [token.text for token in expression]
    return len(texts) == 3 and texts[1] == "::" and texts[2] == name


# --- Declarations ------------------------------------------------------------------------------


def _constants(
    tokens: Sequence[Token],
) -> tuple[tuple[tuple[str, tuple[Token, ...]], ...], frozenset[int]]:
    """Constants with their initialisers, and the places of their names."""
    found: list[tuple[str, tuple[Token, ...]]] = []
    places: set[int] = set()
    for at, token in enumerate(tokens):
        if token.text != "constexpr" or (at and tokens[at - 1].text == "if"):
            continue
        for name, begin, end in _declarators(tokens, at + 1):
            places.add(name)
            found.append((tokens[name].text, tuple(tokens[begin:end])))
    return tuple(found), frozenset(places)


def _declarators(tokens: Sequence[Token], at: int) -> Iterator[tuple[int, int, int]]:
    """Each name's place after a `constexpr`, and its initialiser's begin and end."""
    name = None
    while at < len(tokens):
        text = tokens[at].text
        if text == "<":
            at = closing_angle(tokens, at)
        elif text == "=" and name is not None:
            end = _end_of_initialiser(tokens, at + 1)
            yield name, at + 1, end
            if end >= len(tokens) or tokens[end].text == ";":
                return
            name, at = None, end
        elif is_name(text):
            name = at
        elif text not in ("::", ",", "*", "&"):
            return  # a function, an array, or something with braces
        at += 1


def _end_of_initialiser(tokens: Sequence[Token], at: int) -> int:
    while at < len(tokens) and tokens[at].text not in (",", ";"):
        if tokens[at].text in ("(", "[", "{"):
            at = closing(tokens, at)
        elif tokens[at].text == "<":
            # The comma of `Pair<A, B>::VALUE` ends nothing; where `<` compares, none follows.
            at = min(closing_angle(tokens, at), _next(tokens, at, ";") - 1)
        at += 1
    return at


def _next(tokens: Sequence[Token], at: int, text: str) -> int:
    return next((i for i in range(at, len(tokens)) if tokens[i].text == text), len(tokens))


def _enumerations(tokens: Sequence[Token]) -> tuple[set[str], set[str]]:
    """Names of `enum class` types, and the enumerators of all enumerations."""
    scoped: set[str] = set()
    enumerators: set[str] = set()
    for at, token in enumerate(tokens):
        if token.text != "enum":
            continue
        is_scoped = tokens[at + 1].text in ("class", "struct")
        if is_scoped:
            scoped.add(tokens[at + 2].text)
        begin = _next(tokens, at, "{")
        for inside in range(begin, closing(tokens, begin)):
            if tokens[inside].text in ("{", ",") and is_name(tokens[inside + 1].text):
                enumerators.add(tokens[inside + 1].text)
    return scoped, enumerators


def _other_declarations(tokens: Sequence[Token], constants: frozenset[int]) -> Iterator[str]:
    """Names that stand where a variable, a parameter or a type is declared, or where one is set."""
    for at in range(1, len(tokens)):
        text, before = tokens[at].text, tokens[at - 1].text
        if not is_name(text) or at in constants:
            continue
        after = tokens[at + 1].text if at + 1 < len(tokens) else ";"
        declared = is_name(before) and before not in _NO_TYPE
        if declared or after == "=" or before == "..." or _ends_a_type(tokens, at - 1):
            yield text


def _ends_a_type(tokens: Sequence[Token], at: int) -> bool:
    """Whether a mark belongs to a type before it: `T* NAME`, `T& NAME`, `Pair<T> NAME`.

    The house's format says so, which holds in CI: `*` and `&` of a type touch the type and not the
    name, and have empty space on both sides between operands.
    """
    if at == 0 or tokens[at].text not in ("*", "&", "&&", ">"):
        return False
    touches = tokens[at - 1].end == tokens[at].start
    return touches and at + 1 < len(tokens) and tokens[at].end < tokens[at + 1].start


# --- Expressions -------------------------------------------------------------------------------

_BINDING = {
    "||": 1, "&&": 2, "==": 6, "!=": 6, "<": 7, "<=": 7, ">": 7, ">=": 7,
    "+": 9, "-": 9, "*": 10, "/": 10, "%": 10,
}  # fmt: skip
"""How tightly an operator holds its operands."""
_TERNARY = 0


class _Parser:
    """Reads an expression by precedence; None is a value that is not known.

    An operand that is not understood raises Undecided, as what follows it cannot be read either.
    """

    def __init__(self, texts: list[str], known: Known, chosen: Mapping[int, Value]) -> None:
        self._texts = texts
        self._at = 0
        self._known = known
        self._chosen = chosen
        """Values of names with several, by where they stand."""

    def is_done(self) -> bool:
        return self._at == len(self._texts)

    def expression(self, least: int) -> Value | None:
        value = self._operand()
        while (binding := _BINDING.get(self._peek(), -1)) >= max(least, 1):
            operator = self._take()
            value = _operate(operator, value, self.expression(binding + 1))
        if least <= _TERNARY and self._peek() == "?":
            self._take()
            chosen = self.expression(_TERNARY)
            self._expect(":")
            other = self.expression(_TERNARY)
            return None if not isinstance(value, bool) else chosen if value else other
        return value

    def _operand(self) -> Value | None:
        text = self._take()
        if text == "!":
            value = self._operand()
            return not value if isinstance(value, bool) else None
        if text == "(":
            value = self.expression(_TERNARY)
            self._expect(")")
            return value
        if text in ("true", "false"):
            return text == "true"
        if text.isdigit():
            return int(text)
        return self._named(text)

    def _named(self, text: str) -> Value | None:
        path = [text]
        while self._peek() == "::":
            self._take()
            path.append(self._take())
        if not all(is_name(part) for part in path) or path[0] == "std":
            raise Undecided
        if self._peek() in ("(", "{", "[", ".", "->") or not path[-1].isupper():
            raise Undecided
        if len(path) > 1 and path[-2] in self._known.enumerations:
            return "::".join(path[-2:])
        chosen = self._chosen.get(self._at - 1)
        return self._known.values.get(path[-1]) if chosen is None else chosen

    def _peek(self) -> str:
        return self._texts[self._at] if self._at < len(self._texts) else ""

    def _take(self) -> str:
        text = self._peek()
        if not text:
            raise Undecided
        self._at += 1
        return text

    def _expect(self, text: str) -> None:
        if self._take() != text:
            raise Undecided


def _operate(operator: str, left: Value | None, right: Value | None) -> Value | None:
    if operator in ("&&", "||"):
        decisive = operator == "||"
        if left is decisive or right is decisive:
            return decisive
        return None if left is None or right is None else not decisive
    if left is None or right is None:
        return None
    if operator in ("==", "!="):
        if type(left) is not type(right):
            return None
        return (left == right) is (operator == "==")
    if type(left) is not int or type(right) is not int:
        return None
    return _compare_or_compute(operator, left, right)


def _compare_or_compute(operator: str, left: int, right: int) -> Value | None:
    match operator:
        case "<":
            return left < right
        case "<=":
            return left <= right
        case ">":
            return left > right
        case ">=":
            return left >= right
        case "+":
            result = left + right
        case "-":
            result = left - right
        case "*":
            result = left * right
        case "/" | "%" if right == 0:
            return None
        case "/":
            result = left // right
        case _:
            result = left % right
    return result if 0 <= result <= _LARGEST else None
