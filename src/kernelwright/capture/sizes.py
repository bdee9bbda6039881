"""Sizes: from PyTorch's symbolic integers to `Dim`s over symbols that a call can look up."""

from collections.abc import Mapping

import sympy
import torch
from sympy.printing.precedence import precedence_traditional
from torch.utils._sympy.functions import FloorDiv
from torch.utils._sympy.printers import PythonPrinter

from kernelwright.capture.errors import UnsolvedSizeError, UnsupportedValueError
from kernelwright.capture.relations import Values, simplest
from kernelwright.ir.graph import Guard, Symbol
from kernelwright.ir.types import Dim


class _Printer(PythonPrinter):
    """Python text of sizes as a person writes it: `s0 - 1` rather than `(-1) + s0`."""

    def _print_Add(  # noqa: N802, the name is sympy's
        self, expr: sympy.Expr, order: str | None = None
    ) -> str:
        text = ""
        for term in sorted(expr.args, key=lambda term: (term.is_number, str(term))):
            negative = term.could_extract_minus_sign()
            part = self.parenthesize(-term if negative else term, precedence_traditional(expr))
            joint = (" - " if negative else " + ") if text else ("-" if negative else "")
            text += joint + part
        return text


class Sizes:
    """The symbols of one capture: declared by its inputs, then used to spell every size."""

    def __init__(self, reserved: set[str]) -> None:
        self.symbols: list[Symbol] = []
        self.guards: list[Guard] = []
        self._reserved = reserved
        self._hints: dict[sympy.Symbol, int] = {}
        self._known: dict[sympy.Expr, sympy.Expr] = {}
        self._simpler: Values = {}
        self._dims: dict[sympy.Expr, Dim] = {}
        """Sizes that were spelled with what is declared so far."""

    def simplify(self, values: Values) -> None:
        """From now on spell sizes with these values; call it before any size is declared.

        A symbol that is a number is not declared, so that the argument's size is static.
        """
        self._dims.clear()
        self._simpler = values
        self._known |= {
            size: value for size, value in values.items() if size.is_Symbol and value.is_Integer
        }

    def declare(self, size: object, hint: int, source: str, dim: int | None) -> None:
        """Note that `size` can be read from dimension `dim` of the input node `source`.

        `source` itself is the size when `dim` is None; `hint` is its value at capture. Sizes that
        are static, or are known from another input already, declare nothing.
        """
        expr = size.node.expr if isinstance(size, torch.SymInt) else None
        if isinstance(expr, sympy.Symbol) and expr not in self._known:
            self._dims.clear()
            self._known[expr] = self._new_symbol(hint, source, dim)

    def declare_derived(self, size: object, hint: int, source: str, dim: int | None) -> None:
        """Declare a size such as `2*s + 1` whose `s` no input has: `s` is solved for.

        Call it after every input was declared; a guard keeps the division exact. Raises
        UnsolvedSizeError.
        """
        if not isinstance(size, torch.SymInt):
            return
        expr = size.node.expr
        unknown = [symbol for symbol in expr.free_symbols if symbol not in self._known]
        if not unknown:
            return
        (symbol, *others) = unknown
        factor, offset = expr.coeff(symbol, 1), expr.coeff(symbol, 0)
        if others or expr != factor * symbol + offset or not factor.is_Integer:
            raise UnsolvedSizeError(frozenset())
        whole = self._new_symbol(hint, source, dim)
        self._dims.clear()
        rest = whole - offset.xreplace(self._known)
        self._known[expr] = whole
        self._known[symbol] = FloorDiv(rest, factor)
        self.guards.append(
            Guard(
                condition=f"({_Printer().doprint(rest)}) % {factor} == 0",
                message=f"size {dim} of {source} must be {expr} for a whole number {symbol}",
            )
        )

    def dim(self, size: object) -> Dim:
        """The `Dim` of an int or a SymInt."""
        if isinstance(size, int):
            return Dim.static(size)
        if not isinstance(size, torch.SymInt):
            raise UnsupportedValueError(f"{size!r} is no size")
        known = self._dims.get(size.node.expr)
        if known is None:
            expr = self.resolve(simplest(size.node.expr, self._simpler))
            known = Dim(self.text(expr), self.hint(expr))
            self._dims[size.node.expr] = known
        return known

    def hint(self, expr: sympy.Expr) -> int:
        """The value at capture of an expression over the symbols declared here."""
        return int(expr.xreplace(self._hints))

    def sum(self, a: Dim, b: Dim) -> Dim:
        """The sum of two sizes."""
        if a.is_static and b.is_static:
            return Dim.static(a.hint + b.hint)
        return b if a == Dim.static(0) else Dim(f"{a} + {b}", a.hint + b.hint)

    def knows(self, expr: sympy.Expr) -> bool:
        """True if all symbols of the expression can be read from a call's arguments."""
        return all(symbol in self._known for symbol in expr.free_symbols)

    def resolve(self, expr: sympy.Expr) -> sympy.Expr:
        """PyTorch's expression over the symbols declared here."""
        if expr in self._known:
            return self._known[expr]
        unknown = [s for s in expr.free_symbols if s not in self._known]
        if unknown:
            raise UnsupportedValueError(
                "a size depends on the numbers in a tensor",
                next_step="Keep operators such as nonzero or unique out of `forward`.",
            )
        return expr.subs(self._whole()).xreplace(self._known)

    def text(self, expr: sympy.Expr) -> str:
        """Python text of an expression over the symbols declared here."""
        return str(_Printer().doprint(expr))

    def _whole(self) -> Mapping[sympy.Expr, sympy.Expr]:
        return {expr: symbol for expr, symbol in self._known.items() if not expr.is_Symbol}

    def _new_symbol(self, hint: int, source: str, dim: int | None) -> sympy.Symbol:
        number = len(self.symbols)
        while f"s{number}" in self._reserved:
            number += 1
        self._reserved.add(f"s{number}")
        self.symbols.append(Symbol(name=f"s{number}", input=source, dim=dim))
        symbol = sympy.Symbol(f"s{number}", integer=True, nonnegative=True)
        self._hints[symbol] = hint
        return symbol
