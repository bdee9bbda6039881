"""One recurrent problem on the card, and launches without end, each in a process of its own."""

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from cases import Case
from emitted_files import load
from event_time import median_ms
from library import Recurrence, Variant, build

Keep = Callable[..., None]
_REPEATS = 11
_LOOK_EVERY = 500
"""Launches between two looks at the bits."""


def measure(folder: Path, problem: str, file: str, keep: Keep) -> None:
    """Milliseconds and errors of a file's `ModelNew`, and milliseconds of eager beside it."""
    own_module = load(folder / problem / "problem.py", f"problem_{problem}")
    new_module = load(folder / problem / file, f"emitted_{problem}")
    with _alone(folder), torch.no_grad():
        model, inputs = _made(own_module, "Model")
        new, _ = _made(new_module, "ModelNew")
        new.load_state_dict(model.state_dict())
        found = _called(new, inputs)
        repeated = all(map(torch.equal, found, _called(new, inputs)))
        keep(errors=_errors(model, inputs, found), repeats=repeated)
        del found
        torch.cuda.empty_cache()
        keep(ms=median_ms(lambda: new(*inputs), _REPEATS))
        keep(eager_ms=median_ms(lambda: model(*inputs), _REPEATS))


def measure_compiled(folder: Path, problem: str, keep: Keep) -> None:
    """Milliseconds of the problem's own model by torch.compile, after eager again."""
    own_module = load(folder / problem / "problem.py", f"problem_{problem}")
    with torch.no_grad():
        model, inputs = _made(own_module, "Model")
        compiled = torch.compile(model)
        compiled(*inputs)  # Compiles while another process has the card.
        with _alone(folder):
            keep(eager_ms=median_ms(lambda: model(*inputs), _REPEATS))
            keep(compiled_ms=median_ms(lambda: compiled(*inputs), _REPEATS))


def endure(folder: Path, launches: int, keep: Keep) -> None:
    """Launches of one stack beside products in another stream; all must give the first bits."""
    case = Case(name="endurance", cell="LSTM", batch=10, steps=16)
    library = build(Variant("LSTM", 1, 16, 16, 256, 2, 3), folder / "built")
    torch.manual_seed(0)
    module = case.module()
    x = torch.rand(case.steps, case.batch, case.inputs, device="cuda")
    states = case.first_states()
    y = torch.empty(case.steps, case.batch, case.hidden, device="cuda")
    outs = [y, *(torch.empty_like(state) for state in states)]
    run = Recurrence(library, case)
    if not run.prepare(module, x, states, outs):
        raise RuntimeError("the variant does not take the case")
    with _alone(folder):
        run()
        first = [out.clone() for out in outs]
        differ = torch.zeros((), dtype=torch.int64, device="cuda")
        beside, busy = torch.cuda.Stream(), torch.rand(2048, 2048, device="cuda")
        for number in range(launches):
            run()
            if number % 4 == 0:
                with torch.cuda.stream(beside):
                    torch.mm(busy, busy)
            if number % _LOOK_EVERY == 0:
                for out, expected in zip(outs, first, strict=True):
                    differ += (out != expected).sum()
                    out.fill_(torch.nan)
                run()
                torch.cuda.synchronize()
                keep(launches=number + 1, differing=int(differ.item()))
        torch.cuda.synchronize()
        differing = sum(int((a != b).sum().item()) for a, b in zip(outs, first, strict=True))
        keep(launches=launches, differing=int(differ.item()) + differing)


def _made(module: ModuleType, name: str) -> tuple[torch.nn.Module, list[Any]]:
    """The module and its inputs, from one seed, on the card."""
    torch.manual_seed(0)
    model = getattr(module, name)(*module.get_init_inputs()).cuda().eval()
    torch.manual_seed(1)
    return model, [it.cuda() if isinstance(it, torch.Tensor) else it for it in module.get_inputs()]


def _called(model: torch.nn.Module, inputs: list[Any]) -> list[torch.Tensor]:
    """The tensors of a result; models that draw first states draw the same."""
    torch.manual_seed(2)
    result = model(*inputs)
    results = result if isinstance(result, list | tuple) else [result]
    return [it.clone() for it in results]


def _errors(
    model: torch.nn.Module, inputs: list[Any], found: list[torch.Tensor]
) -> dict[str, list[float]]:
    """RMS differences over the RMS from PyTorch's layers without TF32, which are some 2e-7 away
    from float64: of eager as it comes, and of ours."""
    eager = _called(model, inputs)
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        exact = [it.double() for it in _called(model, inputs)]

    def of(results: list[torch.Tensor]) -> list[float]:
        pairs = zip(results, exact, strict=True)
        return [((it.double() - best).norm() / best.norm()).item() for it, best in pairs]

    return {"eager": of(eager), "ours": of(found)}


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """The card for this process; what it launched is done at the end."""
    with (folder / "card.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
            torch.cuda.synchronize()
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)
