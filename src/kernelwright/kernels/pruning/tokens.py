"""Tokens of CUDA text with their places."""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple


class Token(NamedTuple):
    """One identifier, number, text in quotes or mark, and where it stands."""

    text: str
    start: int
    end: int


# `>>` is two tokens: it may end two lists of template arguments.
_TOKEN = re.compile(
    r"""
    (?: (?: \n | \A ) [ \t]* \# (?: [^\n\\] | \\\n | \\. )*  # a line of the preprocessor
    | \s | //[^\n]* | /\*.*?\*/ )*+
    ( [A-Za-z_]\w*
    | \d(?:[eE][+-]?\d|[\w.]|'(?=\w))*
    | "(?:\\.|[^"\\\n])*"
    | '(?:\\.|[^'\\\n])'
    | :: | -> | \.\.\. | && | \|\| | == | != | <= | >= | << | \+\+ | --
    | \S
    | \Z  # or else the search would go on inside what ends the text
    )
    """,
    re.VERBOSE | re.DOTALL,
)

_PAIRS = {"(": ")", "[": "]", "{": "}"}


@lru_cache(maxsize=8192)
def tokenise(code: str) -> tuple[Token, ...]:
    """The tokens of a text; no comments, no empty space and no lines of the preprocessor."""
    make = tuple.__new__  # The class checks its arguments, 600,000 times for a network.
    return tuple(
        [make(Token, (match[1], *match.span(1))) for match in _TOKEN.finditer(code) if match[1]]
    )


def is_name(text: str) -> bool:
    """Whether a token is an identifier or a keyword."""
    return text[0].isalpha() or text[0] == "_"


@lru_cache(maxsize=8192)
def words(code: str) -> frozenset[str]:
    """Every identifier and keyword of a text."""
    return frozenset(token.text for token in tokenise(code) if is_name(token.text))


def closing(tokens: Sequence[Token], at: int) -> int:
    """Index of the mark that closes the one at `at`; the number of tokens if none does."""
    depth = 0
    for index in range(at, len(tokens)):
        text = tokens[index].text
        depth += (text in _PAIRS) - (text in _PAIRS.values())
        if depth == 0:
            return index
    return len(tokens)


def closing_angle(tokens: Sequence[Token], at: int) -> int:
    """Index of the `>` that closes the `<` at `at`, brackets in between passed over.

    The number of tokens where there is none before a statement ends: the `<` compares.
    """
    depth, index = 0, at
    while index < len(tokens):
        text = tokens[index].text
        if text in _PAIRS:
            index = closing(tokens, index)
        elif text in ("<", ">"):
            depth += 1 if text == "<" else -1
            if depth == 0:
                return index
        elif text in (";", "&&", "||", "{", "}", ")", "]"):
            break
        index += 1
    return len(tokens)
