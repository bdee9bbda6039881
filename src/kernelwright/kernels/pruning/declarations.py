"""Declarations of a `.cuh` file and their members; a text can hold only those that it uses."""

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from itertools import compress, pairwise

from kernelwright.kernels.pruning.tokens import (
    Token,
    closing,
    closing_angle,
    is_name,
    tokenise,
)

_TYPES = ("struct", "class", "union", "enum")
_LABELS = ("public", "private", "protected")
_ATTRIBUTES = ("alignas", "__launch_bounds__")
"""What stands with parentheses before a name, and is none."""
_OPTIONAL = "maybe_unused"
"""The attribute of fields that no initialiser gives by place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A declaration, or a piece of one: of a type its head, each member and its end are parts."""

    text: str
    """Its lines, with the comment and the empty lines before it."""
    declares: frozenset[str]
    """Names by which it is used. None: it is there whenever what surrounds it is."""
    mentions: frozenset[str]
    """Every identifier in its code, and `name(` of each that may be a call."""
    specialises: frozenset[str] = frozenset()
    """Names of a specialisation's arguments: it is chosen only where all are in use."""
    is_label: bool = False
    """Whether it is `private:` or the like."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """One declaration outside all braces."""

    whole: Part
    members: tuple[Part, ...]
    """What a type's text consists of; none of what is no type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Lines between empty lines outside all braces: declarations, or a comment of its own."""

    comment: str
    """The lines before the first declaration."""
    declarations: tuple[Declaration, ...]


def blocks(code: str) -> tuple[Block, ...]:
    """The blocks of a file's code, which has no include lines."""
    return tuple(_block(text) for text in block_texts(code))


def block_texts(code: str) -> Iterator[str]:
    """The lines of each block."""
    tokens = tokenise(code)
    cuts = [0]
    depth = at = 0
    for token in tokens:
        # An empty line outside all braces that no token bridges.
        if depth == 0:
            cuts += _empty_lines(code, at, token.start)
        depth += (token.text == "{") - (token.text == "}")
        at = token.end
    cuts += _empty_lines(code, at, len(code))
    for begin, end in pairwise([*cuts, len(code)]):
        if text := code[begin:end].strip("\n"):
            yield text


def _empty_lines(code: str, begin: int, end: int) -> Iterator[int]:
    at = code.find("\n\n", begin, end)
    while at >= 0:
        yield at + 1
        at = code.find("\n\n", at + 1, end)


# --- What is in use ----------------------------------------------------------------------------


def in_use(files: Sequence[Sequence[str]], wanted: Iterable[str]) -> list[tuple[str, ...]]:
    """Each file's blocks, and of types the members, that `wanted` needs, directly or not.

    A name needs every declaration of it, in whichever file. A comment that opens a file stays, and
    so does one that stands alone before a block that stays; nothing where no declaration does.
    """
    read = [[_block(text) for text in file] for file in files]
    everything = [it for file in read for block in file for it in block.declarations]
    own = frozenset(name for it in everything for name in it.whole.declares)
    names = _reached(everything, wanted, own)
    return [tuple(_texts(file, names, own)) for file in read]


def _reached(
    everything: Sequence[Declaration], wanted: Iterable[str], own: frozenset[str]
) -> frozenset[str]:
    """All names that are mentioned by what is in use."""
    names = {*wanted, *(f"{name}(" for name in wanted)}
    waiting, parts = list(everything), list[Part]()
    size = -1
    while len(names) != size:
        size = len(names)
        used = [_is_used(it.whole, names, own) for it in waiting]
        for it in compress(waiting, used):
            parts += it.members or (it.whole,)
        waiting = [it for it, is_used in zip(waiting, used, strict=True) if not is_used]
        mentioned = [not part.declares or not part.declares.isdisjoint(names) for part in parts]
        names.update(*(part.mentions for part in compress(parts, mentioned)))
        parts = [part for part, is_used in zip(parts, mentioned, strict=True) if not is_used]
    return frozenset(names)


def _is_used(part: Part, names: Set[str], own: frozenset[str]) -> bool:
    """Whether a declaration is in use: a specialisation, only if its arguments are."""
    return not part.declares.isdisjoint(names) and (part.specialises & own) <= names


def _texts(file: Sequence[Block], names: frozenset[str], own: frozenset[str]) -> Iterator[str]:
    waiting: list[str] = []
    before_code = True
    for block in file:
        used = [it for it in block.declarations if _is_used(it.whole, names, own)]
        if not block.declarations:
            # Of several comments after code only the last stands above what follows.
            waiting = [*(waiting if before_code else ()), block.comment]
        elif used:
            yield from waiting
            yield (block.comment + "".join(_declaration_text(it, names) for it in used)).strip("\n")
            waiting = []
        before_code = before_code and not block.declarations


