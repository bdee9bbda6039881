"""C++ text as tokens that put together again give the text, byte for byte.

    tokens = tokenize("x[0] = 1;  // one")
    assert "".join(token.text for token in tokens) == "x[0] = 1;  // one"

Enough of the language to find statements and match brackets in: comments, string, character and
raw string literals, numbers, identifiers, line splices. `<` and `>` stay single characters, because
only their reader knows whether `>>>` closes a launch or three template argument lists.
A preprocessor line is a DIRECTIVE token `#` and the tokens of its content, ended by LINE_END;
whoever has read it folds it into one token, which is blank as far as statements go.
"""

import re
from collections.abc import Iterable, Sequence
from enum import Enum, auto
from typing import NamedTuple


class TokenKind(Enum):
    """What a token is."""

    NAME = auto()
    """Identifier or keyword."""
    NUMBER = auto()
    STRING = auto()
    """String literal with its prefix, also a raw one."""
    CHARACTER = auto()
    PUNCTUATION = auto()
    DIRECTIVE = auto()
    """The `#` that opens a preprocessor line, or such a line as a whole."""
    LINE_END = auto()
    """The line break that ends a line; spliced ones are SPACE."""
    SPACE = auto()
    """Blanks and spliced line breaks."""
    COMMENT = auto()


_KINDS = {kind.name: kind for kind in TokenKind}
_BLANK = frozenset({TokenKind.SPACE, TokenKind.COMMENT, TokenKind.LINE_END, TokenKind.DIRECTIVE})
_OPENERS = {"(": ")", "[": "]", "{": "}"}
_CLOSERS = {closer: opener for opener, closer in _OPENERS.items()}
_STRING_PREFIXES = frozenset({"", "L", "u", "U", "u8", "R", "LR", "uR", "UR", "u8R"})
_LITERAL_BEGINNINGS = frozenset("\"'LuUR")
_LONG_PUNCTUATION = ("...", "->*", "::", "->", "##", "&&", "||", "+=", "-=", "*=", "/=", "==", "!=")


class Token(NamedTuple):
    """A piece of the text."""

    kind: TokenKind
    text: str
    line: int
    """Where it begins, from 1."""

    @property
    def blank(self) -> bool:
        """Whether the compiler sees nothing here."""
        return self.kind in _BLANK

    def is_name(self, *names: str) -> bool:
        """Whether it is one of these identifiers; with none given, any identifier."""
        return self.kind is TokenKind.NAME and (not names or self.text in names)

    def is_mark(self, *marks: str) -> bool:
        """Whether it is one of these punctuation marks."""
        return self.kind is TokenKind.PUNCTUATION and self.text in marks


_NOTHING = Token(TokenKind.SPACE, "", 0)


# What is no different by what comes before it, each with what must follow; of ASCII alone.
# Most of a text is this, and `_next` finds the same in twenty times the time.
_MORE_OF_A_WORD = r"A-Za-z0-9_$.\"'\x80-\U0010ffff"
_USUAL = re.compile(
    rf"""
      (?P<NAME> [A-Za-z_$][A-Za-z0-9_$]* (?= \. | [^{_MORE_OF_A_WORD}]))
    | (?P<SPACE> [ \t]+ (?= \n | [^\s\\]))
    | (?P<PUNCTUATION> ->\*? | :: | && | \|\| | [-+*=!]= | [][(){{}};,?~@:>%^&|+*=!-])
    | (?P<LINE_END> \n)
    | (?P<NUMBER> [0-9]+ (?= [^{_MORE_OF_A_WORD}]))
    | (?P<COMMENT> // [^\n]* (?<! [\\\r]) (?= \n))
    """,
    re.VERBOSE,
)


def tokenize(text: str) -> list[Token]:
    """The whole text as tokens; an unfinished literal or comment reaches to its end."""
    tokens: list[Token] = []
    position, line, fresh_line = 0, 1, True
    while position < len(text):
        usual = _USUAL.match(text, position)
        if usual is not None:
            kind, end = _KINDS[usual.lastgroup or ""], usual.end()
        else:
            kind, end = _next(text, position, fresh_line=fresh_line)
        token = Token(kind, text[position:end], line)
        tokens.append(token)
        line += token.text.count("\n")
        fresh_line = kind is TokenKind.LINE_END or (fresh_line and token.blank)
        position = end
    return tokens


