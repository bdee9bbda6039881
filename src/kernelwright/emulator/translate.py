"""CUDA C++ as host C++20 that compiles against the emulator's headers.

    translate("k<<<grid, 256>>>(x);", "scale.cu")
    #line 1 "scale.cu"
    ::kwemu::launch("k", __FILE__, 1, ::kwemu::config(grid, 256), [&](...) { k(...); }, x);

Three constructs are no C++ and no macro could make them so: launches, shared memory and inline PTX.
PyTorch's names for the GPU become those for the CPU, because the tensors are in host memory. The
rest of the device language is left to the headers, and every line break stays where it was, so that
what the compiler and the checks say about line 12 is about line 12 of the user's text.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import lru_cache

from kernelwright.emulator.declarations import (
    declarator,
    statement_end,
    statement_start,
    without_alignment,
)
from kernelwright.emulator.ptx import translate_asm
from kernelwright.emulator.tokens import (
    Token,
    TokenKind,
    closing,
    flatten,
    following,
    join,
    line_breaks,
    opening,
    opening_angle,
    preceding,
    split,
    token_after,
    token_before,
    tokenize,
)
from kernelwright.errors import ExitCode, KernelwrightError


class UnsupportedCudaError(KernelwrightError):
    """CUDA C++ that the emulator cannot turn into C++."""

    exit_code = ExitCode.UNSUPPORTED
    next_step = "Write it in the usual form, or build this file on a machine with a GPU."


@lru_cache(maxsize=128)  # a header is translated for every unit that includes it
def translate(source: str, name: str) -> str:
    """The text as C++20: one line `#line 1 "name"`, then a line for each line of `source`.

    Raises:
        UnsupportedCudaError: a launch or a shared variable in a form that is not understood.
        UnsupportedPtxError: inline PTX with an instruction that the emulator has no model of.
    """
    quoted = name.replace("\\", "\\\\").replace('"', '\\"')
    unit = _Text(name, tuple(_fold(tokenize(source), name)))
    return f'#line 1 "{quoted}"\n{_rewrite(unit)}'


@dataclass(frozen=True, slots=True)
class _Text:
    """A stretch of code in which brackets match: the unit, or what a macro stands for."""

    file: str
    tokens: tuple[Token, ...]
    parameters: frozenset[str] | None = None
    """Parameters of the macro; None where this is no macro."""

    def line(self, at: int) -> str:
        """The line of a token as C++. A macro is where it is used; elsewhere a number is exact even
        inside a macro's arguments, where `__LINE__` is the line of the closing parenthesis."""
        return str(self.tokens[at].line) if self.parameters is None else "__LINE__"

    def rewritten(self, tokens: Sequence[Token]) -> str:
        """A part of the text, translated as a text of its own."""
        return _rewrite(replace(self, tokens=tuple(tokens)))

    def quote(self, name: str) -> str:
        """A name as a string literal, of a macro's argument if it is a parameter."""
        return f"#{name}" if name in (self.parameters or ()) else f'"{name}"'

    def error(self, message: str, at: int) -> UnsupportedCudaError:
        return UnsupportedCudaError(message, location=f"{self.file}:{self.tokens[at].line}")


@dataclass(frozen=True, slots=True)
class _Edit:
    """Tokens `start` to `end`, exclusive, become `text`."""

    start: int
    end: int
    text: str


_Places = Mapping[str, Sequence[int]]
"""Indices of the tokens of a text, by the text: few of them begin an edit."""


def _rewrite(text: _Text) -> str:
    finders = (_launches, _shared_variables, _dynamic_uses, _asm_statements, _inlining, _devices)
    places = _places(text.tokens)
    edits = [edit for finder in finders for edit in finder(text, places)]
    pieces: list[str] = []
    done = 0
    for edit in sorted(edits, key=lambda edit: edit.start):
        if edit.start < done:
            continue  # inside a launch, which has translated its arguments itself
        pieces += [join(text.tokens[done : edit.start]), edit.text]
        done = edit.end
    return "".join([*pieces, join(text.tokens[done:])])