def _declaration_text(it: Declaration, names: frozenset[str]) -> str:
    if not it.members:
        return it.whole.text
    kept = [part for part in it.members if not part.declares or part.declares & names]
    # A label before no member is none.
    texts = [
        part.text
        for part, after in pairwise([*kept, kept[-1]])
        if not (part.is_label and (after.is_label or after is kept[-1]))
    ]
    for at, (part, after) in enumerate(pairwise(texts)):
        if part.strip().rstrip(":") in _LABELS:
            texts[at + 1] = after.lstrip("\n")
    head, *rest = texts
    return head.rstrip("\n") + "\n" + "".join(rest).lstrip("\n") if rest else head


# --- Reading -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Piece:
    """A part of a text."""

    text: str
    tokens: Sequence[Token]
    begin: int = 0
    """Where it begins in the text in which the tokens have their places."""

    @property
    def names(self) -> frozenset[str]:
        """Every identifier in it, and `name(` of each that may be a call."""
        names = (token.text for token in self.tokens if is_name(token.text))
        return frozenset((*names, *_calls(self.tokens)))


@lru_cache(maxsize=8192)
def _block(text: str) -> Block:
    tokens = tokenise(text)
    if not tokens:
        return Block(comment=text, declarations=())
    begin = text.rfind("\n", 0, tokens[0].start) + 1
    pieces = _pieces(text, tokens, begin, len(text))
    return Block(comment=text[:begin], declarations=tuple(_declaration(it) for it in pieces))


def _pieces(code: str, tokens: Sequence[Token], begin: int, end: int) -> Iterator[_Piece]:
    """Each declaration, with the rest of its last line."""
    at = 0
    while at < len(tokens):
        last = _last_token(tokens, at)
        stop = _end_of_line(code, tokens, last, end)
        if last + 1 >= len(tokens):
            stop = end
        yield _Piece(code[begin:stop], tokens[at : last + 1], begin)
        begin, at = stop, last + 1


def _last_token(tokens: Sequence[Token], at: int) -> int:
    """Index of the token that ends the declaration at `at`: `;`, a body's `}`, a label's `:`."""
    if tokens[at].text in _LABELS:
        return at + 1
    is_type = _type_keyword(tokens, at) is not None
    sets = False
    while at < len(tokens):
        text = tokens[at].text
        if text == ";":
            return at
        sets = sets or text == "="
        if text in ("(", "[", "{"):
            end = closing(tokens, at)
            if text == "{" and not is_type and not sets and not _is_initialiser(tokens, at, end):
                return end
            at = end
        at += 1
    return len(tokens) - 1


def _is_initialiser(tokens: Sequence[Token], at: int, end: int) -> bool:
    """Whether the braces initialise a member in a constructor's list, or a variable."""
    before = tokens[at - 1].text if at else ""
    after = tokens[end + 1].text if end + 1 < len(tokens) else ""
    return after in (",", "{", ";") and is_name(before) and before not in ("const", "noexcept")


def _end_of_line(code: str, tokens: Sequence[Token], last: int, end: int) -> int:
    line = code.find("\n", tokens[last].end, end)
    line = end if line < 0 else line + 1
    following = tokens[last + 1].start if last + 1 < len(tokens) else end
    return min(line, following)


def _type_keyword(tokens: Sequence[Token], at: int) -> int | None:
    """Index of `struct`, `class`, `union` or `enum` if a type is declared at `at`."""
    if tokens[at].text == "template":
        at = closing_angle(tokens, at + 1) + 1
    return at if at < len(tokens) and tokens[at].text in _TYPES else None


def _declaration(piece: _Piece) -> Declaration:
    keyword = _type_keyword(piece.tokens, 0)
    whole = Part(
        text=piece.text,
        declares=frozenset(_declared([token.text for token in piece.tokens])),
        mentions=piece.names,
        specialises=frozenset() if keyword is None else _arguments(piece.tokens, keyword),
    )
    if keyword is None or piece.tokens[keyword].text == "enum":
        return Declaration(whole=whole, members=())
    return Declaration(whole=whole, members=tuple(_members(piece, keyword)))


def _arguments(tokens: Sequence[Token], keyword: int) -> frozenset[str]:
    """Names in the arguments of a specialisation, `struct Name<Arguments>`."""
    name = next((i for i in range(keyword + 1, len(tokens)) if is_name(tokens[i].text)), keyword)
    if tokens[name].text == "alignas":
        name = closing(tokens, name + 1) + 1
    if name + 1 >= len(tokens) or tokens[name + 1].text != "<":
        return frozenset()
    inside = tokens[name + 2 : closing_angle(tokens, name + 1)]
    return frozenset(token.text for token in inside if is_name(token.text))


