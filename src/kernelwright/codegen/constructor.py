"""What the emitted file keeps of the user's: imports, constants, helpers and the constructor."""

import ast
import builtins
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

_KEPT_FUNCTIONS = ("get_inputs", "get_init_inputs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """Pieces of the user's file, as text, in the order in which the emitted file has them."""

    imports: tuple[str, ...]
    constants: tuple[str, ...]
    helpers: tuple[str, ...]
    """Functions and classes that the constructor uses, without any `forward`."""
    bases: str
    """Base classes of `Model`, as in `class ModelNew(<bases>):`."""
    methods: tuple[str, ...]
    """`__init__` and the methods it calls, indented by four spaces; may be empty. `__init__`
    refuses arguments other than those of `get_init_inputs`."""
    forward_arguments: str
    """Everything between the parentheses of `def forward(...)`."""
    problem_functions: tuple[str, ...]
    """`get_inputs` and `get_init_inputs`, unchanged."""


def keep(source: str) -> Kept:
    """Take apart the text of a problem file (one that `load_problem` accepts)."""
    tree = ast.parse(source)
    definitions = {
        node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }
    model = definitions["Model"]
    assert isinstance(model, ast.ClassDef)
    methods = list(_constructor_methods(model))
    forward = next(
        node for node in model.body if isinstance(node, ast.FunctionDef) and node.name == "forward"
    )
    # Numbers and names compare with ==; a tensor among the arguments does not.
    comparable = "torch." not in ast.unparse(definitions["get_init_inputs"])
    write = _checked_method if comparable else _renamed
    problem = [definitions[name] for name in _KEPT_FUNCTIONS if name in definitions]
    constants = [node for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign)]
    roots = [*methods, *model.bases, forward.args, *problem, *constants]
    needed = _reachable(roots, definitions)
    helpers = [node for name, node in definitions.items() if name in needed and node not in problem]
    return Kept(
        imports=tuple(_imports(tree, needed)),
        constants=tuple(_text(source, node) for node in constants),
        helpers=tuple(_helper(source, node) for node in helpers if node is not model),
        bases=", ".join(ast.unparse(base) for base in model.bases),
        methods=tuple(write(source, node) for node in methods),
        forward_arguments=ast.unparse(forward.args),
        problem_functions=tuple(_text(source, node) for node in problem),
    )


def _constructor_methods(model: ast.ClassDef) -> Iterator[ast.FunctionDef]:
    """`__init__` and, transitively, the methods of the class that it mentions, in file order."""
    methods = {node.name: node for node in model.body if isinstance(node, ast.FunctionDef)}
    wanted: list[str] = ["__init__"] if "__init__" in methods else []
    for name in wanted:
        mentioned = (
            node.attr for node in ast.walk(methods[name]) if isinstance(node, ast.Attribute)
        )
        wanted += [m for m in mentioned if m in methods and m not in wanted and m != "forward"]
    return (node for name, node in methods.items() if name in wanted)


def _reachable(
    roots: Iterable[ast.AST], definitions: dict[str, ast.FunctionDef | ast.ClassDef]
) -> set[str]:
    """Names that the roots mention, and the names that the definitions of those mention."""
    names: set[str] = set()
    pending = list(roots)
    while pending:
        for node in ast.walk(pending.pop()):
            if isinstance(node, ast.Name) and node.id not in names:
                names.add(node.id)
                pending += _without_forward(definitions.get(node.id))
    return names - set(dir(builtins))


def _without_forward(node: ast.FunctionDef | ast.ClassDef | None) -> list[ast.AST]:
    match node:
        case None:
            return []
        case ast.ClassDef():
            methods = set(_constructor_methods(node))
            body = [x for x in node.body if not isinstance(x, ast.FunctionDef) or x in methods]
            return [*node.bases, *node.decorator_list, *body]
    return [node]


def _imports(tree: ast.Module, needed: set[str]) -> Iterator[str]:
    """The file's imports, narrowed to the names that are needed and not imported anyway."""
    for node in tree.body:
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        kept = [alias for alias in node.names if _binds(alias) in needed and not _own(node, alias)]
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
    first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
    assert node.end_lineno is not None
    return "\n".join(source.splitlines()[first - 1 : node.end_lineno])


def _helper(source: str, node: ast.FunctionDef | ast.ClassDef) -> str:
    """A function as written; a class without the methods that only `forward` needs."""
    if isinstance(node, ast.FunctionDef):
        return _text(source, node)
    kept = set(_constructor_methods(node))
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


def _first_line(node: ast.FunctionDef | ast.ClassDef) -> int:
    return min([node.lineno, *(d.lineno for d in node.decorator_list)])


def _checked_method(source: str, node: ast.FunctionDef) -> str:
    """As `_renamed`; `__init__` also refuses arguments that it was not specialised to."""
    text = _renamed(source, node)
    parameters = _positional(node) if node.name == "__init__" else []
    if not parameters:
        return text
    body = _body_line(node) - _first_line(node)
    lines = text.splitlines()
    names = ", ".join(parameters)
    check = [
        f"        if [{names}] != {_expected_arguments(node)}:",
        "            raise ValueError(",
        '                "ModelNew is specialised to its constructor arguments: expected "',
        f'                f"{{{_expected_arguments(node)}}}, got {{[{names}]}}"',
        "            )",
    ]
    return "\n".join([*lines[:body], *check, *lines[body:]])


def _positional(init: ast.FunctionDef) -> list[str]:
    """Parameters of `__init__` that a list of arguments fills; none where it takes *args."""
    given = [*init.args.posonlyargs, *init.args.args][1:]
    return [] if init.args.vararg else [arg.arg for arg in given]


def _expected_arguments(init: ast.FunctionDef) -> str:
    """`[*get_init_inputs()]`, and after them the defaults of parameters that it leaves out."""
    defaults = [ast.unparse(value) for value in init.args.defaults]
    if not defaults:
        return "[*get_init_inputs()]"
    count = len(_positional(init))
    first = count - len(defaults)
    return f"[*get_init_inputs(), *[{', '.join(defaults)}][len(get_init_inputs()) - {first} :]]"


def _body_line(node: ast.FunctionDef) -> int:
    """The line of the first statement after the docstring."""
    has_docstring = ast.get_docstring(node) is not None and len(node.body) > 1
    return node.body[1 if has_docstring else 0].lineno


def _renamed(source: str, node: ast.FunctionDef) -> str:
    """The method's text, four spaces deep, calling `super` of the new class."""
    lines = source.splitlines()[_first_line(node) - 1 : node.end_lineno]
    renames: Sequence[ast.Name] = [
        x for x in ast.walk(node) if isinstance(x, ast.Name) and x.id == "Model"
    ]
    for name in sorted(renames, key=lambda x: (x.lineno, x.col_offset), reverse=True):
        row = name.lineno - _first_line(node)
        # Columns of ast count UTF-8 bytes.
        raw = lines[row].encode()
        lines[row] = (raw[: name.col_offset] + b"ModelNew" + raw[name.end_col_offset :]).decode()
    return textwrap.indent(textwrap.dedent("\n".join(lines)), "    ")