def _places(tokens: Sequence[Token]) -> _Places:
    places: defaultdict[str, list[int]] = defaultdict(list)
    for at, token in enumerate(tokens):
        places[token.text].append(at)
    return places


def _named(text: _Text, places: _Places, *names: str) -> list[int]:
    """Indices of the identifiers with these names, in order."""
    indices = sorted(at for name in names for at in places.get(name, ()))
    return [at for at in indices if text.tokens[at].is_name()]


# ---- preprocessor lines ----


def _fold(tokens: Sequence[Token], file: str) -> Iterator[Token]:
    """The tokens with each preprocessor line as one; what macros stand for is translated."""
    at = 0
    while at < len(tokens):
        if tokens[at].kind is not TokenKind.DIRECTIVE:
            yield tokens[at]
            at += 1
            continue
        ends = (i for i in range(at, len(tokens)) if tokens[i].kind is TokenKind.LINE_END)
        end = next(ends, len(tokens))
        yield Token(TokenKind.DIRECTIVE, _directive(tokens[at:end], file), tokens[at].line)
        at = end


def _directive(line: Sequence[Token], file: str) -> str:
    keyword = following(line, 1)
    name = following(line, keyword + 1)
    if not (name < len(line) and line[keyword].is_name("define")):
        return join(line)
    body, parameters = name + 1, frozenset[str]()
    if body < len(line) and line[body].is_mark("("):
        end = closing(line, body)
        parameters = frozenset(t.text for t in line[body:end] if t.is_name())
        body = end + 1
    return join(line[:body]) + _rewrite(_Text(file, tuple(line[body:]), parameters))


# ---- launches ----

_STATEMENT_WORDS = frozenset(
    {"return", "else", "do", "if", "while", "for", "switch", "case", "and", "or", "not", "throw"}
)
"""Words after which an expression begins, though they look like a function's name."""


def _launches(text: _Text, places: _Places) -> Iterator[_Edit]:
    tokens = text.tokens
    end = 0
    for at in places.get("<", ()):
        if at < end or not _is_triple(tokens, at, "<"):
            continue
        if not token_before(tokens, at).is_name("operator"):
            launch = _launch(text, at)
            end = launch.end
            yield launch


def _launch(text: _Text, at: int) -> _Edit:
    """The launch whose `<<<` is at `at`."""
    tokens = text.tokens
    last = preceding(tokens, at - 1)
    first = _callee(tokens, last)
    close = _configuration_end(tokens, at + 3)
    if first < 0 or close < 0:
        raise text.error("a launch is not of the form kernel<<<grid, block>>>(arguments)", at)
    opener = following(tokens, close + 3)
    end = closing(tokens, opener)
    callee = join(tokens[first : last + 1])
    configuration = join(tokens[last + 1 : at]) + text.rewritten(tokens[at + 3 : close])
    arguments = _arguments(tokens[opener + 1 : end])
    return _Edit(
        first,
        end + 1,
        f"::kwemu::launch({_kernel_name(text, tokens[first : last + 1])}, __FILE__, "
        f"{text.line(first)}, ::kwemu::config({configuration}), [&](auto... kwemu_args) "
        f"KWEMU_UNCHECKED {{ {callee}(kwemu_args...); }}{join(tokens[close + 3 : opener])}"
        f"{_separator(arguments)}{text.rewritten(arguments)})",
    )


def _is_triple(tokens: Sequence[Token], at: int, mark: str) -> bool:
    return at + 3 <= len(tokens) and all(token.is_mark(mark) for token in tokens[at : at + 3])


