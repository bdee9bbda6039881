"""One case on the card, in a process of its own: ours, eager, torch.compile, and errors, at each of
its sizes.

Compilers work while other processes time: the card is used in turns.
"""

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from emitted_files import build_library, load, with_library
from side_by_side import Keep, Record, Task
from stopwatch import Card, device_ms
from torch import nn

_BUDGET_MS = 40.0
"""Milliseconds of the card for each time."""


def measure(task: Task, keep: Keep) -> None:
    """Times and errors of the task's problems, each kept as soon as it is known."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    card = Card(torch.device(task.facts["device"]))
    # Contexts and libraries take longer to load than what is measured here takes.
    a = torch.rand(4, 4, 4, 4, device=card.device)
    torch.nn.functional.conv2d(a @ a, a)
    found: list[Record] = []
    for problem in task.facts["problems"]:
        record: Record = dict(problem)
        found.append(record)

        def note(record: Record = record, **facts: Any) -> None:
            record.update(facts)
            keep(problems=found)

        try:
            with torch.no_grad():
                own, inputs = _measured(card, Path(problem["folder"]), note)
                if task.facts["compiles"]:
                    note(compiled_ms=_compiled_ms(card, own, inputs))
        except Exception as error:  # The other sizes go on; the record says what happened.
            note(failed=f"{type(error).__name__}: {error}"[:1500])
        if card.device.type == "cuda":
            torch.cuda.empty_cache()


def _measured(card: Card, folder: Path, keep: Keep) -> tuple[nn.Module, list[torch.Tensor]]:
    """The problem's own module and its inputs, of which ours and eager are timed."""
    keep(**json.loads((folder / "facts.json").read_text()))
    problem = load(folder / "problem.py", f"problem_{folder.name}")
    emitted = problem
    if card.device.type == "cuda":
        emitted = with_library(folder / "emitted.py", build_library(folder))
    torch.manual_seed(0)
    with card.alone(), card.device:
        inputs = problem.get_inputs()
        own = problem.Model()
        new = getattr(emitted, "ModelNew", problem.Model)()
        new.load_state_dict(own.state_dict())
        keep(**_errors(own, new, inputs))
        keep(ours_ms=_ms(card, lambda: new(*inputs)))
        keep(eager_ms=_ms(card, lambda: own(*inputs)))
    return own, inputs


def _ms(card: Card, call: Callable[[], object]) -> float:
    return round(device_ms(card, call, _BUDGET_MS), 5)


def _compiled_ms(card: Card, own: nn.Module, inputs: list[torch.Tensor]) -> float:
    """torch.compile's: it compiles while others have the card."""
    torch._dynamo.reset()  # Or it would make one graph for more than one size.
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
