"""Where a declaration begins and ends in the tokens of a file, and what it declares."""

from collections.abc import Sequence

from kernelwright.emulator.tokens import (
    Token,
    closing,
    closing_angle,
    following,
    join,
    opening,
    preceding,
)

_ALIGNMENTS = ("alignas", "__align__", "__builtin_align__", "__attribute__")


def statement_start(tokens: Sequence[Token], at: int) -> int:
    """Index of the first token of the declaration that the one at `at` is part of."""
    before = preceding(tokens, at - 1)
    while before >= 0 and not tokens[before].is_mark(";", "{", "}", ":"):
        if tokens[before].is_mark(")", "]"):
            opener = opening(tokens, before)
            owner = preceding(tokens, opener - 1)
            if tokens[before].is_mark(")") and not tokens[owner].is_name(*_ALIGNMENTS):
                break
            before = opener
        before = preceding(tokens, before - 1)
    return following(tokens, before + 1)


def statement_end(tokens: Sequence[Token], at: int) -> int:
    """Index of the `;` of the statement at `at`; of a macro without one, its end."""
    while at < len(tokens) and not tokens[at].is_mark(";"):
        if tokens[at].is_mark("(", "[", "{"):
            at = max(at, closing(tokens, at))
        at += 1
    return at if at < len(tokens) else preceding(tokens, len(tokens) - 1) + 1


def declarator(tokens: Sequence[Token]) -> str:
    """The last name outside of brackets before the array bounds, or "" without one."""
    words = [token for token in tokens if not token.blank]
    name, at = -1, 0
    while at < len(words) and not words[at].is_mark("[", "="):
        if words[at].is_mark("{", "("):
            at = max(at, closing(words, at))
        elif words[at].is_mark("<"):
            at = max(at, closing_angle(words, at))
        elif words[at].is_name():
            name = at
        at += 1
    if name < 0:
        return ""
    first = name
    while first >= 2 and words[first - 1].is_mark("##"):
        first -= 2
    return join(words[first : name + 1])


def without_alignment(tokens: Sequence[Token]) -> list[Token]:
    """The tokens without `alignas(...)`, its older spellings and `[[...]]`."""
    kept: list[Token] = []
    at = 0
    while at < len(tokens):
        if tokens[at].is_name(*_ALIGNMENTS):
            at = closing(tokens, following(tokens, at + 1)) + 1
        elif tokens[at].is_mark("[") and tokens[at + 1].is_mark("["):
            at = closing(tokens, at) + 1
        else:
            kept.append(tokens[at])
            at += 1
    return kept
