"""Other weights than a constructor makes: drawn while it runs, or loaded afterwards.

Ones and zeros are what layers put into gains, biases and running statistics, and a kernel that
leaves them out is right by luck alone. `drawn_constants` replaces such tensors while the layers are
being constructed, so that a file that prepares its weights in its constructor sees them as well.
"""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

_SPREAD = 0.25
"""Standard deviation of what replaces zeros; other constants are scaled by 0.5 to 1.5."""


@contextmanager
def drawn_constants() -> Iterator[None]:
    """While it is open, layers and parameters made of one number get several.

    What replaces a tensor depends on its shape and its number only, so that two files that make
    the same tensors in another order still agree.
    """
    with ExitStack() as stack:
        for layer in _layers():
            stack.enter_context(patch.object(layer, "reset_parameters", _after_reset(layer)))
        registered = _after_registration(nn.Module.register_parameter)
        stack.enter_context(patch.object(nn.Module, "register_parameter", registered))
        yield


def load_other(module: nn.Module) -> None:
    """Load into `module` weights that differ from its own in every element."""
    state = module.state_dict()
    module.load_state_dict({name: _other(name, tensor) for name, tensor in state.items()})


def _layers() -> list[Any]:
    """The classes of torch.nn that say how they fill their own tensors."""
    classes = {kind for kind in vars(nn).values() if isinstance(kind, type)}
    bases = {base for kind in classes for base in kind.__mro__}
    return [base for base in bases if "reset_parameters" in vars(base)]


def _after_reset(layer: Any) -> Callable[[Any], None]:
    reset = vars(layer)["reset_parameters"]

    def reset_and_draw(self: nn.Module) -> None:
        reset(self)
        for tensor in (*self.parameters(recurse=False), *self.buffers(recurse=False)):
            _draw(tensor)

    return reset_and_draw


def _after_registration(register: Callable[..., None]) -> Callable[..., None]:
    def register_and_draw(self: nn.Module, name: str, param: Any) -> None:
        register(self, name, param)
        # Layers of torch.nn register memory that they fill later; what it holds is chance.
        if isinstance(param, Tensor) and not type(self).__module__.startswith("torch."):
            _draw(param)

    return register_and_draw


@torch.no_grad()
def _draw(tensor: Tensor) -> None:
    if not tensor.is_floating_point() or tensor.numel() == 0 or tensor.is_meta:
        return
    value = float(tensor.reshape(-1)[0].item())
    if not bool((tensor == value).all()):
        return
    # Drawn on the CPU: a file may make its layers on the device, the problem its own on the host.
    tensor.copy_(_spread(f"{tuple(tensor.shape)} {value}", tensor, torch.device("cpu")))


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