def _callee(tokens: Sequence[Token], last: int) -> int:
    """Where the expression that ends at `last` begins: `a.b<T>`, `ns::k`, `(*f)`, `table[i]`."""
    at = _operand(tokens, last)
    while at > 0:
        before = preceding(tokens, at - 1)
        if before >= 0 and tokens[before].is_name("template"):
            before = preceding(tokens, before - 1)
        if before < 0 or not tokens[before].is_mark("::", ".", "->", "##"):
            return at
        inner = preceding(tokens, before - 1)
        if inner < 0 or not (_is_word(tokens[inner]) or tokens[inner].is_mark(">", ")", "]")):
            return before
        at = _operand(tokens, inner)
    return at


def _operand(tokens: Sequence[Token], last: int) -> int:
    """Where the name, template-id, call, subscript or parenthesis that ends at `last` begins."""
    at = last
    while at >= 0 and not tokens[at].is_name():
        if tokens[at].is_mark(">"):
            at = preceding(tokens, opening_angle(tokens, at) - 1)
            continue
        if not tokens[at].is_mark(")", "]"):
            return -1
        opener = opening(tokens, at)
        at = preceding(tokens, opener - 1)
        if at < 0 or not (_is_word(tokens[at]) or tokens[at].is_mark(">", ")", "]")):
            return opener
    return at


def _is_word(token: Token) -> bool:
    return token.is_name() and token.text not in _STATEMENT_WORDS


def _configuration_end(tokens: Sequence[Token], start: int) -> int:
    """Index of the `>>>` that ends the configuration from `start`, or -1.

    In `k<<<A<B<C>>>::n, N<T>>>>(x)` it is the first before a `(` that leaves no `<` open.
    """
    first, open_angles, at = -1, 0, start
    while 0 <= at < len(tokens) and not tokens[at].is_mark(";", ")", "]", "}"):
        if tokens[at].is_mark("(", "[", "{"):
            at = closing(tokens, at)
            if at < 0:
                return first
        elif _is_triple(tokens, at, ">") and _opens(tokens, at + 3):
            if open_angles == 0:
                return at
            first = at if first < 0 else first
        open_angles += tokens[at].is_mark("<") - tokens[at].is_mark(">")
        at += 1
    return first


def _opens(tokens: Sequence[Token], at: int) -> bool:
    """Whether the next thing is a parenthesis that is closed."""
    at = following(tokens, at)
    return at < len(tokens) and tokens[at].is_mark("(") and closing(tokens, at) >= 0


def _kernel_name(text: _Text, callee: Sequence[Token]) -> str:
    """The callee without its template arguments, as a string literal."""
    if callee[-1].is_mark(">"):
        callee = callee[: opening_angle(callee, len(callee) - 1)]
    words = (t for t in callee if not (t.blank or t.is_name("template")))
    return text.quote(join(words).replace('"', '\\"'))


def _separator(arguments: Sequence[Token]) -> str:
    match [token.text for token in arguments if not token.blank]:
        case []:
            return ""
        case ["__VA_ARGS__"]:
            return "__VA_OPT__(,) "
        case _:
            return ", "


def _arguments(tokens: Sequence[Token]) -> tuple[Token, ...]:
    """The arguments; NULL as nullptr, which is a null pointer also after a copy."""
    return tuple(t._replace(text="nullptr") if t.is_name("NULL") else t for t in tokens)


# ---- shared memory ----


class _Scope(Enum):
    NAMESPACE = auto()
    FUNCTION = auto()


_STORAGE = ("__shared__", "static", "extern")


def _shared_variables(text: _Text, places: _Places) -> Iterator[_Edit]:
    tokens, end = text.tokens, 0
    for at in _named(text, places, "__shared__"):
        if at < end:
            continue
        start = statement_start(tokens, at)
        end = statement_end(tokens, at)
        statement = tokens[start:end]
        declaration = [token for token in statement if not token.is_name(*_STORAGE)]
        if any(token.is_name("extern") for token in statement):
            replacement = _dynamic(text, start, declaration)
        elif _scope(text, at) is _Scope.NAMESPACE:
            raise text.error("a __shared__ variable outside of a function", at)
        else:
            replacement = _static(text, start, declaration)
        yield _Edit(start, end, replacement)


