"""The caches of keys and values of transformers' models: results of many, which PyTorch's trees
do not know by themselves."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch.utils._pytree import GetAttrKey, register_pytree_node

from kernelwright.capture.errors import UnsupportedValueError
from kernelwright.ir.calls import Argument, Instance, Record

MODULE = "transformers.cache_utils"
"""Module that has the classes; nothing is imported that the user's code has not imported."""


def know_caches() -> None:
    """Let PyTorch take apart DynamicCache and EncoderDecoderCache, where that package is in use."""
    utilities = sys.modules.get(MODULE)
    if utilities is not None:
        _register(utilities.DynamicCache, _keys_and_values, _joined)
        _register(utilities.EncoderDecoderCache, _two_caches, lambda cls, parts: cls(*parts))


@contextmanager
def without_lifted_tensors() -> Iterator[None]:
    """A block in which the first keys and values are joined to a call's result, not to a literal.

    torch.export 2.13 loses the literal when it decomposes a model that has buffers of its own.
    """
    layer = getattr(sys.modules.get(MODULE), "DynamicLayer", None)
    if layer is None:
        yield
        return

    def lazy_initialization(self: Any, keys: torch.Tensor, values: torch.Tensor) -> None:
        self.dtype, self.device = keys.dtype, keys.device
        self.keys, self.values = keys.new_empty(0), values.new_empty(0)
        self.is_initialized = True

    with patch.object(layer, "lazy_initialization", lazy_initialization):
        yield


def is_cache(kind: type) -> bool:
    """Whether a class is one of those that `know_caches` names."""
    names = ("DynamicCache", "EncoderDecoderCache")
    return kind.__module__ == MODULE and kind.__name__ in names


def cache_instance(kind: type, items: tuple[Argument, ...], context: Any) -> Instance:
    """A cache made of its parts: of pairs of keys and values, or of two caches."""
    if context is not None and any(context[1]):  # as transformers takes them apart
        raise _other_layers("sliding window")
    match items:
        case (Record(items=keys), Record(items=values)):
            pairs = tuple(Record("tuple", pair) for pair in zip(keys, values, strict=True))
            return Instance(MODULE, kind.__name__, (Record("list", pairs),))
    return Instance(MODULE, kind.__name__, items)


def cache_parts(cache: Any) -> list[Any]:
    """What `cache_instance` calls the class with, of a cache that there is."""
    if hasattr(cache, "cross_attention_cache"):
        return [cache.self_attention_cache, cache.cross_attention_cache]
    return [[(layer.keys, layer.values) for layer in cache.layers]]


def _other_layers(what: str) -> UnsupportedValueError:
    return UnsupportedValueError(
        f"`forward` returns a DynamicCache with a {what} in it",
        next_step="Pass use_cache=False, or set it in the model's config.",
    )


def _register(kind: type, parts: Any, make: Any) -> None:
    def flatten(cache: Any) -> tuple[list[Any], None]:
        return [part for _, part in parts(cache)], None

    def flatten_with_keys(cache: Any) -> tuple[list[Any], None]:
        return [(GetAttrKey(name), part) for name, part in parts(cache)], None

    try:
        register_pytree_node(
            kind,
            flatten,
            lambda values, context: make(kind, values),
            serialized_type_name=f"{kind.__module__}.{kind.__name__}",
            flatten_with_keys_fn=flatten_with_keys,
        )
    except ValueError:
        return  # registered before, by us or by transformers


def _keys_and_values(cache: Any) -> Sequence[tuple[str, Any]]:
    """The tensors of a DynamicCache whose layers keep all of them."""
    plain = sys.modules[MODULE].DynamicLayer
    other = next((type(layer).__name__ for layer in cache.layers if type(layer) is not plain), None)
    if other is not None:
        raise _other_layers(other)
    layers = [layer for layer in cache.layers if layer.keys is not None]
    return [
        ("key_cache", [layer.keys for layer in layers]),
        ("value_cache", [layer.values for layer in layers]),
    ]


def _joined(kind: Any, parts: Iterable[Any]) -> Any:
    return kind(zip(*parts, strict=True))


def _two_caches(cache: Any) -> Sequence[tuple[str, Any]]:
    return [
        ("self_attention_cache", cache.self_attention_cache),
        ("cross_attention_cache", cache.cross_attention_cache),
    ]
