"""Chains of `if` and `else`, of which constants decide one or more."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kernelwright.kernels.pruning.conditions import simplified, top_level
from kernelwright.kernels.pruning.constants import Known
from kernelwright.kernels.pruning.edits import Edit, dedented, text_of, without_line
from kernelwright.kernels.pruning.tokens import Token, closing, is_name

_NO_TYPES = ("return", "else", "case", "throw", "delete", "new", "if", "for", "while", "do")
"""Keywords before an expression, or before parentheses and one."""
_CONDITIONAL = re.compile(r"^[ ]*#[ ]*(?:if|el|endif)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class _Branch:
    """`if (condition) body`, or `else body` with no condition; indices of tokens, ends excluded."""

    condition: tuple[int, int] | None
    begin: int
    end: int


def branches_edit(code: str, tokens: Sequence[Token], at: int, known: Known) -> Edit | None:
    """What becomes of the branches from the `if` at `at` on; None if nothing is decided."""
    branches = list(_chain(tokens, at))
    kept: list[tuple[str | None, _Branch]] = []
    changed = False
    for branch in branches:
        value: bool | str = True
        if branch.condition is not None:
            value = simplified(code, tokens, *branch.condition, known)
            changed = changed or value != text_of(code, tokens, *branch.condition)
        if value is not False:
            kept.append((None if value is True else value, branch))
        if value is True:
            break
    if not changed:
        return None
    start, end = tokens[at].start, tokens[branches[-1].end - 1].end
    if not kept:
        return _nothing(code, tokens, at, start, end)
    if kept[0][0] is None:
        return _inlined(code, tokens, at, kept[0][1], branches[-1].end)
    parts = [
        _head(tokens, branch, condition) + text_of(code, tokens, branch.begin, branch.end)
        for condition, branch in kept
    ]
    return Edit(start, end, " else ".join(parts))


def _head(tokens: Sequence[Token], branch: _Branch, condition: str | None) -> str:
    """What stands before a branch's body."""
    if condition is None or branch.condition is None:
        return ""
    is_constexpr = tokens[branch.condition[0] - 2].text == "constexpr"
    return f"if constexpr ({condition}) " if is_constexpr else f"if ({condition}) "


def _chain(tokens: Sequence[Token], at: int) -> Iterator[_Branch]:
    """The branches from the `if` at `at` on."""
    while True:
        opening = at + 1 + (tokens[at + 1].text == "constexpr")
        begin = closing(tokens, opening) + 1
        end = _statement_end(tokens, begin)
        yield _Branch((opening + 1, begin - 1), begin, end)
        if end >= len(tokens) or tokens[end].text != "else":
            return
        if tokens[end + 1].text != "if":
            yield _Branch(None, end + 1, _statement_end(tokens, end + 1))
            return
        at = end + 1


def _statement_end(tokens: Sequence[Token], at: int) -> int:
    """Index after the statement that begins at `at`."""
    text = tokens[at].text
    if text == "{":
        return closing(tokens, at) + 1
    if text in ("if", "for", "while", "switch"):
        opening = at + 1 + (tokens[at + 1].text == "constexpr")
        end = _statement_end(tokens, closing(tokens, opening) + 1)
        if text == "if" and end < len(tokens) and tokens[end].text == "else":
            end = _statement_end(tokens, end + 1)
        return end
    while tokens[at].text != ";":
        at = closing(tokens, at) + 1 if tokens[at].text in ("(", "[", "{") else at + 1
    return at + 1