def _scope(text: _Text, at: int) -> _Scope:
    """Whether all braces around the token are a namespace's or `extern "C"`'s."""
    if text.parameters is not None:
        return _Scope.FUNCTION
    depth = 0
    for brace in range(at, -1, -1):
        depth += text.tokens[brace].is_mark("{") - text.tokens[brace].is_mark("}")
        if depth > 0:
            if not _is_namespace(text.tokens, brace):
                return _Scope.FUNCTION
            depth = 0
    return _Scope.NAMESPACE


def _is_namespace(tokens: Sequence[Token], brace: int) -> bool:
    at = brace - 1
    while at >= 0 and not tokens[at].is_mark(";", "{", "}"):
        if tokens[at].is_name("namespace"):
            return True
        at -= 1
    return token_before(tokens, brace).kind is TokenKind.STRING


def _static(text: _Text, start: int, declaration: Sequence[Token]) -> str:
    """`T a[4], b` as a struct of the same members, and references to where the block has them."""
    names = _declared_names(text, start, declaration)
    holder = _glued(text, "kwemu_of_", names[0])
    parts = [f"struct {holder} {{ {join(declaration).rstrip(' ')}; }}"]
    for name in names:
        site = _glued(text, "kwemu_site_", name)
        place = f"{{{text.quote(name)}, {text.line(start)}}}"
        parts += [
            f"static constinit ::kwemu::SharedSite {site}{place}",
            f"auto& {name} = *static_cast<decltype({holder}::{name})*>("
            f"kwemu_shared(&{site}, sizeof({holder}::{name}), alignof({holder})))",
        ]
    return "; ".join(parts)


def _dynamic(text: _Text, start: int, declaration: Sequence[Token]) -> str:
    """`T s[][4]` as a pointer to the block's dynamic shared memory, or what converts to one."""
    names = _declared_names(text, start, declaration)
    plain = without_alignment(declaration)
    opener = next((at for at, token in enumerate(plain) if token.is_mark("[")), -1)
    if len(names) > 1 or opener < 0:
        raise text.error("an `extern __shared__` declaration that is not of one array", start)
    name = preceding(plain, opener - 1)
    rest = flatten(plain[closing(plain, opener) + 1 :])
    element = f"{flatten(plain[:name])}{rest}"
    breaks = line_breaks(declaration)
    if _scope(text, start) is _Scope.NAMESPACE:
        return f"static constexpr ::kwemu::DynamicShared<{element}> {names[0]}{{}}{breaks}"
    return f"auto* {names[0]} = ::kwemu::dynamic_shared<{element}>(){breaks}"


def _dynamic_uses(text: _Text, places: _Places) -> Iterator[_Edit]:
    """`(name)`, as in `reinterpret_cast<T*>(name)`, as `(+name)`, which makes a pointer of what
    stands for a dynamic array at namespace scope, as it does of an array."""
    tokens = text.tokens
    declared: dict[str, int] = {}
    for at in _named(text, places, "__shared__"):
        if _scope(text, at) is _Scope.NAMESPACE:
            end = statement_end(tokens, at)
            for name in _declared_names(text, at, tokens[at + 1 : end]):
                declared.setdefault(name, at)
    for at in _named(text, places, *declared):
        if at > declared[tokens[at].text]:
            ends = token_after(tokens, at).is_mark(")", ",", ";")
            if ends and token_before(tokens, at).is_mark("(", ")", ",", "="):
                yield _Edit(at, at + 1, f"+{tokens[at].text}")


def _declared_names(text: _Text, start: int, declaration: Sequence[Token]) -> list[str]:
    """The variables of a declaration; in a macro a name can be put together with `##`."""
    names = [declarator(part) for part in split(without_alignment(declaration), ",")]
    if not all(names):
        raise text.error("a __shared__ declaration in a form that is not understood", start)
    return names


