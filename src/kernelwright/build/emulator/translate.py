"""CUDA C++ to the host C++ that the emulator runs, line for line.

    translated = translate(source)          # compile with -I of include/, link with no CUDA

What is rewritten (the other side of include/kwemu/abi.h); all else stays as it is:

- `kernel<T><<<grid, block, bytes, stream>>>(a, b)`  a call of kwemu::launch
- `__shared__` declarations                          a request to the running block
- `asm("...")`                                       a call of kwemu::ptx (see ptx.py)
- `is_cuda()`, `kCUDA`, `DeviceType::CUDA`           their CPU sisters: tensors live in host memory

Bodies of macros are translated like code. Every line of the result has the number of the line that
it came from.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from kernelwright.build.emulator import ptx
from kernelwright.build.emulator.tokens import (
    Token,
    TokenKind,
    closing,
    closing_angle,
    flatten,
    following,
    join,
    line_breaks,
    opening,
    opening_angle,
    preceding,
    split,
    tokenize,
)

_CPU_SPELLING = {
    "is_cuda": "is_cpu",
    "kCUDA": "kCPU",
}
"""Names that mean the GPU to PyTorch, and what stands for them here."""
_CPU_AFTER_SCOPE = {"CUDA": "CPU", "AutogradCUDA": "AutogradCPU"}
"""The same for enumerators, which count only after `::` or as the key of a TORCH_LIBRARY_IMPL."""
_SPECIFIERS = frozenset({"extern", "static", "volatile", "const", "inline", "__shared__"})
_ATTRIBUTES = frozenset({"__align__", "alignas", "__builtin_align__"})
_BUILTIN_TYPES = frozenset(
    ["void", "bool", "char", "short", "int", "long", "float", "double", "signed", "unsigned", "auto", "wchar_t", "char8_t", "char16_t", "char32_t", "__int128"]
)
_ELABORATION = frozenset({"struct", "class", "union", "enum", "typename"})


def translate(source: str) -> str:
    """Host C++ with as many lines as `source`."""
    tokens = tokenize(source)
    return join(_Translator(tokens).run())


@dataclass(slots=True)
class _Translator:
    """One pass over a sequence of tokens: a file, the body of a macro, or a part of either."""

    tokens: Sequence[Token]
    scopes: list[str] = field(default_factory=list)
    """For each open brace: "namespace" or "code"."""
    in_code: bool = False
    """True for macro bodies and parts of functions, where nothing is at namespace scope."""
    output: list[Token] = field(default_factory=list)
    statement: int = 0
    """Length of `output` where the current statement begins."""

    def run(self) -> list[Token]:
        at = 0
        while at < len(self.tokens):
            at = self._step(at)
        return self.output

    def _step(self, at: int) -> int:
        """Translate what begins at `at`; returns where the rest begins."""
        token = self.tokens[at]
        if token.kind is TokenKind.DIRECTIVE:
            return self._directive(at)
        if token.is_mark("<") and self._launch_configuration(at) is not None:
            return self._launch(at)
        if token.is_name("__shared__"):
            return self._shared(at)
        if token.is_name("asm", "__asm__", "__asm"):
            return self._assembly(at)
        if token.kind is TokenKind.NAME:
            self.output.append(_respell(self.tokens, at))
            return at + 1
        self.output.append(token)
        if token.is_mark("{", "}", ";"):
            self._scope(token)
        return at + 1

    def _scope(self, token: Token) -> None:
        if token.text == "{":
            head = self.output[self.statement :]
            linkage = [t for t in head if not t.blank][:-1]
            opens_namespace = any(t.is_name("namespace") for t in linkage) or (
                len(linkage) == 2 and linkage[0].is_name("extern")
            )
            self.scopes.append("namespace" if opens_namespace else "code")
        elif token.text == "}" and self.scopes:
            self.scopes.pop()
        self.statement = len(self.output)

    def _at_namespace_scope(self) -> bool:
        return not self.in_code and "code" not in self.scopes

    def _part(self, tokens: Sequence[Token]) -> list[Token]:
        """A part of a function, translated."""
        return _Translator(tokens, in_code=True).run()

    def _emit(self, text: str, line: int) -> None:
        self.output.append(Token(TokenKind.PUNCTUATION, text, line))

    def _directive(self, at: int) -> int:
        end = at
        while end < len(self.tokens) and self.tokens[end].kind is not TokenKind.LINE_END:
            end += 1
        line = self.tokens[at:end]
        name = following(line, 1)
        if name < len(line) and line[name].is_name("define"):
            body = _macro_body(line, following(line, name + 1))
            self.output += [*line[:body], *self._part(line[body:])]
        else:
            self.output += line
        self.statement = len(self.output)
        return end

    def _launch_configuration(self, at: int) -> tuple[int, int] | None:
        """For `<<<` at `at`: the indices of the `>` that ends it and of the `(` after it."""
        marks = self.tokens[at : at + 3]
        before = preceding(self.tokens, at - 1)
        if len(marks) < 3 or not all(mark.is_mark("<") for mark in marks):
            return None
        if before < 0 or self.tokens[before].is_name("operator"):
            return None
        inner = at + 3
        while inner < len(self.tokens):
            if self.tokens[inner].is_mark("(", "[", "{"):
                inner = closing(self.tokens, inner)
                if inner < 0:
                    return None
            elif all(t.is_mark(">") for t in self.tokens[inner : inner + 3]):
                arguments = following(self.tokens, inner + 3)
                if arguments < len(self.tokens) and self.tokens[arguments].is_mark("("):
                    return inner, arguments
            elif self.tokens[inner].is_mark(";", ")", "}"):
                return None
            inner += 1
        return None

    def _launch(self, at: int) -> int:
        configuration = self._launch_configuration(at)
        assert configuration is not None
        end_of_configuration, arguments = configuration
        end = closing(self.tokens, arguments)
        end = len(self.tokens) if end < 0 else end
        begin = _postfix_expression(self.output, len(self.output))
        kernel = self.output[begin:]
        del self.output[begin:]
        blanks = self.tokens[end_of_configuration + 3 : arguments]
        name = flatten(kernel)
        shown = name.replace("\\", "\\\\").replace('"', '\\"')
        line = self.tokens[at].line
        self._emit(
            f'::kwemu::launch("{shown}", __FILE__, __LINE__, ::kwemu::config('
            + line_breaks(kernel),
            line,
        )
        self.output += self._part(self.tokens[at + 3 : end_of_configuration])
        self._emit(
            f"), [&](auto... kwemu_args) {{ {name}(kwemu_args...); }}" + line_breaks(blanks), line
        )
        passed = self._part(self.tokens[arguments + 1 : end])
        if any(not token.blank for token in passed):
            self._emit(", ", line)
        self.output += passed
        return end

    def _shared(self, at: int) -> int:
        begin = _start_of_specifiers(self.output)
        end = at
        while end < len(self.tokens) and not self.tokens[end].is_mark(";"):
            end += 1
        if end == len(self.tokens):
            # The semicolon comes after the macro that this is the body of.
            end = preceding(self.tokens, end - 1) + 1
        declaration = [*self.output[begin:], *self.tokens[at:end]]
        if self._at_namespace_scope():
            text = _namespace_scope_declaration(declaration)
        else:
            text = _local_declaration(declaration)
        del self.output[begin:]
        self._emit(text + line_breaks(declaration), self.tokens[at].line)
        return end

    def _assembly(self, at: int) -> int:
        opener = following(self.tokens, at + 1)
        while opener < len(self.tokens) and self.tokens[opener].is_name(
            "volatile", "__volatile__", "inline", "goto"
        ):
            opener = following(self.tokens, opener + 1)
        if opener == len(self.tokens) or not self.tokens[opener].is_mark("("):
            self.output.append(self.tokens[at])
            return at + 1
        end = closing(self.tokens, opener)
        inside = self.tokens[opener + 1 : end]
        self._emit(
            ptx.call(inside) + line_breaks(self.tokens[at : end + 1]), self.tokens[at].line
        )
        return end + 1


def _respell(tokens: Sequence[Token], at: int) -> Token:
    token = tokens[at]
    spelling = _CPU_SPELLING.get(token.text)
    if spelling is None and token.text in _CPU_AFTER_SCOPE:
        before = preceding(tokens, at - 1)
        after = following(tokens, at + 1)
        scoped = before >= 0 and tokens[before].is_mark("::")
        listed = (
            before >= 0
            and tokens[before].is_mark(",")
            and after < len(tokens)
            and tokens[after].is_mark(",")
        )
        spelling = _CPU_AFTER_SCOPE[token.text] if scoped or listed else None
    return token if spelling is None else Token(token.kind, spelling, token.line)


def _macro_body(line: Sequence[Token], name: int) -> int:
    """Where the replacement of the macro named at `name` begins."""
    parameters = name + 1
    # Only a bracket that touches the name begins a parameter list.
    if parameters < len(line) and line[parameters].is_mark("("):
        return closing(line, parameters) + 1
    return min(parameters, len(line))


def _postfix_expression(tokens: Sequence[Token], end: int) -> int:
    """Where the name or expression that ends before `end` begins: `ns::f<T>`, `table[i]`, `(*f)`."""
    begin = end
    at = preceding(tokens, end - 1)
    while at >= 0:
        if tokens[at].is_mark(">"):
            at = preceding(tokens, opening_angle(tokens, at) - 1)
            continue
        if tokens[at].is_mark("]", ")"):
            begin = opening(tokens, at)
            at = preceding(tokens, begin - 1)
            if at >= 0 and (tokens[at].is_mark("]", ")") or _is_operand(tokens[at])):
                continue
        elif tokens[at].kind is TokenKind.NAME:
            begin = at
            at = preceding(tokens, at - 1)
            if at >= 0 and tokens[at].is_name("template"):
                begin = at
                at = preceding(tokens, at - 1)
        if at < 0 or not tokens[at].is_mark("::", ".", "->"):
            break
        begin = at
        qualifier = preceding(tokens, at - 1)
        if qualifier < 0 or not (
            _is_operand(tokens[qualifier]) or tokens[qualifier].is_mark(">", "]", ")")
        ):
            break
        at = qualifier
    return begin


def _is_operand(token: Token) -> bool:
    return token.kind is TokenKind.NAME and token.text not in ("return", "else", "do", "case")


def _start_of_specifiers(tokens: Sequence[Token]) -> int:
    """Where the declaration begins whose specifiers are the last of `tokens`."""
    begin = len(tokens)
    while True:
        at = preceding(tokens, begin - 1)
        if at >= 0 and tokens[at].is_mark(")"):
            at = preceding(tokens, opening(tokens, at) - 1)
            if at < 0 or tokens[at].text not in _ATTRIBUTES:
                return begin
        elif at < 0 or not (tokens[at].text in _SPECIFIERS or _is_type_word(tokens[at])):
            return begin
        begin = at


def _is_type_word(token: Token) -> bool:
    """Whether a declaration may begin with it although `__shared__` comes later: `float __shared__ x`."""
    return token.text in _BUILTIN_TYPES


@dataclass(frozen=True, slots=True, kw_only=True)
class _Declaration:
    """A `__shared__` declaration, taken apart."""

    type: str
    """With const and volatile."""
    alignment: str
    """Specifiers that say how it is aligned: "alignas(16)"."""
    declarators: tuple[tuple[str, str, str], ...]
    """Stars and references before the name, the name, the brackets after it."""
    is_extern: bool


def _parse_declaration(declaration: Sequence[Token]) -> _Declaration:
    words: list[Token] = []
    alignment: list[str] = []
    is_extern = False
    at = following(declaration, 0)
    while at < len(declaration):
        token = declaration[at]
        if token.text in _ATTRIBUTES:
            end = closing(declaration, following(declaration, at + 1))
            alignment.append(_alignment(declaration[at : end + 1]))
            at = following(declaration, end + 1)
        elif token.text in _SPECIFIERS:
            is_extern = is_extern or token.text == "extern"
            if token.text in ("const", "volatile"):
                words.append(token)
            at = following(declaration, at + 1)
        elif _continues_type(words, token):
            end = _end_of_type_word(declaration, at)
            words += declaration[at:end]
            at = following(declaration, end)
        else:
            break
    return _Declaration(
        type=" ".join(flatten([word]) for word in words if not word.blank),
        alignment=" ".join(alignment),
        declarators=tuple(_declarator(part) for part in split(declaration[at:], ",")),
        is_extern=is_extern,
    )


def _continues_type(words: Sequence[Token], token: Token) -> bool:
    named = [w for w in words if w.text not in ("const", "volatile") and not w.blank]
    if token.text in _BUILTIN_TYPES:
        return all(w.text in _BUILTIN_TYPES for w in named)
    if token.text in _ELABORATION:
        return not named
    complete = bool(named) and named[-1].text not in _ELABORATION
    return not complete and (token.kind is TokenKind.NAME or token.is_mark("::"))


def _end_of_type_word(tokens: Sequence[Token], at: int) -> int:
    """End of the builtin word or of the qualified name with its template arguments at `at`."""
    if tokens[at].text in _BUILTIN_TYPES | _ELABORATION:
        return at + 1
    end = at
    while True:
        if tokens[end].is_mark("::"):
            end = following(tokens, end + 1)
            if tokens[end].is_name("template"):
                end = following(tokens, end + 1)
        end += 1
        after = following(tokens, end)
        if after < len(tokens) and tokens[after].is_mark("<"):
            end = closing_angle(tokens, after) + 1
            after = following(tokens, end)
        if after == len(tokens) or not tokens[after].is_mark("::"):
            return end
        end = after


def _alignment(attribute: Sequence[Token]) -> str:
    opener = following(attribute, 1)
    return f"alignas({flatten(attribute[opener + 1 : -1])})"


def _declarator(tokens: Sequence[Token]) -> tuple[str, str, str]:
    name = following(tokens, 0)
    while name < len(tokens) and tokens[name].kind is not TokenKind.NAME:
        name += 1
    name = min(name, len(tokens))
    return (
        flatten(tokens[:name]),
        flatten(tokens[name : name + 1]),
        flatten(tokens[name + 1 :]),
    )


def _local_declaration(tokens: Sequence[Token]) -> str:
    declaration = _parse_declaration(tokens)
    statements = []
    for stars, name, brackets in declaration.declarators:
        if declaration.is_extern:
            element, setup = _dynamic_element(declaration.type, stars, name, brackets)
            statements.append(f"{setup}{element}* {name} = ::kwemu::dynamic_shared<{element}>()")
            continue
        alias, site = f"{name}_kwemu_t", f"{name}_kwemu_site"
        statements += [
            f"typedef {declaration.type}{stars} {alias}{brackets}",
            f'static constinit ::kwemu::SharedSite {site}{{"{name}", __LINE__}}',
        ]
        if declaration.alignment:
            holder = f"{name}_kwemu_holder"
            statements += [
                f"struct {declaration.alignment} {holder} {{ {alias} value; }}",
                f"auto& {name} = ::kwemu::shared<{holder}>({site}).value",
            ]
        else:
            statements.append(f"auto& {name} = ::kwemu::shared<{alias}>({site})")
    return "; ".join(statements)


def _namespace_scope_declaration(tokens: Sequence[Token]) -> str:
    declaration = _parse_declaration(tokens)
    statements = []
    for stars, name, brackets in declaration.declarators:
        element, setup = _dynamic_element(declaration.type, stars, name, brackets)
        statements.append(f"{setup}static constexpr ::kwemu::DynamicShared<{element}> {name}{{}}")
    return "; ".join(statements)


def _dynamic_element(type_name: str, stars: str, name: str, brackets: str) -> tuple[str, str]:
    """Type of an element of `extern __shared__ T name[]...`, and what must be declared first."""
    rest = tokenize(brackets)
    end = closing(rest, 0) if rest else -1
    inner = join(rest[end + 1 :]).strip()
    if not inner:
        return f"{type_name}{stars}", ""
    return f"{name}_kwemu_t", f"typedef {type_name}{stars} {name}_kwemu_t{inner}; "
