"""Other weights than a constructor makes: drawn while it runs, or loaded afterwards.

Ones and zeros are what layers put into gains, biases and running statistics, and a kernel that
leaves them out is right by luck alone. `drawn_constants` replaces such tensors while the layers are
being constructed, so that a file that prepares its weights in its constructor sees them as well.
"""

import hashlib
from collections.abc import Callable, Iterator, Set
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

from kernelwright.verify.observation import Links

_SPREAD = 0.25
"""Standard deviation of what replaces zeros; other constants are scaled by 0.5 to 1.5."""


@contextmanager
def drawn_constants(only: Set[str] | None = None) -> Iterator[set[str]]:
    """While it is open, layers and parameters made of one number get several; gives their kinds.

    What replaces a tensor depends on its shape and its number only, its kind, so that two files
    that make the same tensors in another order still agree. `only` are the kinds to replace; None
    for all: a file may keep constants as parameters that are no weights of the reference's.
    """
    drawn: set[str] = set()

    def draw(tensor: Tensor) -> None:
        kind = _kind_of_constant(tensor)
        if kind and (only is None or kind in only):
            drawn.add(kind)
            _draw(tensor, kind)

    with ExitStack() as stack:
        for layer in _layers():
            stack.enter_context(patch.object(layer, "reset_parameters", _after_reset(layer, draw)))
        for name in _FILLS:
            stack.enter_context(patch.object(nn.init, name, _after_filling(name, draw)))
        registered = _after_registration(nn.Module.register_parameter, draw)
        stack.enter_context(patch.object(nn.Module, "register_parameter", registered))
        yield drawn


def load_other(module: nn.Module, links: Links | None = None) -> None:
    """Load into `module` weights that differ from its own in every element.

    What stands for one of the reference's tensors by `links` gets what that one gets.
    """
    state = module.state_dict()
    if links is None:
        module.load_state_dict({name: _other(name, tensor) for name, tensor in state.items()})
        return
    others = {it.candidate: _other(it.reference, state[it.candidate]) for it in links}
    module.load_state_dict(others, strict=False)


def _layers() -> list[Any]:
    """The classes of torch.nn that say how they fill their own tensors."""
    classes = {kind for kind in vars(nn).values() if isinstance(kind, type)}
    bases = {base for kind in classes for base in kind.__mro__}
    return [base for base in bases if "reset_parameters" in vars(base)]


_FILLS = ("ones_", "zeros_", "constant_")
"""Functions of torch.nn.init that put one number into a tensor."""

Draw = Callable[[Tensor], None]


def _after_reset(layer: Any, draw: Draw) -> Callable[[Any], None]:
    reset = vars(layer)["reset_parameters"]

    def reset_and_draw(self: nn.Module) -> None:
        reset(self)
        for tensor in (*self.parameters(recurse=False), *self.buffers(recurse=False)):
            draw(tensor)

    return reset_and_draw


def _after_filling(name: str, draw: Draw) -> Callable[..., Tensor]:
    fill = getattr(nn.init, name)

    def fill_and_draw(tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        filled: Tensor = fill(tensor, *args, **kwargs)
        draw(filled)
        return filled

    return fill_and_draw


def _after_registration(register: Callable[..., None], draw: Draw) -> Callable[..., None]:
    def register_and_draw(self: nn.Module, name: str, param: Any) -> None:
        register(self, name, param)
        # Layers of torch.nn register memory that they fill later; what it holds is chance.
        if isinstance(param, Tensor) and not type(self).__module__.startswith("torch."):
            draw(param)

    return register_and_draw


def _kind_of_constant(tensor: Tensor) -> str:
    """Shape and number of a tensor that has one number throughout; empty for any other."""
    if not tensor.is_floating_point() or tensor.numel() == 0 or tensor.is_meta:
        return ""
    value = float(tensor.detach().reshape(-1)[0].item())
    return f"{tuple(tensor.shape)} {value}" if bool((tensor == value).all()) else ""


@torch.no_grad()
def _draw(tensor: Tensor, kind: str) -> None:
    # Drawn on the CPU: a file may make its layers on the device, the problem its own on the host.
    tensor.copy_(_spread(kind, tensor, torch.device("cpu")))


def _other(name: str, tensor: Tensor) -> Tensor:
    if not tensor.is_floating_point() or tensor.numel() == 0:
        return tensor.clone()
    return _spread(f"{name} {tuple(tensor.shape)}", tensor, tensor.device)


_PIECE = 1 << 24
"""Elements that are drawn together."""


def _spread(key: str, tensor: Tensor, device: torch.device) -> Tensor:
    """`tensor` with every element scaled, its sign kept; zeros become small numbers.

    What is drawn is the same in every process for the same `key` on the same kind of `device`.
    """
    generator = torch.Generator(device=device)
    digest = hashlib.blake2b(key.encode(), digest_size=7).digest()
    generator.manual_seed(int.from_bytes(digest, "little"))
    spread = torch.empty(tensor.shape, dtype=tensor.dtype, device=device)
    pieces = zip(
        torch.split(spread.view(-1), _PIECE), torch.split(tensor.reshape(-1), _PIECE), strict=True
    )
    for new, piece in pieces:
        old = piece.detach().to(device, torch.float64)
        factors = torch.rand(old.shape, generator=generator, device=device) + 0.5
        noise = torch.randn(old.shape, generator=generator, device=device) * _SPREAD
        new.copy_(torch.where(old == 0, noise.double(), old * factors))
    return spread.to(tensor.device)