def _inlined(code: str, tokens: Sequence[Token], at: int, branch: _Branch, after: int) -> Edit:
    """The one branch that is taken, without braces unless they end the life of its names."""
    start, end = tokens[at].start, tokens[after - 1].end
    body = text_of(code, tokens, branch.begin, branch.end)
    is_block = tokens[branch.begin].text == "{"
    inner = tokens[branch.begin + 1 : branch.end - 1] if is_block else ()
    if is_block and not inner:
        return _nothing(code, tokens, at, start, end)
    in_block = _stands_in_block(tokens, at)
    if in_block and _returns(tokens, branch):
        end = _end_of_unreached(code, tokens, after)
    if not is_block:
        return Edit(start, end, dedented(code, start, body))
    if not in_block or _meets(tokens, inner, at, after):
        return Edit(start, end, body)
    lines = code[tokens[branch.begin].end : tokens[branch.end - 1].start]
    return Edit(start, end, dedented(code, start, lines.strip("\n ")))


def _returns(tokens: Sequence[Token], branch: _Branch) -> bool:
    """Whether the last statement of a branch is a `return` outside all brackets."""
    begin, end = branch.begin, branch.end
    if tokens[begin].text == "{":
        begin, end = begin + 1, end - 1
    last = begin
    while begin < end:
        last = begin
        begin = _statement_end(tokens, begin)
    return tokens[last].text == "return"


def _end_of_unreached(code: str, tokens: Sequence[Token], after: int) -> int:
    """Where the statements end that stand behind a `return`: those of the block around it.

    None, where a label or a condition of the preprocessor may be a way to them.
    """
    end = _enclosing_end(tokens, after)
    rest = tokens[after:end]
    start, stop = tokens[after - 1].end, tokens[end - 1].end
    is_reached = any(token.text in ("case", "default") for token in rest)
    return start if is_reached or _CONDITIONAL.search(code, start, stop) else stop


def _enclosing_end(tokens: Sequence[Token], at: int) -> int:
    """Index of the mark that closes the block around a statement, or the number of tokens."""
    while at < len(tokens) and tokens[at].text != "}":
        at = closing(tokens, at) + 1 if tokens[at].text in ("(", "[", "{") else at + 1
    return at


def _nothing(code: str, tokens: Sequence[Token], at: int, start: int, end: int) -> Edit:
    """Nothing in the place of a statement; an empty block where there must be one."""
    if _stands_in_block(tokens, at):
        return without_line(code, start, end)
    return Edit(start, end, "{}")


def _stands_in_block(tokens: Sequence[Token], at: int) -> bool:
    """Whether several statements may stand in the place of the one at `at`."""
    return at == 0 or tokens[at - 1].text in ("{", "}", ";")


def _meets(tokens: Sequence[Token], inner: Sequence[Token], at: int, after: int) -> bool:
    """Whether a name that the statements declare means something else in the block around.

    `after`: index after the branches. Names count that are said after them, and before them outside
    of inner brackets: there another declaration may stand.
    """
    own = [inner[i] for i in top_level(inner, 0, len(inner))]
    declared = set(_declared_names(own))
    begin = _enclosing_begin(tokens, at)
    before = [tokens[i] for i in top_level(tokens, begin, at)]
    following = tokens[after : _enclosing_end(tokens, after)]
    return any(token.text in declared for token in (*before, *following))


def _declared_names(tokens: Sequence[Token]) -> Iterator[str]:
    """Names that may be declared: each after a type's last token, before what may follow it."""
    for before, token, after in zip(tokens, tokens[1:], tokens[2:], strict=False):
        names_type = is_name(before.text) and before.text not in _NO_TYPES
        follows_type = names_type or before.text in ("*", "&", ">", ",", "&&", "]")
        if is_name(token.text) and follows_type and after.text in ("=", ";", ",", ":"):
            yield token.text
        if is_name(token.text) and follows_type and after.text in ("(", "{", "["):
            yield token.text


def _enclosing_begin(tokens: Sequence[Token], at: int) -> int:
    """Index of the first token of the block around a statement."""
    depth = 0
    while at > 0:
        text = tokens[at - 1].text
        depth += (text in (")", "]", "}")) - (text in ("(", "[", "{"))
        if depth < 0:
            break
        at -= 1
    return at
