"""Inline PTX as calls of the emulator's C++ functions: a table of the instructions it knows.

    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from));
    ::kwemu::ptx::cp_async_cg_shared_global(to, from, 16);

One rule gives every call. The function is named as the instruction, with `_` for `.`, without cache
hints, `.sync` and `.aligned`; the types at its end become template arguments (`f32` -> `float`), and
so does a vector's `.v4`, by the count of its operands. The arguments are the operands in the order
of the instruction, results first, `{a, b}` as a and b, `[address]` as the address that the
constraint passed ("l": 64 bits, "r": the 32-bit handle of a shared variable); a special register is
a call of its name.

    ld.global.nc.L1::no_allocate.v2.f32 {%0, %1}, [%2];   ld_global<float>(x, y, address)
    fma.rn.f32 %0, %1, %2, %3;                            fma_rn<float>(d, a, b, c)
    mov.u32 %0, %laneid;                                  mov<unsigned int>(lane, laneid())

Several instructions in one statement are calls in order. Their `.reg` variables become local ones,
and a guard `@p` an `if`. There are no labels and no branches.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kernelwright.build.emulator.tokens import (
    Token,
    TokenKind,
    closing,
    flatten,
    line_breaks,
    split,
    tokenize,
)
from kernelwright.errors import ExitCode, KernelwrightError

NAMESPACE = "::kwemu::ptx::"


class UnsupportedPtxError(KernelwrightError):
    """Inline PTX with an instruction that the emulator has no model of."""

    exit_code = ExitCode.UNSUPPORTED
    next_step = "Use the CUDA intrinsic for it, or build this file on a machine with a GPU."


_TYPES = {
    "pred": "bool",
    "b8": "unsigned char",
    "u8": "unsigned char",
    "s8": "signed char",
    "b16": "unsigned short",
    "u16": "unsigned short",
    "s16": "short",
    "b32": "unsigned int",
    "u32": "unsigned int",
    "s32": "int",
    "b64": "unsigned long long",
    "u64": "unsigned long long",
    "s64": "long long",
    "f32": "float",
    "f64": "double",
    "f16": "::kwemu::ptx::f16",
    "bf16": "::kwemu::ptx::bf16",
    "f16x2": "::kwemu::ptx::f16x2",
    "bf16x2": "::kwemu::ptx::bf16x2",
    "tf32": "::kwemu::ptx::tf32",
}
"""A PTX type as the template argument that stands for it."""

_HINTS = frozenset(
    "nc ca cg cs lu cv wb wt weak volatile relaxed L1 L2 sync aligned uni cta gpu sys".split()
)
"""Modifiers that say how fast or how widely visible, not what is computed."""

_SPECIAL_REGISTERS = frozenset(
    "laneid warpid nwarpid smid nsmid gridid clock clock_hi clock64 globaltimer globaltimer_lo "
    "lanemask_eq lanemask_le lanemask_lt lanemask_ge lanemask_gt dynamic_smem_size "
    "total_smem_size".split()
)
_INDEX_REGISTERS = {
    "tid": "threadIdx",
    "ntid": "blockDim",
    "ctaid": "blockIdx",
    "nctaid": "gridDim",
}

_UNTYPED = frozenset(
    "cp.async.cg.shared.global cp.async.ca.shared.global cp.async.commit_group "
    "cp.async.wait_group cp.async.wait_all "
    "prefetch.global.L1 prefetch.global.L2 prefetch.L1 prefetch.L2 prefetchu.L1 "
    "bar.sync bar.arrive barrier.sync barrier.arrive bar.warp.sync barrier.cta.sync "
    "membar.cta membar.gl membar.sys fence.acq_rel.cta fence.acq_rel.gpu fence.acq_rel.sys "
    "fence.sc.cta fence.sc.gpu fence.sc.sys fence.proxy.async "
    "trap exit brkpt".split()
)
_TYPED = frozenset(
    "ld ld.global ld.shared ld.const ld.acquire ld.acquire.global st st.global st.shared "
    "st.release st.release.global mov cvta.to.shared cvta.to.global "
    "cvta.shared cvta.global activemask match.any "
    "add sub mul neg abs min max add.rn sub.rn mul.rn add.ftz mul.ftz fma.rn fma.rn.ftz "
    "add.rn.ftz mul.rn.ftz fma.rn.relu max.NaN min.NaN max.ftz min.ftz "
    "div.rn div.full div.approx div.approx.ftz rcp.rn rcp.approx rcp.approx.ftz "
    "sqrt.rn sqrt.approx sqrt.approx.ftz rsqrt.approx rsqrt.approx.ftz "
    "ex2.approx ex2.approx.ftz lg2.approx lg2.approx.ftz sin.approx cos.approx tanh.approx "
    "mul.lo mul.hi mul.wide mad.lo mad.hi mad.wide and or xor not shl shr "
    "shf.l.wrap shf.l.clamp shf.r.wrap shf.r.clamp lop3 prmt bfe bfi brev popc clz bfind "
    "selp setp.eq setp.ne setp.lt setp.le setp.gt setp.ge setp.lo setp.ls setp.hi setp.hs "
    "cvt cvt.rn cvt.rz cvt.rm cvt.rp cvt.rna cvt.rni cvt.rzi cvt.rmi cvt.rpi cvt.rn.relu cvt.sat "
    "shfl.idx shfl.up shfl.down shfl.bfly vote.any vote.all vote.uni vote.ballot "
    "redux.add redux.min redux.max redux.and redux.or redux.xor "
    "red.global.add red.shared.add atom.global.add atom.shared.add atom.add red.add "
    "atom.global.cas atom.global.exch atom.shared.cas atom.shared.exch "
    "ldmatrix.m8n8.x1.shared ldmatrix.m8n8.x2.shared ldmatrix.m8n8.x4.shared "
    "ldmatrix.m8n8.x1.trans.shared ldmatrix.m8n8.x2.trans.shared ldmatrix.m8n8.x4.trans.shared "
    "mma.m16n8k4.row.col mma.m16n8k8.row.col mma.m16n8k16.row.col mma.m16n8k32.row.col".split()
)
"""Instructions whose types, at the end of the name, are template arguments."""


@dataclass(frozen=True, slots=True)
class Call:
    """One instruction as a call, and the predicate that guards it."""

    text: str
    guard: str = ""

    def __str__(self) -> str:
        return f"if ({self.guard}) {self.text}" if self.guard else self.text


def function(mnemonic: str) -> str | None:
    """The C++ function of an instruction, with its template arguments; None if there is none.

    >>> function("ld.global.nc.v4.f32")
    'ld_global<float>'
    """
    parts = [part.removesuffix("::cta") for part in mnemonic.split(".")]
    parts = [part for part in parts if "::" not in part and part != "aligned"]
    if ".".join(parts) in _UNTYPED:
        return "_".join(parts)
    types: list[str] = []
    while len(parts) > 1 and parts[-1] in _TYPES:
        types.insert(0, _TYPES[parts.pop()])
    name = [part for part in parts if part not in _HINTS and part not in ("v2", "v4", "v8")]
    if ".".join(name) in _UNTYPED and not types:
        return "_".join(name)
    if ".".join(name) not in _TYPED or not types:
        return None
    return f"{'_'.join(name)}<{', '.join(types)}>"


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
        case [Call(text=call, guard="")] if call.endswith(")"):
            return f"{call[:-1]}{breaks})"
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
            guard = ("!" if negated else "") + self._operand(words[1 + negated : 2 + negated])
            words = words[2 + negated :]
        end = 1
        while end + 1 < len(words) and words[end].is_mark(".", "::"):
            end += 2
        mnemonic = "".join(word.text for word in words[:end])
        called = function(mnemonic)
        if called is None:
            raise self._unsupported(f"the emulator has no model of the PTX instruction {mnemonic}")
        operands = [self._operand(part) for part in split(words[end:], ",") if part]
        if "L2::cache_hint" in mnemonic:
            operands.pop()
        return Call(f"{NAMESPACE}{called}({', '.join(operands)})", guard)

    def _declaration(self, words: Sequence[Token]) -> Call:
        """`.reg .pred p, q` as variables."""
        texts = [word.text for word in words]
        if texts[1:3] != ["reg", "."] or texts[3] not in _TYPES or "<" in texts:
            raise self._unsupported(f"no model of this PTX directive: {' '.join(texts)}")
        names = [flatten(part).removeprefix("%") for part in split(words[4:], ",")]
        self._registers.update(names)
        return Call(f"{_TYPES[texts[3]]} {', '.join(f'kwemu_{name}' for name in names)}")

    def _operand(self, words: Sequence[Token]) -> str:
        """An operand, or the operands of a vector, as C++ arguments."""
        match [word.text for word in words]:
            case ["%", index] if index.isdigit() and int(index) < len(self._operands):
                return self._operands[int(index)]
            case ["%", register, ".", axis] if register in _INDEX_REGISTERS:
                return f"{_INDEX_REGISTERS[register]}.{axis}"
            case ["%", register] if register in _SPECIAL_REGISTERS:
                return f"{NAMESPACE}{register}()"
            case ["%", name] | [name] if name in self._registers:
                return f"kwemu_{name}"
            case [number] if words[0].kind is TokenKind.NUMBER:
                return _immediate(number)
            case ["-", number] if words[1].kind is TokenKind.NUMBER:
                return f"-{_immediate(number)}"
            case ["!", *_]:
                return f"!{self._operand(words[1:])}"
            case ["[", *_, "+", offset, "]"]:
                return f"{NAMESPACE}offset({self._operand(words[1:-3])}, {offset})"
            case ["[", *_, "]"]:
                return self._operand(words[1:-1])
            case ["{", *_, "}"]:
                return ", ".join(self._operand(part) for part in split(words[1:-1], ","))
            case texts if "|" in texts:
                bar = texts.index("|")
                return f"{self._operand(words[:bar])}, {self._operand(words[bar + 1 :])}"
            case texts:
                raise self._unsupported(f"no model of the PTX operand {''.join(texts)}")

    def _unsupported(self, message: str) -> UnsupportedPtxError:
        return UnsupportedPtxError(message, location=self._location)


def _immediate(number: str) -> str:
    """A PTX number: C's own, or the bits of a real number as in 0f3F800000."""
    match number[:2].lower():
        case "0f":
            return f"__builtin_bit_cast(float, 0x{number[2:]}u)"
        case "0d":
            return f"__builtin_bit_cast(double, 0x{number[2:]}ull)"
        case _:
            return number
