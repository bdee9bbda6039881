"""How much a call reads, adds up and computes from."""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from kernelwright.problem.modes import ProductCounter
from kernelwright.verify.compare import rms
from kernelwright.verify.nesting import named_tensors
from kernelwright.worker.roles.subject import Call

_MOST_ADDED, _MOST_MULTIPLIED = 1 << 12, 1 << 20
"""Terms of one sum: a sum over more numbers is added up in parts by anybody, one of products
hardly ever."""


def counting_products() -> ProductCounter:
    """A mode that counts multiply-adds, twice each: recurrent layers of cuDNN as well."""
    return ProductCounter(display=False, custom_mapping={torch.ops.aten._cudnn_rnn: _of_layers})


def _of_layers(
    inputs: Sequence[int], weights: Sequence[Sequence[int]], *others: object, **named: object
) -> int:
    """Operations of recurrent layers, from shapes: every row of every step meets every weight."""
    del others, named
    matrices = sum(math.prod(shape) for shape in weights if len(shape) == 2)
    return 2 * math.prod(inputs[:-1]) * matrices


def terms_of(flops: int, inputs: int, effects: Mapping[str, Tensor]) -> float:
    """Terms that are added up for one element of the results: of products, and of inputs."""
    outputs = [tensor for name, tensor in effects.items() if name.startswith("output")]
    elements = max(1, sum(tensor.numel() for tensor in outputs))
    return min(inputs / elements, _MOST_ADDED) + min(flops / 2 / elements, _MOST_MULTIPLIED)


def bytes_of(arguments: Sequence[object], call: Call) -> int:
    """Bytes of arguments and results together."""
    tensors = [tensor for _, tensor in named_tensors(list(arguments), "input")]
    return sum(t.numel() * t.element_size() for t in (*tensors, *call.effects.values()))


def scale_of(module: nn.Module, arguments: Sequence[object]) -> float:
    """The largest RMS of what a call computes from: arguments, parameters and buffers."""
    given = [tensor for _, tensor in named_tensors(list(arguments), "input")]
    sizes = [
        rms(tensor)
        for tensor in (*given, *module.state_dict().values())
        if tensor.is_floating_point()
    ]
    return max(sizes, default=0.0)
