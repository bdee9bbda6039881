"""Objects that `forward` returns its tensors in: from PyTorch's tree to calls of their classes."""

import collections
import dataclasses
import inspect
import operator
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from torch.utils._pytree import TreeSpec

from kernelwright.capture.caches import cache_instance, is_cache
from kernelwright.capture.errors import UnsupportedValueError
from kernelwright.ir.calls import Argument, Instance, Record


def structured(spec: TreeSpec, leaves: Iterator[Argument], path: Path | None) -> Argument:
    """The tree with its leaves, in order, as one argument; `path` is the user's file.

    UnsupportedValueError for a class that no text can name, or whose constructor is not known.
    """
    if spec.is_leaf():
        return next(leaves)
    items = tuple(structured(child, leaves, path) for child in spec.children())
    kind: Any = spec.type
    context = spec.context
    if kind is list or kind is tuple:
        return Record(kind.__name__, items)
    if kind is dict and all(isinstance(key, str) for key in context):
        return Record("dict", items, tuple(context))
    if kind is collections.namedtuple:
        return _instance(context, items, path=path)
    if kind is collections.OrderedDict:
        pairs = Record("dict", items, _names(kind, context))
        return _instance(kind, (pairs,), path=path)
    if is_cache(kind):
        return cache_instance(kind, items, context)
    if issubclass(kind, dict):  # as transformers registers its ModelOutput
        return _instance(kind, keywords=zip(_names(kind, context), items, strict=True), path=path)
    if dataclasses.is_dataclass(spec.type):
        present, absent = context
        nothing = [(name, None) for name in absent]
        return _instance(kind, keywords=[*zip(present, items, strict=True), *nothing], path=path)
    if issubclass(kind, tuple):  # torch.return_types
        return _instance(kind, (Record("tuple", items),), path=path)
    raise UnsupportedValueError(f"`forward` returns a {kind.__name__}")


def class_names(spec: TreeSpec) -> set[str]:
    """Names of the classes in a tree: those that the text of its construction mentions."""
    found = {name for child in spec.children() for name in class_names(child)}
    kind = spec.context if spec.type is collections.namedtuple else spec.type
    return found | ({kind.__name__} if inspect.isclass(kind) else set())


def _names(kind: type, context: Sequence[Any]) -> tuple[str, ...]:
    if all(isinstance(key, str) for key in context):
        return tuple(context)
    raise UnsupportedValueError(f"`forward` returns a {kind.__name__} with keys other than text")


def _instance(
    kind: type,
    args: tuple[Argument, ...] = (),
    keywords: Any = (),
    *,
    path: Path | None,
) -> Instance:
    """A call of the class by the name that it has in its module."""
    name, module = kind.__qualname__, sys.modules.get(kind.__module__)
    try:
        is_there = operator.attrgetter(name)(module) is kind
    except AttributeError:
        is_there = False
    if not is_there:
        raise UnsupportedValueError(
            f"`forward` returns a {kind.__name__}, which {kind.__module__} has not under this name",
            next_step=f"Define {kind.__name__} at the top level of a module, under its own name.",
        )
    own = path is not None and getattr(module, "__file__", None) == str(path)
    return Instance(None if own else kind.__module__, name, args, tuple(keywords))
