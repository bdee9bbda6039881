"""Plans of modules that were made before, by whatever process: found again by what was captured.

key = plan_key(captured, machine, library, guess_seconds)
chosen = known_plan(key)      # None: plan, ask the card what the model is not sure of, and
keep_plan(key, chosen)
"""

import copyreg
import io
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from kernelwright.collecting import uncollected
from kernelwright.ir.graph import Graph
from kernelwright.ir.plan import Plan
from kernelwright.machine import Machine
from kernelwright.schedule import Library
from kernelwright.schedule.planning import Choices
from kernelwright.toolchain.cache import cached_build, content_key, lookup
from kernelwright.toolchain.texts import own_code

_KIND, _FILE = "plan", "plan.pickle"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """What planning came to."""

    plan: Plan
    choices: Choices


def plan_key(captured: Graph, machine: Machine, library: Library, guess_seconds: float) -> str:
    """The key of what is planned: by this very code, for a graph on a machine, with so many seconds
    to ask a card what the model is not sure of."""
    parts = (repr(captured), repr(machine), library.name, repr(guess_seconds))
    return content_key(own_code(), *parts)


def known_plan(key: str) -> Chosen | None:
    """The plan kept under a key; None where there is none, or none that can be read."""
    folder = lookup(_KIND, key)
    if folder is None:
        return None
    try:
        with uncollected():
            found = pickle.loads((folder / _FILE).read_bytes())
    except (OSError, EOFError, pickle.UnpicklingError):
        return None
    return found if isinstance(found, Chosen) else None


def keep_plan(key: str, chosen: Chosen) -> None:
    """Let a key find a plan; one that holds what cannot be written is made again each time."""
    try:
        written = _written(chosen)
    except (pickle.PicklingError, TypeError, AttributeError, RecursionError):
        return
    cached_build(_KIND, key, lambda folder: _put(folder, written))


def _written(chosen: Chosen) -> bytes:
    data = io.BytesIO()
    pickler = pickle.Pickler(data)
    # Tables that nobody may change are no records of pickle's own.
    pickler.dispatch_table = copyreg.dispatch_table | {MappingProxyType: _taken_apart}
    pickler.dump(chosen)
    return data.getvalue()


def _put(folder: Path, written: bytes) -> None:
    (folder / _FILE).write_bytes(written)


def _taken_apart(table: Mapping[Any, Any]) -> tuple[Any, ...]:
    return _unchangeable, (dict(table),)


def _unchangeable(table: dict[Any, Any]) -> Mapping[Any, Any]:
    return MappingProxyType(table)
