"""Inline PTX as C++: a table of the instructions that the emulator knows, a row for each.

    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from));
    ::kwemu::ptx::cp_async_cg_shared_global(to, from, 16);

    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    lane = ::kwemu::from_bits<__typeof__(lane)>(::kwemu::to_bits(kwemu_linear_thread() % 32));

A row is a function of kwemu/ptx.h, called with the operands of the instruction in their order, or
an expression of them. `{a, b}` counts as two operands and `[address]` as the address that the
constraint passed ("l": 64 bits, "r": the 32-bit handle of a shared variable). Several instructions
of one statement follow each other; their `.reg` variables become local ones, and a guard `@p` an
`if`. There are no labels and no branches. `.ftz` is read as nothing: denormal numbers are kept.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kernelwright.emulator.ptx_table import (
    INDEX_REGISTERS,
    SPECIAL_REGISTERS,
    TYPES,
    row,
)
from kernelwright.emulator.tokens import (
    Token,
    TokenKind,
    closing,
    flatten,
    line_breaks,
    split,
    tokenize,
)
from kernelwright.errors import ExitCode, KernelwrightError


class UnsupportedPtxError(KernelwrightError):
    """Inline PTX with an instruction that the emulator has no model of."""

    exit_code = ExitCode.UNSUPPORTED
    next_step = "Use the CUDA intrinsic for it, or build this file on a machine with a GPU."


_ADDRESS = "(unsigned long long)"
"""What an offset in bytes is added to; functions of a shared handle take its low 32 bits."""


@dataclass(frozen=True, slots=True)
class Call:
    """One instruction as a call, and the predicate that guards it."""

    text: str
    guard: str = ""

    def __str__(self) -> str:
        return f"if ({self.guard}) {self.text}" if self.guard else self.text


def translate_asm(statement: Sequence[Token], name: str) -> str:
    """The expression that stands for `asm volatile(...)`, with as many line breaks.

    Raises:
        UnsupportedPtxError: an instruction, operand or register that has no model here.
    """
    location = f"{name}:{statement[0].line}"
    opener = next(at for at, token in enumerate(statement) if token.is_mark("("))
    sections = _sections(statement[opener + 1 : -1])
    operands = [_expression(o) for s in sections[1:3] for o in split(s, ",") if flatten(o)]
    text = _template(sections[0], location)
    calls = list(_Reader(operands, location).block(_words(text)))
    breaks = line_breaks(statement)
    match calls:
        case []:
            return f"(void)0{breaks}"
        case [Call(text=call, guard="")]:
            return f"{call}{breaks}"
        case _:
            return f"__extension__({{ {' '.join(f'{call};' for call in calls)} {breaks}}})"


def _sections(inside: Sequence[Token]) -> list[list[Token]]:
    """What the colons separate: template, results, arguments, clobbers."""
    sections: list[list[Token]] = [[]]
    depth = 0
    for token in inside:
        depth += token.is_mark("(", "[", "{") - token.is_mark(")", "]", "}")
        if depth == 0 and token.is_mark(":", "::"):
            sections += [[] for _ in token.text]
        else:
            sections[-1].append(token)
    return sections


def _expression(operand: Sequence[Token]) -> str:
    """The C++ expression of `"r"(expression)`."""
    opener = next(at for at, token in enumerate(operand) if token.is_mark("("))
    return flatten(operand[opener + 1 : closing(operand, opener)])


def _template(tokens: Sequence[Token], location: str) -> str:
    """The text of adjacent string literals."""
    pieces = []
    for token in tokens:
        if token.blank:
            continue
        if token.kind is not TokenKind.STRING:
            raise UnsupportedPtxError(
                f"inline PTX is put together by a macro: {token.text}", location=location
            )
        pieces.append(_literal_value(token.text))
    return "".join(pieces)


def _literal_value(literal: str) -> str:
    """What a string literal says; of the escapes, those that occur in PTX."""
    inside = literal[literal.index('"') + 1 : -1]
    if literal.startswith("R"):
        return inside[inside.index("(") + 1 : inside.rindex(")")]
    for escape, character in (("\\n", "\n"), ("\\t", "\t"), ("\\\n", ""), ("\\r", " ")):
        inside = inside.replace(escape, character)
    return inside


def _words(text: str) -> list[Token]:
    """PTX as tokens; the ones of C++ serve, and `%%` is how a template writes `%`."""
    return [token for token in tokenize(text.replace("%%", "%")) if not token.blank]


class _Reader:
    """Reads the instructions of one `asm` statement."""

    def __init__(self, operands: Sequence[str], location: str) -> None:
        self._operands = operands
        self._location = location
        self._registers: set[str] = set()

    def block(self, words: Sequence[Token]) -> Iterator[Call]:
        """The calls of a sequence of instructions and blocks."""
        at = 0
        while at < len(words):
            if words[at].is_mark(";"):
                at += 1
            elif words[at].is_mark("{"):
                end = closing(words, at)
                yield from self.block(words[at + 1 : end])
                at = end + 1
            else:
                ends = (i for i in range(at, len(words)) if words[i].is_mark(";"))
                end = next(ends, len(words))
                yield self._instruction(words[at:end])
                at = end + 1

    def _instruction(self, words: Sequence[Token]) -> Call:
        if words[0].is_mark("."):
            return self._declaration(words)
        guard = ""
        if words[0].is_mark("@"):
            negated = words[1].is_mark("!")
            (predicate,) = self._operand(words[1 + negated : 2 + negated])
            guard = ("!" if negated else "") + predicate
            words = words[2 + negated :]
        end = _mnemonic_end(words)
        mnemonic = "".join(word.text for word in words[:end])
        parts = [part for part in split(words[end:], ",") if part]
        operands = [value for part in parts for value in self._operand(part)]
        if "L2::cache_hint" in mnemonic:
            operands.pop()
        expression = row(mnemonic, len(operands))
        if expression is None:
            raise self._unsupported(
                f"the emulator has no model of the PTX instruction {mnemonic} "
                f"with {len(operands)} operands"
            )
        return Call(expression.format(*operands, all=", ".join(operands)), guard)

    def _declaration(self, words: Sequence[Token]) -> Call:
        """`.reg .pred p, q` as variables."""
        texts = [word.text for word in words]
        if texts[1:3] != ["reg", "."] or texts[3] not in TYPES or "<" in texts:
            raise self._unsupported(f"no model of this PTX directive: {' '.join(texts)}")
        names = [flatten(part).removeprefix("%") for part in split(words[4:], ",")]
        self._registers.update(names)
        return Call(f"{TYPES[texts[3]]} {', '.join(f'kwemu_reg_{name}' for name in names)}")

    def _operand(self, words: Sequence[Token]) -> list[str]:
        """An operand, or the operands of a vector, as C++ expressions."""
        match [word.text for word in words]:
            case ["%", index] if index.isdigit() and int(index) < len(self._operands):
                return [self._operands[int(index)]]
            case ["%", register, ".", axis] if register in INDEX_REGISTERS:
                return [f"{INDEX_REGISTERS[register]}.{axis}"]
            case ["%", register] if register in SPECIAL_REGISTERS:
                return [SPECIAL_REGISTERS[register]]
            case ["%", name] | [name] if name in self._registers:
                return [f"kwemu_reg_{name}"]
            case [number] if words[0].kind is TokenKind.NUMBER:
                return [_immediate(number)]
            case ["-", number] if words[1].kind is TokenKind.NUMBER:
                return [f"-{_immediate(number)}"]
            case ["!", *_]:
                return [f"!{value}" for value in self._operand(words[1:])]
            case ["[", *_, "+", offset, "]"]:
                (address,) = self._operand(words[1:-3])
                return [f"({_ADDRESS}({address}) + {offset})"]
            case ["[" | "{", *_, "]" | "}"]:
                parts = split(words[1:-1], ",")
                return [value for part in parts for value in self._operand(part)]
            case ["_"]:
                return ["::kwemu::ptx::SINK"]
            case texts if "|" in texts:
                return [value for part in split(words, "|") for value in self._operand(part)]
            case texts:
                raise self._unsupported(f"no model of the PTX operand {''.join(texts)}")

    def _unsupported(self, message: str) -> UnsupportedPtxError:
        return UnsupportedPtxError(message, location=self._location)


def _mnemonic_end(words: Sequence[Token]) -> int:
    """Index after the instruction's name: of `cp.async.bulk.tensor.3d` C++ makes a number of .3d"""
    end = 1
    while end < len(words):
        if words[end].kind is TokenKind.NUMBER and words[end].text.startswith("."):
            end += 1
        elif words[end].is_mark(".", "::") and end + 1 < len(words):
            end += 2
        else:
            break
    return end


def _immediate(number: str) -> str:
    """A PTX number: C's own, or the bits of a real number as in 0f3F800000."""
    match number[:2].lower():
        case "0f":
            return f"__builtin_bit_cast(float, 0x{number[2:]}u)"
        case "0d":
            return f"__builtin_bit_cast(double, 0x{number[2:]}ull)"
        case _:
            return number
