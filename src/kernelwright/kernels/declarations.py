"""Top-level declarations of a `.cuh` file, so that a text can hold only those that it uses."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Lines between empty lines outside all braces: declarations, or a comment of its own."""

    text: str
    declares: frozenset[str]
    """Types, functions and constants that it declares."""
    mentions: frozenset[str]
    """Every identifier in its code."""


@cache
def blocks(code: str) -> tuple[Block, ...]:
    """The blocks of a file's code, which has no include lines.

    Remembered: reading the headers took most of the time in which a file is written, each time.
    """
    found: list[Block] = []
    lines: list[str] = []
    depth = 0
    for line in [*code.splitlines(), ""]:
        if line.strip() or depth:
            lines.append(line)
            words = list(tokens(line))
            depth += words.count("{") - words.count("}")
        elif lines:
            found.append(_block("\n".join(lines)))
            lines = []
    return tuple(found)


def in_use(code: str, wanted: Iterable[str]) -> tuple[str, frozenset[str]]:
    """The blocks of `code` that declare one of `wanted`, and those that these mention in turn.

    Returns their text, in order, and what they mention. The comment that opens the code stays,
    and so does a comment that stands alone before a block that stays; "" where none does.
    """
    everything = blocks(code)
    names = set(wanted)
    kept: set[Block] = set()
    growing = True
    while growing:
        new = {b for b in everything if b.declares & names} - kept
        names |= {name for block in new for name in block.mentions}
        kept |= new
        growing = bool(new)
    text = "\n\n".join(block.text for block in _with_comments(everything, kept))
    return text, frozenset(name for block in kept for name in block.mentions)


def tokens(code: str) -> Iterator[str]:
    """Identifiers, numbers and marks, without comments, texts in quotes and `#` lines."""
    for line in code.splitlines():
        if not line.lstrip().startswith("#"):
            yield from _tokens_of_line(line)


def _tokens_of_line(line: str) -> Iterator[str]:
    word = ""
    quoted = False
    for position, char in enumerate(line):
        if quoted or char == '"':
            quoted = quoted != (char == '"')
        elif char.isalnum() or char == "_":
            word += char
            continue
        elif line.startswith("//", position):
            break
        if word:
            yield word
            word = ""
        if not quoted and char != '"' and not char.isspace():
            yield char
    if word:
        yield word


def _with_comments(everything: Iterable[Block], kept: set[Block]) -> Iterator[Block]:
    opening: list[Block] = []
    heading: list[Block] = []
    before_code = True
    for block in everything:
        before_code = before_code and not block.mentions
        if before_code:
            opening.append(block)
        elif not block.mentions:
            heading = [block]
        elif block in kept:
            yield from (*opening, *heading, block)
            opening, heading = [], []


def _block(text: str) -> Block:
    words = list(tokens(text))
    mentions = frozenset(word for word in words if word[0].isalpha() or word[0] == "_")
    return Block(text=text, declares=frozenset(_declared(words)), mentions=mentions)


def _declared(words: list[str]) -> Iterator[str]:
    """Names that a declaration outside all braces and parentheses introduces."""
    outside = _outside(words)
    pairs = pairwise([*outside, ";"])
    ended = True
    for word, following in pairs:
        if word in ("struct", "class", "using"):
            # In `struct alignas(16) Vector` the parentheses are gone already.
            yield following
            ended = False
        elif ended and following in ("(", "=", ";", "[") and word.isidentifier():
            yield word
            ended = False
        ended = ended or word in (";", "{")


def _outside(words: list[str]) -> list[str]:
    """Without template parameters, attributes and what stands in braces or parentheses.

    Of a pair the opening one stays: `f(int x) { ... }` gives `f ( {`.
    """
    result: list[str] = []
    depth = angles = 0
    for before, word in pairwise(["", *words]):
        if before == "template" or angles:
            angles += (word == "<") - (word == ">")
            continue
        if word in ("{", "("):
            if depth == 0 and before != "alignas":
                result.append(word)
            depth += 1
        elif word in ("}", ")"):
            depth -= 1
        elif depth == 0 and word not in ("template", "alignas"):
            result.append(word)
    return result
