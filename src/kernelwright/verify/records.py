"""Frozen records to plain JSON values and back.

What comes back may have been written by a stranger's process, so reading checks every field and
raises `RecordError` for anything that does not fit; nothing is ever evaluated.
"""

import dataclasses
import functools
import math
import types
from collections.abc import Mapping
from enum import Enum
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

Record = TypeVar("Record")


class RecordError(ValueError):
    """A plain value does not fit the record that it should become."""


def to_plain(value: object) -> Any:
    """`value` as JSON values: records become dicts, enums their values, tuples lists.

    A mapping whose keys are tuples becomes a list of its pairs.
    Numbers that JSON cannot write become the strings "nan", "inf" and "-inf".
    """
    match value:
        case Enum():
            return value.value
        case float() if not math.isfinite(value):
            return str(value)
        case None | bool() | int() | float() | str():
            return value
        case Mapping() if any(isinstance(key, tuple) for key in value):
            return [[to_plain(key), to_plain(item)] for key, item in value.items()]
        case Mapping():
            return {str(key): to_plain(item) for key, item in value.items()}
        case list() | tuple() | frozenset():
            return [to_plain(item) for item in value]
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            names = [field.name for field in dataclasses.fields(value)]
            return {name: to_plain(getattr(value, name)) for name in names}
        case _:
            raise RecordError(f"{type(value).__name__} has no plain form")


def from_plain(record: type[Record], value: object) -> Record:
    """The `record` that `to_plain` wrote as `value`; `RecordError` if it is not one."""
    try:
        return _read(record, value)  # type: ignore[no-any-return]
    except (TypeError, ValueError, KeyError) as error:
        raise RecordError(f"not a {record.__name__}: {error}") from error


def _read(kind: Any, value: object) -> Any:
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return _read_union(get_args(kind), value)
    if origin is tuple:
        return _read_tuple(get_args(kind), value)
    if origin is Mapping:
        return _read_mapping(get_args(kind), value)
    if dataclasses.is_dataclass(kind):
        return _read_record(kind, value)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(value)
    if kind is float and isinstance(value, int | float | str) and not isinstance(value, bool):
        return float(value)
    if type(value) is kind:
        return value
    raise RecordError(f"expected {kind}, found {type(value).__name__}")


def _read_union(kinds: tuple[Any, ...], value: object) -> Any:
    if value is None and type(None) in kinds:
        return None
    failures = []
    for kind in kinds:
        if kind is type(None):
            continue
        try:
            return _read(kind, value)
        except (TypeError, ValueError, KeyError) as error:
            failures.append(str(error))
    raise RecordError("; ".join(failures))


def _read_tuple(kinds: tuple[Any, ...], value: object) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise RecordError(f"expected a list, found {type(value).__name__}")
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        return tuple(_read(kinds[0], item) for item in value)
    if len(kinds) != len(value):
        raise RecordError(f"expected {len(kinds)} items, found {len(value)}")
    return tuple(_read(kind, item) for kind, item in zip(kinds, value, strict=True))


def _read_mapping(kinds: tuple[Any, ...], value: object) -> dict[Any, Any]:
    if get_origin(kinds[0]) is tuple and isinstance(value, list):
        pairs = [_read_tuple(kinds, pair) for pair in value]
        return dict(pairs)
    if not isinstance(value, dict):
        raise RecordError(f"expected an object, found {type(value).__name__}")
    return {_read_key(kinds[0], key): _read(kinds[1], item) for key, item in value.items()}


def _read_key(kind: Any, key: object) -> Any:
    """A key of an object, which JSON has as text."""
    return int(key) if kind is int and isinstance(key, str) else _read(kind, key)


@functools.cache
def _hints(kind: type) -> Mapping[str, Any]:
    """Read once: it takes longer than everything else about a small record."""
    return get_type_hints(kind)


def _read_record(kind: Any, value: object) -> Any:
    if not isinstance(value, dict):
        raise RecordError(f"expected an object, found {type(value).__name__}")
    hints = _hints(kind)
    names = {field.name for field in dataclasses.fields(kind)}
    if names != set(value):
        raise RecordError(f"{kind.__name__} has fields {sorted(names)}, found {sorted(value)}")
    return kind(**{name: _read(hints[name], value[name]) for name in names})
