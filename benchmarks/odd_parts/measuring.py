"""One problem on the card, in a process of its own: ours, eager, torch.compile, and their errors.

Compilers work while other processes time: the card is used in turns.
"""

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from emitted_files import build_library, load, with_library
from side_by_side import Keep, Task
from stopwatch import Card, device_ms, kernel_ms
from torch import nn

_BUDGET_MS = 40.0
"""Milliseconds of the card for each time."""


def measure(task: Task, keep: Keep) -> None:
    """Times and errors of the task's problem."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    folder, device = Path(task.facts["folder"]), torch.device(task.facts["device"])
    card = Card(device)
    keep(**json.loads((folder / "facts.json").read_text()))
    problem = load(folder / "problem.py", f"problem_{task.name}")
    library = build_library(folder) if device.type == "cuda" else None
    emitted = with_library(folder / "emitted.py", library) if device.type == "cuda" else problem
    with torch.no_grad():
        torch.manual_seed(0)
        with card.alone():
            inputs = [it.to(device) for it in problem.get_inputs()]
            own = problem.Model().to(device)
            new = getattr(emitted, "ModelNew", problem.Model)().to(device)
            new.load_state_dict(own.state_dict())
            keep(**_errors(own, new, inputs))
            torch.cuda.empty_cache()
            keep(ours_ms=_ms(card, lambda: new(*inputs)))
            keep(eager_ms=_ms(card, lambda: own(*inputs)))
            keep(kernels_ms=kernel_ms(card, lambda: new(*inputs)))
        if task.facts["compiles"]:
            keep(compiled_ms=_compiled_ms(card, own, inputs))


def _ms(card: Card, call: Callable[[], object]) -> float:
    return round(device_ms(card, call, _BUDGET_MS), 5)


def _compiled_ms(card: Card, own: nn.Module, inputs: list[torch.Tensor]) -> float:
    """torch.compile's: it compiles while others have the card."""
    compiled = torch.compile(own)
    compiled(*inputs)
    with card.alone():
        return _ms(card, lambda: compiled(*inputs))


def _errors(own: nn.Module, new: nn.Module, inputs: list[torch.Tensor]) -> dict[str, Any]:
    """RMS errors against float64, over the RMS of what is right."""
    expected, found = own(*inputs), new(*inputs)
    exact = own.double()(*(it.double() if it.is_floating_point() else it for it in inputs))
    own.float()
    if not exact.is_floating_point():
        return {"verified": bool((found == expected).all())}
    scale = exact.norm()
    eager, ours = (((it.double() - exact).norm() / scale).item() for it in (expected, found))
    return {"errors": {"eager": eager, "ours": ours}, "verified": ours <= 1.1 * eager + 2e-7}
