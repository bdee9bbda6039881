"""Hand-written device code, and how its `.cuh` files become one text.

A family's files lie in the folder of its name, and files that families share in `common`. A file is
known by its name, whatever its folder: includes are written `#include "name.cuh"`. Each file
compiles alone, with all folders on the compiler's path. An emitted file holds the files it uses,
each once, dependencies first, under the system headers they need.
"""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

from kernelwright.kernels import pruning
from kernelwright.kernels.pruning import User as User

_OWN = '#include "'
_SYSTEM = "#include <"
_ONCE = "#pragma once"
_FACT = re.compile(r"^constexpr bool (ANY_\w+) = true;", re.MULTILINE)
_DECLARED = {"__half": "<cuda_fp16.h>", "__nv_bfloat16": "<cuda_bf16.h>"}
"""Element types that a system header declares: who only copies elements mentions nothing else."""


@cache
def source(name: str) -> str:
    """Text of one file, such as `"pointwise.cuh"`; KeyError if there is none of that name."""
    if name not in names():
        raise KeyError(f"no kernel source {name!r}; there are {', '.join(names())}")
    return paths()[name].read_text(encoding="utf-8")


@cache
def names() -> tuple[str, ...]:
    """Every file of every folder, sorted."""
    return tuple(sorted(paths()))


def folders() -> tuple[Path, ...]:
    """Folders of device code, for a compiler's path."""
    return tuple(sorted({path.parent for path in paths().values()}))


@cache
def paths() -> Mapping[str, Path]:
    """Where each file lies. Two files of one name would be one in an emitted text."""
    paths = sorted(Path(__file__).parent.glob("*/*.cuh"))
    found = {path.name: path for path in paths}
    assert len(found) == len(paths), "two files of device code have one name"
    return MappingProxyType(found)


def closure(*wanted: str) -> tuple[str, ...]:
    """`wanted` and all they include, each once, dependencies before their users."""
    order: dict[str, None] = {}

    def visit(name: str) -> None:
        if name not in order:
            for include in _includes(name):
                visit(include)
            order[name] = None

    for name in wanted:
        visit(name)
    return tuple(order)


def headers(*wanted: str) -> tuple[str, ...]:
    """System headers that `wanted` need, as `<cuda_runtime.h>`, sorted."""
    found = {header for name in closure(*wanted) for header in _system_headers(name)}
    return tuple(sorted(found))


def body(*wanted: str) -> str:
    """The code of `wanted` and all they include, without any include line.

    It may stand inside a namespace. An emitted library should put it in an unnamed one: PyTorch
    loads libraries with global symbols, so that of two definitions of one name the first is used.
    """
    return "\n".join(f"{_title(name)}{_code(name)}\n" for name in closure(*wanted))


def in_use(by: User | str, *wanted: str) -> tuple[tuple[str, ...], str]:
    """`headers` and `body` of `wanted`, without the declarations that the code `by` has no use for.

    "Use" is a mention, direct or through another declaration that is in use. The headers are those
    of what is kept and of the element types that the code names.
    """
    order = closure(*wanted)
    user = by if isinstance(by, User) else User(code=by)
    kept = dict(zip(order, pruning.in_use(user, [_code(name) for name in order]), strict=True))
    order = tuple(name for name in order if kept[name])
    found = {header for name in order for header in _system_headers(name)}
    found |= {header for named, header in _DECLARED.items() if named in user.code}
    return tuple(sorted(found)), "\n".join(f"{_title(name)}{kept[name]}\n" for name in order)


def facts(*wanted: str) -> tuple[str, ...]:
    """Constants that say what kernels may have, in `wanted` and all that they include.

    In the files they are true. Where one is known to be false of all kernels of a text, that is
    asserted of its `User`.
    """
    return tuple(fact for name in closure(*wanted) for fact in _declared_facts(name))


def inline(*wanted: str) -> str:
    """One self-contained text: system headers, then the code of `wanted` and all they include."""
    includes = "".join(f"#include {header}\n" for header in headers(*wanted))
    return f"{includes}\n{body(*wanted)}"


@cache
def _includes(name: str) -> tuple[str, ...]:
    lines = (line for line in source(name).splitlines() if line.startswith(_OWN))
    return tuple(line.removeprefix(_OWN).rstrip().removesuffix('"') for line in lines)


@cache
def _system_headers(name: str) -> tuple[str, ...]:
    lines = (line for line in source(name).splitlines() if line.startswith(_SYSTEM))
    return tuple(line.removeprefix("#include ").strip() for line in lines)


@cache
def _declared_facts(name: str) -> tuple[str, ...]:
    return tuple(_FACT.findall(_code(name)))


def _title(name: str) -> str:
    return f"// ---- {name} ----\n"


@cache
def _code(name: str) -> str:
    kept = [
        line for line in source(name).splitlines() if not line.startswith((_OWN, _SYSTEM, _ONCE))
    ]
    text = "\n".join(kept).strip("\n")
    while "\n\n\n" in text:
        text = text.replace("\n\n\n", "\n\n")
    return text
