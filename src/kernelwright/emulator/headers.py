"""Which headers a source asks for: PyTorch's are a hundred times those of CUDA."""

from collections.abc import Iterable
from enum import Enum

_TORCH_FOLDERS = ("torch/", "ATen/", "c10/", "pybind11/")
"""In a source that asks for no headers: the headers that it includes itself."""
_WHOLE_TORCH = ("nn::", "optim::", "serialize::", "jit::", "torch::data")
"""Words in a source that ask for more of PyTorch than tensors and operators."""


class Headers(Enum):
    """What stands in front of every translation unit of a unit."""

    CUDA = "cuda"
    """What nvcc puts there: the CUDA runtime's header."""
    TORCH = "torch"
    """PyTorch's tensors, operators and pybind11, and CUDA's."""
    TORCH_ALL = "torch_all"
    """All that torch/extension.h includes: torch::nn, torch::optim and the rest, too."""


def headers_of(sources: Iterable[str]) -> Headers:
    """For the sources of a unit that include what they need themselves."""
    texts = tuple(sources)
    used = any(folder in text for text in texts for folder in _TORCH_FOLDERS)
    return torch_headers_of(texts) if used else Headers.CUDA


def torch_headers_of(sources: Iterable[str]) -> Headers:
    """For the sources of a unit that get PyTorch's headers whether they ask or not."""
    whole = any(word in text for text in sources for word in _WHOLE_TORCH)
    return Headers.TORCH_ALL if whole else Headers.TORCH


def headers_of_candidate(text: str) -> Headers:
    """What a candidate's Python file will ask for, by its words, before anybody runs it.

    A wrong guess costs the candidate time, and nothing else.
    """
    if "cpp_extension" in text and "no_implicit_headers" not in text:
        return torch_headers_of((text,))
    return headers_of((text,))