def _next(text: str, at: int, *, fresh_line: bool) -> tuple[TokenKind, int]:
    """Kind and end of the token that begins at `at`."""
    character = text[at]
    if character == "\n":
        return TokenKind.LINE_END, at + 1
    if character.isspace() or _splice(text, at):
        return TokenKind.SPACE, _blanks(text, at)
    if text.startswith("//", at):
        return TokenKind.COMMENT, _line_comment(text, at)
    if text.startswith("/*", at):
        end = text.find("*/", at + 2)
        return TokenKind.COMMENT, len(text) if end < 0 else end + 2
    if character.isdigit() or (character == "." and text[at + 1 : at + 2].isdigit()):
        return TokenKind.NUMBER, _number(text, at)
    if character == "<" and _is_include(text, at):
        return TokenKind.STRING, text.index(">", at) + 1
    literal = _literal(text, at) if character in _LITERAL_BEGINNINGS else None
    if literal is not None:
        return literal
    if _starts_name(character):
        return TokenKind.NAME, _name(text, at)
    if character == "#" and fresh_line and not text.startswith("##", at):
        return TokenKind.DIRECTIVE, at + 1
    for mark in _LONG_PUNCTUATION:
        if text.startswith(mark, at):
            return TokenKind.PUNCTUATION, at + len(mark)
    return TokenKind.PUNCTUATION, at + 1


def _is_include(text: str, at: int) -> bool:
    """Whether `<` at `at` opens the header's name of an `#include <...>`."""
    line = text[text.rfind("\n", 0, at) + 1 : at].split()
    end = text.find(">", at)
    return "".join(line) in ("#include", "#include_next") and end > 0 and "\n" not in text[at:end]


def _starts_name(character: str) -> bool:
    return character.isalpha() or character in "_$"


def _name(text: str, at: int) -> int:
    while at < len(text) and (_starts_name(text[at]) or text[at].isdigit()):
        at += 1
    return at


def _splice(text: str, at: int) -> int:
    """Length of the backslash and line break at `at`, 0 if there is none."""
    if text[at : at + 1] != "\\":
        return 0
    return next((len(s) for s in ("\\\n", "\\\r\n") if text.startswith(s, at)), 0)


def _blanks(text: str, at: int) -> int:
    while at < len(text):
        splice = _splice(text, at)
        if not splice and (text[at] == "\n" or not text[at].isspace()):
            break
        at += splice or 1
    return at


def _line_comment(text: str, at: int) -> int:
    end = text.find("\n", at)
    while end > 0 and text[at:end].removesuffix("\r").endswith("\\"):
        end = text.find("\n", end + 1)
    return len(text) if end < 0 else end


def _number(text: str, at: int) -> int:
    """End of a preprocessing number: 0x1p-3f, 1'000'000, 1e-5f, 1.0."""
    end = at + 1
    while end < len(text):
        exponent = text[end] in "+-" and text[end - 1] in "eEpP"
        hexadecimal = text[at : at + 2].lower() == "0x" and text[end - 1] in "eE"
        separator = text[end] == "'" and text[end + 1 : end + 2].isalnum()
        if not (
            text[end].isalnum() or text[end] in "._" or (exponent and not hexadecimal) or separator
        ):
            break
        end += 1
    return end


def _literal(text: str, at: int) -> tuple[TokenKind, int] | None:
    quote = at
    while quote < len(text) and text[quote].isalnum():
        quote += 1
    prefix, mark = text[at:quote], text[quote : quote + 1]
    if prefix not in _STRING_PREFIXES or mark not in ('"', "'") or (mark == "'" and "R" in prefix):
        return None
    if prefix.endswith("R"):
        opening = text.find("(", quote)
        end = text.find(")" + text[quote + 1 : opening] + '"', opening)
        return TokenKind.STRING, len(text) if end < 0 else end + opening - quote + 1
    end = quote + 1
    while end < len(text) and text[end] not in (mark, "\n"):
        end += _splice(text, end) or (2 if text[end] == "\\" else 1)
    end += text.startswith(mark, end)
    return TokenKind.STRING if mark == '"' else TokenKind.CHARACTER, end


