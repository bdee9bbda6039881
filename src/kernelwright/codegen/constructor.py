"""What the emitted file keeps of the user's: imports, constants, helpers and the constructor."""

import ast
import builtins
import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kernelwright.errors import UnsupportedError

Definitions = Mapping[str, ast.FunctionDef | ast.ClassDef]

_KEPT_FUNCTIONS = ("get_inputs", "get_init_inputs")
_ASSIGNMENTS = ast.Assign | ast.AnnAssign
_OWN_NAMES = frozenset(
    {"DEVICE_LIBRARY", "KERNELS", "ModelNew", "_KERNELS", "_LIBRARY", "_OPERATORS", "_SCHEMAS"}
    | {
        "_PARAMETERS",
        "_Parameters",
        "_READING",
        "_WORKSPACES",
        "_arguments",
        "_expect",
        "_is_compiling",
        "_launch",
        "_library",
        "_name",
        "_operands",
        "_packed",
        "_parameters",
        "_places",
        "_run",
        "_words",
    }
    | {"ctypes", "functools", "inspect", "load_inline", "nn", "operator", "struct"}
    | {"torch", "weakref"}
)
"""Module-level names of the emitted file."""
_OWN_WORDS = frozenset({"device", "float", "int", "isinstance", "type"})
"""Names that the emitted `forward` uses besides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """Pieces of the user's file, as text, in the order in which the emitted file has them."""

    imports: tuple[str, ...]
    future: tuple[str, ...]
    """`from __future__ import` lines, which come first."""
    constants: tuple[str, ...]
    """Module-level assignments, and the definitions that they call."""
    helpers: tuple[str, ...]
    """Functions and classes that the constructor uses, without any `forward`."""
    bases: str
    """Base classes of `Model`, as in `class ModelNew(<bases>):`."""
    attributes: tuple[str, ...]
    """Class attributes that the kept methods read, indented by four spaces."""
    methods: tuple[str, ...]
    """`__init__` and the methods it calls, indented by four spaces; may be empty. `__init__`
    refuses arguments other than those of `get_init_inputs`."""
    forward_returns: str
    """` -> Tensor` as in the user's `forward`, or "" where it does not say."""
    forward_arguments: str
    """Everything between the parentheses of `def forward(...)`."""
    problem_functions: tuple[str, ...]
    """`get_inputs` and `get_init_inputs`, unchanged."""


def keep(source: str, returned: frozenset[str] = frozenset()) -> Kept:
    """Take apart the text of a problem file (one that `load_problem` accepts).

    `returned`: names of the file's classes that `forward` returns instances of.
    UnsupportedError where a piece that the emitted file needs is not in the file.
    """
    tree = ast.parse(source)
    definitions = {
        node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }
    model = definitions.get("Model")
    if not isinstance(model, ast.ClassDef):
        raise UnsupportedError("`Model` is not defined by a class statement at the top level")
    problem = [_function(definitions, name) for name in _KEPT_FUNCTIONS]
    forward = _forward(model, definitions)
    methods = list(_constructor_methods(model, definitions))
    attributes = list(_class_attributes(model, [*methods, forward.args]))
    write = _checked_method if _is_comparable(problem[1]) else _renamed
    constants = [node for node in tree.body if isinstance(node, _ASSIGNMENTS)]
    annotations = [forward.returns] if forward.returns else []
    roots = [*methods, *attributes, *model.bases, forward.args, *annotations, *problem, *constants]
    roots += [ast.Name(name, ast.Load()) for name in sorted(returned)]
    needed = _reachable(roots, definitions)
    early = _reachable([c.value for c in constants if c.value], definitions)
    chosen = [node for name, node in definitions.items() if name in needed]
    chosen = [node for node in chosen if node not in problem and node is not model]
    first = [n for n in tree.body if n in constants or (n in chosen and _name(n) in early)]
    _refuse_taken_names([*chosen, *constants], forward)
    return Kept(
        future=tuple(_future(tree)),
        imports=tuple(_imports(tree, needed)),
        constants=tuple(_helper(source, node, definitions) for node in first),
        helpers=tuple(_helper(source, node, definitions) for node in chosen if node not in first),
        bases=", ".join(ast.unparse(base) for base in model.bases),
        attributes=tuple(_renamed(source, node) for node in attributes),
        methods=tuple(write(source, node) for node in methods),
        forward_arguments=_with_self(forward.args),
        forward_returns=f" -> {ast.unparse(forward.returns)}" if forward.returns else "",
        problem_functions=tuple(_text(source, node) for node in problem),
    )