def _members(piece: _Piece, keyword: int) -> Iterator[Part]:
    """A type's head, its members, and its end."""
    tokens = piece.tokens
    opening = keyword
    while opening < len(tokens) and tokens[opening].text not in ("{", ";"):
        opening = closing(tokens, opening) if tokens[opening].text == "(" else opening
        opening += 1
    end = closing(tokens, opening)
    if opening >= len(tokens) or tokens[opening].text == ";" or end == opening + 1:
        yield _always(piece)
        return
    moved = [Token(it.text, it.start - piece.begin, it.end - piece.begin) for it in tokens]
    inside = moved[opening + 1 : end]
    begin = _end_of_line(piece.text, moved, opening, moved[end].start)
    close = piece.text.rfind("\n", 0, moved[end].start) + 1
    if close <= begin:
        yield _always(piece)  # on one line
        return
    yield _always(_Piece(piece.text[:begin], tokens[: opening + 1]))
    name = next(_declared([token.text for token in tokens]), "")
    for member in _pieces(piece.text, inside, begin, close):
        yield _member(member, name)
    yield _always(_Piece(piece.text[close:], tokens[end:]))


def _calls(tokens: Sequence[Token]) -> Iterator[str]:
    """`name(` of each name that may be a function: it is called, or stands behind `::` or `&`."""
    texts = [token.text for token in tokens]
    for before, name, after in zip(["", *texts], texts, [*texts[1:], ""], strict=False):
        if is_name(name) and (after in ("(", "<") or before in ("::", "&")):
            yield f"{name}("


def _always(piece: _Piece) -> Part:
    return Part(text=piece.text, declares=frozenset(), mentions=piece.names)


def _member(piece: _Piece, type_name: str) -> Part:
    texts = [token.text for token in piece.tokens]
    return Part(
        text=piece.text,
        declares=frozenset(_member_names(texts, type_name)),
        mentions=piece.names,
        is_label=texts[0] in _LABELS,
    )


def _member_names(tokens: list[str], type_name: str) -> Iterator[str]:
    """Names of static constants or of an alias, `name(` of a function; none for any other member.

    A function is no field or variable of the same name: only what may be a call uses it. Fields
    stay, as they have places, unless they are `[[maybe_unused]]`; so do constructors, operators and
    assertions, which are used without being named.
    """
    if tokens[:3] == ["[", "[", _OPTIONAL]:
        yield from _constants(tokens[5:])
        return
    outside = list(_outside(tokens))
    head = outside[: _head(outside)]
    is_function = "(" in outside and outside.index("(") == len(head)
    if {"operator", "friend", "~", "static_assert"} & set(head):
        return
    if is_function and (head[-1:] == [type_name] or tokens[tokens.index("(") + 1] == "*"):
        return  # a constructor, or a field that is a function's address
    if not is_function and {"static", "constexpr"} <= set(head):
        yield from _constants(tokens)
    elif is_function:
        yield from (f"{name}(" for name in _declared(tokens))
    elif outside[0] in ("using", "struct", "class"):
        yield from _declared(tokens)


def _head(outside: Sequence[str]) -> int:
    """How many tokens come before parameters, an initialiser or a body."""
    return next((i for i, text in enumerate(outside) if text in ("(", "=", "{", ";")), len(outside))


def _constants(tokens: Sequence[str]) -> Iterator[str]:
    """Names of `static constexpr int A = 1, B[2] = {3, 4};`."""
    for name, after in pairwise(_outside(list(tokens))):
        if after in ("=", "[", "{") and is_name(name):
            yield name


def _declared(words: list[str]) -> Iterator[str]:
    """Names that a declaration outside all braces and parentheses introduces."""
    ended = True
    for word, following in pairwise([*_outside(words), ";"]):
        if word in _TYPES and following not in _TYPES:
            # In `struct alignas(16) Vector` the parentheses are gone already.
            yield following
            ended = False
        elif ended and following in ("(", "=", ";", "[", "{") and is_name(word):
            yield word
            ended = False
        elif word == "using":
            yield following
            ended = False
        ended = ended or word in (";", "{")


def _outside(words: list[str]) -> Iterator[str]:
    """Without template parameters, attributes and what stands in braces or parentheses.

    Of a pair the opening one stays: `f(int x) { ... }` gives `f ( {`.
    """
    depth = angles = 0
    for before, word in pairwise(["", *words]):
        if before == "template" or angles:
            angles += (word == "<") - (word == ">")
            continue
        if word in ("{", "("):
            if depth == 0 and before not in _ATTRIBUTES:
                yield word
            depth += 1
        elif word in ("}", ")"):
            depth -= 1
        elif depth == 0 and word not in ("template", *_ATTRIBUTES):
            yield word
