"""A file's own kernels on the emulator, once and by hand: what was launched, found, and computed.

    kernelwright emulate model_new.py --case "seed=1 layout=strided size:M=33"

The file runs in this process, without a sandbox: it is for kernels that you are writing. `judge
--target cpu` is for anybody's file.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.utils._pytree import tree_leaves

from kernelwright.emulator.findings import Finding
from kernelwright.emulator.session import Session
from kernelwright.errors import UsageError
from kernelwright.problem.execution import execute
from kernelwright.problem.loading import parse_problem, read_source
from kernelwright.problem.record import Problem
from kernelwright.problem.resizing import resize
from kernelwright.verify.cases import Case, arrange

MOST_ELEMENTS = 1 << 22
"""Elements of all inputs together beyond which a run would take minutes."""

_ALIAS = "\nModel = ModelNew\n"
"""What makes a candidate a problem; at its end, so that no line number changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Emulation:
    """What one call of a file's module did on the emulator."""

    launches: Mapping[str, int]
    """Launches by the name of the kernel."""
    findings: tuple[Finding, ...]
    """Mistakes of the kernels, oldest first."""
    outputs: tuple[torch.Tensor, ...]
    """Tensors of the result, in order; none where the call raised."""
    error: str = ""
    """What the call raised because of a finding; empty where it returned."""

    def lines(self) -> list[str]:
        """The record as text: one line for each kernel, finding and output."""
        launched = [f"launched    {name} x {count}" for name, count in self.launches.items()]
        found = [f"found       {it.location} {it.kernel}: {it.message}" for it in self.findings]
        raised = [f"raised      {self.error}"] if self.error else []
        results = map(_described, self.outputs)
        return [*launched, *(found or ["found       nothing"]), *raised, *results]

    def to_json(self) -> dict[str, object]:
        """The record as plain JSON values; outputs by their shape and dtype."""
        return {
            "launches": dict(self.launches),
            "findings": [it.to_json() for it in self.findings],
            "outputs": [
                {"shape": list(it.shape), "dtype": str(it.dtype).removeprefix("torch.")}
                for it in self.outputs
            ],
            "error": self.error,
        }


def emulate(path: Path, case: Case, order_seed: int = 0) -> Emulation:
    """Call `ModelNew` of the file at `path`, or its `Model`, once on the inputs of `case`.

    `order_seed` shuffles the order of threads and blocks; 0 runs them as they are numbered. Raises
    ProblemError where there is no file or none of a candidate, and UsageError for inputs beyond
    MOST_ELEMENTS.
    """
    problem = resize(_as_problem(path), dict(case.sizes))
    with Session(order_seed=order_seed) as session, torch.no_grad():
        definition = execute(problem)
        torch.manual_seed(case.seed)
        module = definition.build(*definition.make_init_inputs())
        inputs = definition.make_inputs()
        _check_size(problem, inputs)
        result, error = None, ""
        try:
            result = module(*arrange(inputs, case))
        except Exception as raised:
            if not session.findings:
                raise
            error = str(raised)
        return Emulation(
            launches=session.take_launches(),
            findings=session.findings,
            outputs=tuple(it for it in tree_leaves(result) if isinstance(it, torch.Tensor)),
            error=error,
        )


def _as_problem(path: Path) -> Problem:
    source = read_source(path)
    return parse_problem(path, source + _ALIAS if "class ModelNew" in source else source)


def _check_size(problem: Problem, inputs: tuple[object, ...]) -> None:
    elements = sum(it.numel() for it in tree_leaves(inputs) if isinstance(it, torch.Tensor))
    if elements > MOST_ELEMENTS:
        smaller = " ".join(f"size:{name}=33" for name in problem.constants)
        raise UsageError(
            f"the inputs have {elements:,} elements; emulate takes {MOST_ELEMENTS:,} at most",
            next_step=f"Give smaller sizes, as in --case '{smaller}'."
            if smaller
            else "Write the sizes as integer constants at module level; --case makes them smaller.",
        )


def _described(tensor: torch.Tensor) -> str:
    kind = str(tensor.dtype).removeprefix("torch.")
    text = f"result      {kind}{list(tensor.shape)}"
    if not tensor.is_floating_point() or tensor.numel() == 0:
        return text
    missing = int(tensor.isnan().sum())
    low, high = tensor.nan_to_num(0.0, 0.0, 0.0).aminmax()
    return f"{text} from {low.item():.6g} to {high.item():.6g}, {missing} NaN"
