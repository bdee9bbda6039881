"""Whether a candidate has the form of the problem's module: signatures, imports, fallbacks."""

import ast
import sys

from kernelwright.verify.findings import MODEL, MODEL_NEW, Findings, Severity

_STANDARD_ROOTS = frozenset({"torch", "numpy", "math", "triton"})
"""What candidates in KernelBench's format import; more is worth a look."""


def look_at_shape(tree: ast.Module, problem_source: str) -> Findings:
    """Differences from the reference's signatures, imports that do not travel, hidden fallbacks."""
    model = _find_class(tree, MODEL_NEW) or _find_class(tree, MODEL)
    reference = _find_class(ast.parse(problem_source), MODEL)
    yield from _look_at_signatures(model, reference)
    yield from _look_at_imports(tree)
    for node in ast.walk(model) if model is not None else ():
        if isinstance(node, ast.Try):
            text = "`try` inside the model: a kernel that fails may go unnoticed"
            yield Severity.WORTH_A_LOOK, node.lineno, text


def _look_at_signatures(model: ast.ClassDef | None, reference: ast.ClassDef | None) -> Findings:
    """`__init__` and `forward` take what the reference's take."""
    for name in ("__init__", "forward"):
        expected, found = _method(reference, name), _method(model, name)
        if expected is None or found is None:
            continue
        should, is_ = _parameters(expected), _parameters(found)
        if should != is_:
            text = f"`{name}` takes ({', '.join(is_)}), the reference's takes ({', '.join(should)})"
            yield Severity.WORTH_A_LOOK, found.lineno, text


def _look_at_imports(tree: ast.Module) -> Findings:
    """Imports beyond torch and the standard library do not travel with the file."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=aliases):
                roots = [alias.name.partition(".")[0] for alias in aliases]
            case ast.ImportFrom(module=str(module)):
                roots = [module.partition(".")[0]]
            case _:
                continue
        for root in roots:
            if root not in _STANDARD_ROOTS and root not in sys.stdlib_module_names:
                text = f"imports `{root}`, which is neither torch nor standard"
                yield Severity.WORTH_A_LOOK, node.lineno, text


def _find_class(tree: ast.Module, name: str) -> ast.ClassDef | None:
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name]
    return classes[-1] if classes else None


def _method(model: ast.ClassDef | None, name: str) -> ast.FunctionDef | None:
    body = model.body if model is not None else []
    methods = [node for node in body if isinstance(node, ast.FunctionDef) and node.name == name]
    return methods[-1] if methods else None


def _parameters(function: ast.FunctionDef) -> list[str]:
    arguments = function.args
    names = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)][1:]
    names += [f"*{arguments.vararg.arg}"] if arguments.vararg else []
    names += [argument.arg for argument in arguments.kwonlyargs]
    return names + ([f"**{arguments.kwarg.arg}"] if arguments.kwarg else [])