def _with_self(arguments: ast.arguments) -> str:
    """The parameters of a method, the first one under the name that the emitted text has for it."""
    renamed = copy.deepcopy(arguments)
    (*renamed.posonlyargs, *renamed.args)[0].arg = "self"
    return ast.unparse(renamed)


def keep_nothing(arguments: str) -> Kept:
    """What is kept of a module that has no file: the `arguments` of its `forward`, self included.

    UnsupportedError where one of them has a name that the emitted text needs.
    """
    (forward,) = ast.parse(f"def forward({arguments}): ...").body
    assert isinstance(forward, ast.FunctionDef)
    _refuse_taken_names([], forward)
    return Kept(
        future=(),
        imports=(),
        constants=(),
        helpers=(),
        bases="nn.Module",
        attributes=(),
        methods=(),
        forward_arguments=arguments,
        forward_returns="",
        problem_functions=(),
    )


def _name(node: ast.stmt) -> str:
    return node.name if isinstance(node, ast.FunctionDef | ast.ClassDef) else ""


def _function(definitions: Definitions, name: str) -> ast.FunctionDef:
    found = definitions.get(name)
    if not isinstance(found, ast.FunctionDef):
        raise UnsupportedError(
            f"`{name}` is not defined by a `def` at the top level of the file",
            next_step=f"Write `def {name}():` in the problem's file, which is copied from there.",
        )
    return found


def _forward(model: ast.ClassDef, definitions: Definitions) -> ast.FunctionDef:
    """`forward` of `Model`, or of the first base class in the file that has one."""
    for cls in _with_bases(model, definitions):
        for node in cls.body:
            if isinstance(node, ast.FunctionDef) and node.name == "forward":
                return node
    raise UnsupportedError(
        "`Model` inherits `forward` from a class outside the file",
        next_step="Define `forward` in `Model`; it may call `super().forward(...)`.",
    )


def _with_bases(cls: ast.ClassDef, definitions: Definitions) -> list[ast.ClassDef]:
    """The class and the classes of the file that it derives from, nearest first."""
    found = [cls]
    for node in found:
        bases = (definitions.get(base.id) for base in node.bases if isinstance(base, ast.Name))
        found += [base for base in bases if isinstance(base, ast.ClassDef) and base not in found]
    return found


def _is_comparable(get_init_inputs: ast.FunctionDef) -> bool:
    """Whether `!=` tells its values apart: what calls a library may be a tensor or an array."""
    calls = (node.func for node in ast.walk(get_init_inputs) if isinstance(node, ast.Call))
    return not any(isinstance(function, ast.Attribute) for function in calls)


def _refuse_taken_names(nodes: Iterable[ast.stmt], forward: ast.FunctionDef) -> None:
    bound = [name for node in nodes for name in _bound_names(node)]
    arguments = [node.arg for node in ast.walk(forward.args) if isinstance(node, ast.arg)]
    taken = [n for n in bound if n in _OWN_NAMES]
    taken += [n for n in arguments if n in _OWN_NAMES | _OWN_WORDS]
    if taken:
        raise UnsupportedError(
            f"the emitted file needs the name `{taken[0]}` for itself",
            next_step=f"Give `{taken[0]}` another name in the problem's file.",
        )


