"""Inline PTX to calls of the functions in include/kwemu/ptx.h.

    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from));
    do { ::kwemu::ptx::cp_async_cg_shared_global((to), (from), 16); } while (false);

An instruction is a function of its own name, dots and colons as underscores; its arguments are the
instruction's operands as they stand, with vectors and addresses unwrapped. The header is the table
of what exists: any other instruction becomes a call of kwemu_unsupported, a finding at its line if
it is ever reached. Registers that the text declares become variables, predicates become `if`.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path

from kernelwright.build.emulator.tokens import (
    Token,
    TokenKind,
    closing,
    flatten,
    following,
    split,
    tokenize,
)

_HEADER = Path(__file__).parent / "include" / "kwemu" / "ptx.h"
_REGISTER_TYPES = {
    ".pred": "bool",
    ".b16": "unsigned short",
    ".u16": "unsigned short",
    ".s16": "short",
    ".b32": "unsigned",
    ".u32": "unsigned",
    ".s32": "int",
    ".b64": "unsigned long long",
    ".u64": "unsigned long long",
    ".s64": "long long",
    ".f32": "float",
    ".f64": "double",
}


class _NotModelled(Exception):
    """What the text holds that has no translation; the argument names it."""


def call(inside: Sequence[Token]) -> str:
    """The statement, without its semicolon, for what stands between the brackets of an `asm`."""
    template, operands = _parts(inside)
    try:
        statements = [_statement(line, operands) for line in _instructions(template)]
    except _NotModelled as reason:
        statements = [_unsupported(str(reason))]
    return f"do {{ {' '.join(statements)} }} while (false)"


@cache
def modelled() -> frozenset[str]:
    """Names of the functions that kwemu/ptx.h defines."""
    tokens = [token for token in tokenize(_HEADER.read_text()) if not token.blank]
    return frozenset(
        name.text
        for name, after in pairwise(tokens)
        if name.kind is TokenKind.NAME and after.is_mark("(")
    )


def _parts(inside: Sequence[Token]) -> tuple[str, dict[str, str]]:
    """The text of the instructions and the C++ expression of each operand, by `0` and by name."""
    sections: list[list[Token]] = [[]]
    depth = 0
    for token in inside:
        depth += token.is_mark("(", "[") - token.is_mark(")", "]")
        colons = token.text.count(":") if depth == 0 and token.is_mark(":", "::") else 0
        if colons:
            sections += [[] for _ in range(colons)]
        else:
            sections[-1].append(token)
    operands: dict[str, str] = {}
    for section in sections[1:3]:
        for part in split(section, ","):
            if any(not token.blank for token in part):
                name, expression = _operand(part)
                operands[str(_count(operands))] = expression
                if name:
                    operands[name] = expression
    return "".join(_string(t) for t in sections[0] if t.kind is TokenKind.STRING), operands


def _count(operands: Mapping[str, str]) -> int:
    return sum(name.isdecimal() for name in operands)


def _operand(tokens: Sequence[Token]) -> tuple[str, str]:
    """Name, if it has one, and expression of `[name] "constraint"(expression)`."""
    at = following(tokens, 0)
    name = ""
    if tokens[at].is_mark("["):
        name = flatten(tokens[at + 1 : closing(tokens, at)])
    while at < len(tokens) and not tokens[at].is_mark("("):
        at += 1
    return name, flatten(tokens[at : closing(tokens, at) + 1])


def _string(token: Token) -> str:
    opener = token.text.index('"')
    if token.text[:opener].endswith("R"):
        return token.text[token.text.index("(") + 1 : token.text.rindex(")")]
    body = token.text[opener + 1 : -1]
    return body.replace("\\n", "\n").replace("\\t", " ").replace('\\"', '"')


def _instructions(template: str) -> list[str]:
    """The instructions one by one, without comments and the braces of scopes."""
    lines = (line.partition("//")[0] for line in template.splitlines())
    found = []
    for piece in " ".join(lines).split(";"):
        text = " ".join(piece.split())
        while text[:1] in ("{", "}") and text:
            text = text[1:].lstrip()
        if text:
            found.append(text)
    return found


def _statement(instruction: str, operands: Mapping[str, str]) -> str:
    words = instruction.split(maxsplit=1)
    if words[0] == ".reg":
        return _registers(words[1])
    condition = ""
    if words[0].startswith("@"):
        predicate = words[0][1:]
        negated = predicate.startswith("!")
        name = _value(predicate.lstrip("!"), operands)
        condition = f"if ({'!' if negated else ''}{name}) "
        words = words[1].split(maxsplit=1)
    mnemonic = words[0].replace("::", ".").replace(".", "_")
    if mnemonic not in modelled():
        return condition + _unsupported(words[0])
    values = [_value(text, operands) for text in _operand_texts(words[1] if words[1:] else "")]
    return f"{condition}::kwemu::ptx::{mnemonic}({', '.join(values)});"


def _registers(declaration: str) -> str:
    kind, _, names = declaration.partition(" ")
    if kind not in _REGISTER_TYPES or "<" in names:
        raise _NotModelled(f".reg {declaration}")
    return f"{_REGISTER_TYPES[kind]} {names};"


def _operand_texts(text: str) -> list[str]:
    """`{%0, %1}, [%2], 16` as %0, %1, %2, 16."""
    for wrapper in "{}[]":
        text = text.replace(wrapper, " ")
    return [part.strip() for part in text.split(",") if part.strip()]


def _value(text: str, operands: Mapping[str, str]) -> str:
    """A C++ expression for one operand of an instruction."""
    if text.startswith("%%"):
        register = f"sreg_{text[2:].replace('.', '_')}"
        if register not in modelled():
            raise _NotModelled(text[1:])
        return f"::kwemu::ptx::{register}()"
    if text.startswith("%"):
        name = text[1:].strip("[]")
        if name not in operands:
            raise _NotModelled(f"operand {text}")
        return operands[name]
    if text.isidentifier() or text.removeprefix("-").isalnum():
        return text
    raise _NotModelled(f"operand {text}")


def _unsupported(what: str) -> str:
    shown = what.replace("\\", "\\\\").replace('"', '\\"')
    return f'::kwemu_unsupported("PTX: {shown}", __FILE__, __LINE__);'
