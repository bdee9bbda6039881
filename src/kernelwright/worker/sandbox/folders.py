"""The folders and the environment of a candidate's child: what it may write, and finds first.

Everything that PyTorch, Triton, nvcc and the emulator keep between two runs lies in the
candidate's own build folder, so that one candidate cannot leave anything for the next.
"""

import site
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kernelwright.toolchain.cache import cache_root
from kernelwright.worker.sandbox.confining import Confinement, Trust

_KEPT = {
    "TRITON_CACHE_DIR": "triton",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "CUDA_CACHE_PATH": "cuda",
    "XDG_CACHE_HOME": "cache",
    "CUPY_CACHE_DIR": "cupy",
    "NUMBA_CACHE_DIR": "numba",
    "TRITON_HOME": "triton-home",
    "KERNELWRIGHT_CACHE_DIR": "kernelwright",
}
"""Folders below TORCH_EXTENSIONS_DIR, kept from one judgement to the next."""
_PASSING = {
    "HOME": "home",
    "XDG_CONFIG_HOME": "config",
    "MPLCONFIGDIR": "matplotlib",
    "TMPDIR": "tmp",
    "TEMP": "tmp",
    "TMP": "tmp",
}
"""Folders that end with the judgement."""
_SHARED = ("emulator", "headers")
"""Kinds of the cache that are the emulator's own, the same for every candidate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarters:
    """Where a stranger's process lives."""

    environment: Mapping[str, str]
    confinement: Confinement


def prepare_quarters(
    environment: Mapping[str, str], folder: Path, shared: Iterable[Path], processes: int
) -> Quarters:
    """Make the folders of a candidate below TORCH_EXTENSIONS_DIR of `environment` and `folder`.

    It may write there and to what is `shared` with it, and have so many `processes`.
    """
    kept = Path(environment["TORCH_EXTENSIONS_DIR"])
    places = {name: kept / f".{word}" for name, word in _KEPT.items()}
    places |= {name: folder / word for name, word in _PASSING.items()}
    for place in places.values():
        place.mkdir(parents=True, exist_ok=True)
    _lend_the_emulator(places["KERNELWRIGHT_CACHE_DIR"])
    texts = {name: str(place) for name, place in places.items()}
    # Packages that the user installed for themselves are found from HOME.
    texts["PYTHONUSERBASE"] = site.getuserbase()
    writable = tuple(str(path.resolve()) for path in (kept, folder, *shared))
    return Quarters(
        environment={**environment, **texts},
        confinement=Confinement(trust=Trust.STRANGER, writable=writable, processes=processes),
    )


def _lend_the_emulator(private_cache: Path) -> None:
    """Links to what the emulator has built for itself, which a stranger cannot write to."""
    for kind in _SHARED:
        ours, theirs = cache_root() / "built" / kind, private_cache / "built" / kind
        theirs.mkdir(parents=True, exist_ok=True)
        for entry in ours.glob("*"):
            link = theirs / entry.name
            if not link.exists():
                link.unlink(missing_ok=True)  # to an entry that was cleaned away
                link.symlink_to(entry)