def _bound_names(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
        stores = (x for x in ast.walk(node) if isinstance(x, ast.Name))
        return [x.id for x in stores if isinstance(x.ctx, ast.Store)]
    return [_name(node)]


def _class_attributes(model: ast.ClassDef, readers: Iterable[ast.AST]) -> Iterator[ast.stmt]:
    """Assignments in the class body to names that the readers, or later such values, mention."""
    mentioned = {
        getattr(x, "attr", None) or getattr(x, "id", None)
        for reader in readers
        for x in ast.walk(reader)
        if isinstance(x, ast.Attribute | ast.Name)
    }
    kept: list[ast.stmt] = []
    for node in reversed(model.body):
        if isinstance(node, _ASSIGNMENTS) and mentioned & set(_bound_names(node)):
            kept.insert(0, node)
            mentioned |= {x.id for x in ast.walk(node) if isinstance(x, ast.Name)}
    return iter(kept)


def _constructor_methods(
    model: ast.ClassDef, definitions: Definitions
) -> Iterator[ast.FunctionDef]:
    """`__init__` and the methods that it, or that of a base class, mentions; in file order."""
    classes = _with_bases(model, definitions)
    tables = [{x.name: x for x in c.body if isinstance(x, ast.FunctionDef)} for c in classes]
    wanted = ["__init__"]
    for name in wanted:
        nodes = [node for table in tables if name in table for node in ast.walk(table[name])]
        mentioned = (node.attr for node in nodes if isinstance(node, ast.Attribute))
        known = {method for table in tables for method in table} - {"forward", *wanted}
        wanted += [method for method in dict.fromkeys(mentioned) if method in known]
    return (node for name, node in tables[0].items() if name in wanted)


def _reachable(roots: Iterable[ast.AST], definitions: Definitions) -> set[str]:
    """Names that the roots mention, and the names that the definitions of those mention."""
    names: set[str] = set()
    pending = list(roots)
    while pending:
        for node in ast.walk(pending.pop()):
            if isinstance(node, ast.Name) and node.id not in names:
                names.add(node.id)
                pending += _without_forward(definitions.get(node.id), definitions)
    return names - set(dir(builtins))


def _without_forward(
    node: ast.FunctionDef | ast.ClassDef | None, definitions: Definitions
) -> list[ast.AST]:
    match node:
        case None:
            return []
        case ast.ClassDef():
            methods = set(_constructor_methods(node, definitions))
            body = [x for x in node.body if not isinstance(x, ast.FunctionDef) or x in methods]
            return [*node.bases, *node.decorator_list, *body]
    return [node]


def _future(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            yield ast.unparse(node)


def _imports(tree: ast.Module, needed: set[str]) -> Iterator[str]:
    """The file's imports, narrowed to the names that are needed and not imported anyway."""
    for node in tree.body:
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            continue
        wanted = needed | {"*"}
        kept = [alias for alias in node.names if _binds(alias) in wanted and not _own(node, alias)]
        if kept and isinstance(node, ast.Import):
            yield ast.unparse(ast.Import(names=kept))
        elif kept and isinstance(node, ast.ImportFrom):
            yield ast.unparse(ast.ImportFrom(module=node.module, names=kept, level=node.level))


def _binds(alias: ast.alias) -> str:
    return (alias.asname or alias.name).split(".")[0]


def _own(node: ast.Import | ast.ImportFrom, alias: ast.alias) -> bool:
    """Whether the emitted file makes this import anyway: `import torch`, `from torch import nn`."""
    if isinstance(node, ast.Import):
        return (alias.name, alias.asname) in (("torch", None), ("torch.nn", "nn"))
    return node.module == "torch" and alias.name == "nn" and alias.asname is None


def _text(source: str, node: ast.stmt) -> str:
    """A top-level statement exactly as written, decorators included."""
    return "\n".join(source.splitlines()[_first_line(node) - 1 : node.end_lineno])


def _helper(source: str, node: ast.stmt, definitions: Definitions) -> str:
    """A statement as written; a class without the methods that only `forward` needs."""
    if not isinstance(node, ast.ClassDef):
        return _text(source, node)
    kept = set(_constructor_methods(node, definitions))
    dropped = [x for x in node.body if isinstance(x, ast.FunctionDef) and x not in kept]
    lines = source.splitlines()
    removed = {
        number
        for method in dropped
        for number in range(_first_line(method), (method.end_lineno or method.lineno) + 1)
    }
    assert node.end_lineno is not None
    text = [
        lines[number - 1]
        for number in range(_first_line(node), node.end_lineno + 1)
        if number not in removed
    ]
    only_forward = all(x in dropped for x in node.body)
    body = "\n".join(text).rstrip()
    return f"{body}\n    ..." if only_forward else body


def _first_line(node: ast.stmt) -> int:
    decorated = isinstance(node, ast.FunctionDef | ast.ClassDef) and node.decorator_list
    return decorated[0].lineno if decorated else node.lineno


def _checked_method(source: str, node: ast.FunctionDef) -> str:
    """As `_renamed`; `__init__` also refuses arguments that it was not specialised to."""
    source, node = _on_lines(source, node)
    text = _renamed(source, node)
    parameters = _parameters(node) if node.name == "__init__" else []
    if not parameters:
        return text
    lines = text.splitlines()
    body = _body_line(node) - _first_line(node)
    indent = " " * (len(lines[body]) - len(lines[body].lstrip()))
    names = ", ".join(parameters)
    check = [
        f"if [{names}] != {_expected_arguments(node)}:",
        "    raise ValueError(",
        '        "ModelNew is specialised to its constructor arguments: expected "',
        f'        f"{{{_expected_arguments(node)}}}, got {{[{names}]}}"',
        "    )",
    ]
    return "\n".join([*lines[:body], *(indent + line for line in check), *lines[body:]])


def _parameters(init: ast.FunctionDef) -> list[str]:
    """Parameters of `__init__` that are checked; none where it takes *args or **kwargs."""
    if init.args.vararg or init.args.kwarg or any(x is None for x in init.args.kw_defaults):
        return []
    return [arg.arg for arg in (*_positional(init), *init.args.kwonlyargs)]


def _positional(init: ast.FunctionDef) -> list[ast.arg]:
    return [*init.args.posonlyargs, *init.args.args][1:]


def _expected_arguments(init: ast.FunctionDef) -> str:
    """`[*get_init_inputs()]`, and after them the defaults of parameters that it leaves out."""
    defaults = [ast.unparse(value) for value in init.args.defaults]
    parts = ["*get_init_inputs()"]
    if defaults:
        first = len(_positional(init)) - len(defaults)
        parts.append(f"*[{', '.join(defaults)}][len(get_init_inputs()) - {first} :]")
    parts += [ast.unparse(value) for value in init.args.kw_defaults if value is not None]
    return f"[{', '.join(parts)}]"


def _body_line(node: ast.FunctionDef) -> int:
    """The line of the first statement after the docstring."""
    has_docstring = ast.get_docstring(node) is not None and len(node.body) > 1
    return node.body[1 if has_docstring else 0].lineno


def _on_lines(source: str, node: ast.FunctionDef) -> tuple[str, ast.FunctionDef]:
    """Text and tree of the function, rewritten if its body shares the line of its head."""
    if node.body[0].lineno > node.lineno:
        return source, node
    source = ast.unparse(node)
    (node,) = (x for x in ast.parse(source).body if isinstance(x, ast.FunctionDef))
    return source, node


def _renamed(source: str, node: ast.stmt) -> str:
    """A statement of the class body, four spaces deep, calling `super` of the new class."""
    first = _first_line(node)
    lines = source.splitlines()[first - 1 : node.end_lineno]
    renames: Sequence[ast.Name] = [
        x for x in ast.walk(node) if isinstance(x, ast.Name) and x.id == "Model"
    ]
    for name in sorted(renames, key=lambda x: (x.lineno, x.col_offset), reverse=True):
        row = name.lineno - first
        # Columns of ast count UTF-8 bytes.
        raw = lines[row].encode()
        lines[row] = (raw[: name.col_offset] + b"ModelNew" + raw[name.end_col_offset :]).decode()
    inside = {row - first for row in _lines_inside_text(node)}
    return "\n".join(
        line if row in inside or not line else _shifted(line, 4 - node.col_offset)
        for row, line in enumerate(lines)
    )


def _lines_inside_text(node: ast.stmt) -> Iterator[int]:
    """Lines that begin within a string: their indentation is part of it."""
    for part in ast.walk(node):
        if isinstance(part, ast.Constant | ast.JoinedStr) and part.end_lineno is not None:
            yield from range(part.lineno + 1, part.end_lineno + 1)


def _shifted(line: str, columns: int) -> str:
    return " " * columns + line if columns > 0 else line.removeprefix(" " * -columns)
