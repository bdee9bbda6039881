"""The environment of a run that finds nothing kept by one before."""

from pathlib import Path

_FOLDERS = (
    "KERNELWRIGHT_CACHE_DIR",
    "TORCH_EXTENSIONS_DIR",
    "TORCHINDUCTOR_CACHE_DIR",
    "TRITON_CACHE_DIR",
)
"""Variables that say where something is kept: what was built and tuned, other compilers' caches."""


def nothing_kept(folder: Path) -> dict[str, str]:
    """Variables that name folders in `folder`, none of which exists."""
    return {name: str(folder / name.lower()) for name in _FOLDERS}