def join(tokens: Iterable[Token]) -> str:
    """The text of the tokens."""
    return "".join(token.text for token in tokens)


def flatten(tokens: Iterable[Token]) -> str:
    """The tokens on one line, without comments, with one blank where there were any."""
    words: list[str] = []
    for token in tokens:
        if not token.blank:
            words.append(token.text)
        elif words and words[-1] != " ":
            words.append(" ")
    return "".join(words).rstrip(" ")


def line_breaks(tokens: Iterable[Token]) -> str:
    """The line breaks in the tokens, spliced where they were: what keeps the count of lines."""
    breaks = []
    for token in tokens:
        if "\n" in token.text and token.blank:
            spliced = "\\\n" if token.kind is TokenKind.SPACE else "\n"
            breaks.append(spliced * token.text.count("\n"))
    return "".join(breaks)


def following(tokens: Sequence[Token], at: int) -> int:
    """Index of the first token at or after `at` that is not blank, or the length."""
    while at < len(tokens) and tokens[at].blank:
        at += 1
    return at


def preceding(tokens: Sequence[Token], at: int) -> int:
    """Index of the last token at or before `at` that is not blank, or -1."""
    while at >= 0 and tokens[at].blank:
        at -= 1
    return at


def token_before(tokens: Sequence[Token], at: int) -> Token:
    """The token before the one at `at` that is not blank, or one without text."""
    before = preceding(tokens, at - 1)
    return tokens[before] if before >= 0 else _NOTHING


def token_after(tokens: Sequence[Token], at: int) -> Token:
    """The token after the one at `at` that is not blank, or one without text."""
    after = following(tokens, at + 1)
    return tokens[after] if after < len(tokens) else _NOTHING


def closing(tokens: Sequence[Token], opener: int) -> int:
    """Index of the bracket that closes the one at `opener`, or -1."""
    depth = 0
    for at in range(opener, len(tokens)):
        if tokens[at].is_mark(*_OPENERS):
            depth += 1
        elif tokens[at].is_mark(*_CLOSERS):
            depth -= 1
            if depth == 0:
                return at
    return -1


def opening(tokens: Sequence[Token], closer: int) -> int:
    """Index of the bracket that the one at `closer` closes, or -1."""
    depth = 0
    for at in range(closer, -1, -1):
        if tokens[at].is_mark(*_CLOSERS):
            depth += 1
        elif tokens[at].is_mark(*_OPENERS):
            depth -= 1
            if depth == 0:
                return at
    return -1


def closing_angle(tokens: Sequence[Token], opener: int) -> int:
    """Index of the `>` that ends the template argument list begun at `opener`, or -1."""
    depth, at = 0, opener
    while 0 <= at < len(tokens):
        if tokens[at].is_mark("(", "[", "{"):
            at = closing(tokens, at)
            if at < 0:
                return -1
        elif tokens[at].is_mark("<"):
            depth += 1
        elif tokens[at].is_mark(">"):
            depth -= 1
            if depth == 0:
                return at
        elif tokens[at].is_mark(";", ")", "]", "}"):
            return -1
        at += 1
    return -1


def opening_angle(tokens: Sequence[Token], closer: int) -> int:
    """Index of the `<` that begins the template argument list ended at `closer`, or -1."""
    depth, at = 0, closer
    while at >= 0:
        if tokens[at].is_mark(")", "]", "}"):
            at = opening(tokens, at)
            if at < 0:
                return -1
        elif tokens[at].is_mark(">"):
            depth += 1
        elif tokens[at].is_mark("<"):
            depth -= 1
            if depth == 0:
                return at
        elif tokens[at].is_mark(";", "(", "[", "{"):
            return -1
        at -= 1
    return -1


def split(tokens: Sequence[Token], mark: str) -> list[list[Token]]:
    """The tokens between the marks that are in no bracket and in no template argument list."""
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        if token.is_mark("(", "[", "{", "<"):
            depth += 1
        elif token.is_mark(")", "]", "}", ">"):
            depth -= 1
        if token.is_mark(mark) and depth == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts
