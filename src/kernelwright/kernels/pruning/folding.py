"""Conditions on known constants, decided in the text.

`if constexpr (FEED == Feed::SPLIT) { A } else { B }` becomes A or B, `CLUSTER > 1 ? a : b` becomes
a or b, and of a `static_assert` that holds nothing stays. A condition that is partly known keeps
the rest.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from kernelwright.kernels.pruning.branches import branches_edit
from kernelwright.kernels.pruning.conditions import simplified, top_level
from kernelwright.kernels.pruning.constants import Known
from kernelwright.kernels.pruning.edits import Edit, text_of, tidied, without_line
from kernelwright.kernels.pruning.tokens import Token, closing, is_name, tokenise

_MAKES_BOOL = frozenset(("&&", "||", "==", "!=", "<=", ">="))
_NO_CONDITION = frozenset(("?", ",", "=", "<<", ")", "]", "}", "class", "typename"))
"""What stands outside all brackets only where an expression is more than operands of && and ||."""


def fold(code: str, known: Known) -> str:
    """The text with every condition decided that the constants decide."""
    before = code
    while edits := list(_edits(code, tokenise(code), known)):
        pieces, at = [], 0
        for edit in edits:
            pieces += [code[at : edit.start], edit.text]
            at = edit.end
        code = "".join([*pieces, code[at:]])
    return code if code == before else tidied(code)


def _is_bool(text: str) -> bool:
    """Whether an expression is known to be a bool: one operand of `&&` may be a number."""
    tokens = tokenise(text)
    outside = {tokens[i].text for i in top_level(tokens, 0, len(tokens))}
    return bool(outside & _MAKES_BOOL) or tokens[0].text == "!"


def _edits(code: str, tokens: Sequence[Token], known: Known) -> Iterator[Edit]:
    """Changes that do not overlap, first to last; inside what they leave there may be more."""
    end = 0
    for at, token in enumerate(tokens):
        if token.text not in _FOUND_AT or (token.text == "if" and tokens[at - 1].text == "else"):
            continue
        edit = _FOUND_AT[token.text](code, tokens, at, known)
        if edit is not None and edit.start >= end:
            yield edit
            end = edit.end


def _ternary_edit(code: str, tokens: Sequence[Token], at: int, known: Known) -> Edit | None:
    begin = _begin_of_condition(tokens, at)
    value = simplified(code, tokens, begin, at, known)
    colon = _matching_colon(tokens, at)
    end = _end_of_alternative(tokens, colon + 1)
    if not isinstance(value, bool) or colon >= len(tokens) or begin == at:
        return None
    first, last = (at + 1, colon) if value else (colon + 1, end)
    text = text_of(code, tokens, first, last)
    is_enclosed = tokens[begin - 1].text == "(" and closing(tokens, begin - 1) == end
    if is_enclosed and _is_primary(tokens, first, last) and not _is_called(tokens, begin - 1):
        return Edit(tokens[begin - 1].start, tokens[end].end, text)
    return Edit(tokens[begin].start, tokens[end - 1].end, text)


def _is_primary(tokens: Sequence[Token], begin: int, end: int) -> bool:
    """Whether an expression is a name, a number, a call or the like: whatever stands around it."""
    outside = [tokens[i].text for i in top_level(tokens, begin, end)]
    has_mark = any(not text[0].isalnum() and text[0] not in "_:.\"'" for text in outside)
    return bool(outside) and not has_mark and tokens[begin].text not in ("(", "[", "{")


def _is_called(tokens: Sequence[Token], at: int) -> bool:
    """Whether the parenthesis at `at` belongs to what stands before it."""
    before = tokens[at - 1].text if at else ";"
    return is_name(before) or before in (">", ")", "]", "}")


def _begin_of_condition(tokens: Sequence[Token], at: int) -> int:
    """Index of the first token of what stands before the `?` at `at`."""
    depth = 0
    while at > 0:
        text = tokens[at - 1].text
        if text in (")", "]", "}"):
            depth += 1
        elif text in ("(", "[", "{"):
            if depth == 0:
                break
            depth -= 1
        elif depth == 0 and text in ("=", "return", ",", ";", "?", ":", "<<"):
            break
        at -= 1
    return at


def _matching_colon(tokens: Sequence[Token], at: int) -> int:
    depth = 0
    while at < len(tokens):
        text = tokens[at].text
        if text in ("(", "[", "{"):
            at = closing(tokens, at)
        elif text in ("?", ":"):
            depth += 1 if text == "?" else -1
            if depth == 0:
                return at
        at += 1
    return at


def _end_of_alternative(tokens: Sequence[Token], at: int) -> int:
    depth = 0
    while at < len(tokens):
        text = tokens[at].text
        if text in ("(", "[", "{"):
            at = closing(tokens, at)
        elif text in (")", "]", "}", ",", ";") or (text == ":" and depth == 0):
            return at
        else:
            depth += (text == "?") - (text == ":")
        at += 1
    return at


def _assert_edit(code: str, tokens: Sequence[Token], at: int, known: Known) -> Edit | None:
    """Nothing in the place of an assertion that is known to hold."""
    end = closing(tokens, at + 1)
    comma = next((i for i in top_level(tokens, at + 2, end) if tokens[i].text == ","), end)
    if simplified(code, tokens, at + 2, comma, known) is not True:
        return None
    return without_line(code, tokens[at].start, tokens[end + 1].end)


def _flag_edit(code: str, tokens: Sequence[Token], at: int, known: Known) -> Edit | None:
    """A simpler initialiser of `bool NAME = ...;`; nothing in the place of a variable that the text
    says nothing more of."""
    if at + 2 >= len(tokens) or tokens[at + 2].text != "=" or not is_name(tokens[at + 1].text):
        return None
    if _is_unread(tokens, at):
        return without_line(code, tokens[at - 1].start, tokens[at + 4].end)
    return _expression_edit(code, tokens, at + 3, known)


def _is_unread(tokens: Sequence[Token], at: int) -> bool:
    """Whether `bool` at `at` is that of `const bool NAME = true;` in a function, read nowhere."""
    texts = [token.text for token in tokens[max(at - 2, 0) : at + 5]]
    is_literal = len(texts) == 7 and texts[5] in ("true", "false") and texts[6] == ";"
    is_variable = texts[1:3] == ["const", "bool"] and texts[0] in ("{", "}", ";")
    name = tokens[at + 1].text
    return is_literal and is_variable and sum(token.text == name for token in tokens) == 1


def _returned_edit(code: str, tokens: Sequence[Token], at: int, known: Known) -> Edit | None:
    """A simpler expression after `return`."""
    return _expression_edit(code, tokens, at + 1, known)


def _expression_edit(code: str, tokens: Sequence[Token], begin: int, known: Known) -> Edit | None:
    """A simpler whole expression, up to `;`, where it stays a bool: `a && b` and `a || b`."""
    end = begin
    while end < len(tokens) and tokens[end].text != ";":
        end = closing(tokens, end) + 1 if tokens[end].text in ("(", "[", "{") else end + 1
    outside = {tokens[i].text for i in top_level(tokens, begin, end)}
    if not {"&&", "||"} & outside or _NO_CONDITION & outside or end > len(tokens):
        return None
    value = simplified(code, tokens, begin, end, known)
    text = value if isinstance(value, str) else str(value).lower()
    if text == text_of(code, tokens, begin, end):
        return None
    if isinstance(value, str) and not _is_bool(value):
        return None
    return Edit(tokens[begin].start, tokens[end - 1].end, text)


_FOUND_AT: Mapping[str, Callable[[str, Sequence[Token], int, Known], Edit | None]] = {
    "if": branches_edit,
    "?": _ternary_edit,
    "static_assert": _assert_edit,
    "bool": _flag_edit,
    "return": _returned_edit,
}
"""What is looked for, by the token that it is known by."""