def _glued(text: _Text, prefix: str, name: str) -> str:
    """A name that begins with `prefix`, also where `name` is put in by a macro."""
    is_parameter = name in (text.parameters or ())
    return f"{prefix}##{name}" if is_parameter else f"{prefix}{name}"


# ---- inline PTX ----


def _asm_statements(text: _Text, places: _Places) -> Iterator[_Edit]:
    tokens = text.tokens
    for at in _named(text, places, "asm", "__asm__", "__asm"):
        opener = following(tokens, at + 1)
        while opener < len(tokens) and tokens[opener].is_name("volatile", "__volatile__"):
            opener = following(tokens, opener + 1)
        if opener < len(tokens) and tokens[opener].is_mark("("):
            end = closing(tokens, opener) + 1
            yield _Edit(at, end, translate_asm(tokens[at:end], text.file))


# ---- words of the device language that no macro can stand for ----


def _inlining(text: _Text, places: _Places) -> Iterator[_Edit]:
    """`__noinline__` where it is no attribute yet, and `inline` beside `__forceinline__`."""
    tokens = text.tokens
    for at in _named(text, places, "__cluster_dims__", "__noinline__", "__forceinline__"):
        if tokens[at].is_name("__cluster_dims__"):
            raise text.error("__cluster_dims__: give the launch its clusters instead", at)
        if tokens[at].is_name("__noinline__"):
            if not token_before(tokens, at).is_mark("(", ","):
                yield _Edit(at, at + 1, "__attribute__((noinline))")
        elif tokens[at].is_name("__forceinline__"):
            for other in _specifiers_around(tokens, at):
                if tokens[other].is_name("inline", "__inline__", "__inline"):
                    yield _Edit(other, other + 1, "")


def _specifiers_around(tokens: Sequence[Token], at: int) -> Iterator[int]:
    """Indices of the names on both sides that nothing but blanks parts from the one at `at`."""
    before = preceding(tokens, at - 1)
    while before >= 0 and tokens[before].is_name():
        yield before
        before = preceding(tokens, before - 1)
    after = following(tokens, at + 1)
    while after < len(tokens) and tokens[after].is_name():
        yield after
        after = following(tokens, after + 1)


# ---- names for the GPU in host code ----

_CPU_NAMES = {"is_cuda": "is_cpu", "kCUDA": "kCPU"}
"""Names that mean the GPU to PyTorch, and what stands for them where tensors are in host memory."""
_CPU_ENUMERATORS = {"CUDA": "CPU", "AutogradCUDA": "AutogradCPU"}
"""Enumerators of DeviceType and DispatchKey: after `::`, or as the key of TORCH_LIBRARY_IMPL."""


def _devices(text: _Text, places: _Places) -> Iterator[_Edit]:
    tokens = text.tokens
    for at in _named(text, places, *_CPU_NAMES, *_CPU_ENUMERATORS):
        if tokens[at].is_name(*_CPU_NAMES):
            yield _Edit(at, at + 1, _CPU_NAMES[tokens[at].text])
            yield from _deprecated_type(tokens, at)
        elif tokens[at].is_name(*_CPU_ENUMERATORS):
            before = token_before(tokens, at)
            is_key = before.is_mark(",") and token_after(tokens, at).is_mark(",")
            if before.is_mark("::") or is_key:
                yield _Edit(at, at + 1, _CPU_ENUMERATORS[tokens[at].text])


def _deprecated_type(tokens: Sequence[Token], at: int) -> Iterator[_Edit]:
    """`x.type().is_cuda()` as `x.device()...`: what `type()` gives cannot be asked for the CPU."""
    places = [at]
    while len(places) < 5 and places[-1] > 0:
        places.append(preceding(tokens, places[-1] - 1))
    if [tokens[place].text for place in places[1:]] == [".", ")", "(", "type"]:
        yield _Edit(places[-1], places[-1] + 1, "device")
