"""Child of test_relations.py: an emitted file on the emulator, at several sizes. Prints JSON."""

import importlib.util
import json
import sys
from types import ModuleType

import torch

from kernelwright.emulator import Session


def _load(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location("loaded", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _call(ours: torch.nn.Module, theirs: torch.nn.Module, x: torch.Tensor) -> object:
    """The largest difference, or what the emitted file says."""
    with torch.no_grad():
        expected = theirs(x)
        try:
            result = ours(x)
        except ValueError as error:
            return str(error)
    assert result.shape == expected.shape
    return float((result - expected).abs().max()) if expected.numel() else 0.0


def main() -> None:
    problem, emitted, shapes = sys.argv[1:]
    with Session() as session:
        candidate, reference = _load(emitted), _load(problem)
        ours = candidate.ModelNew(*candidate.get_init_inputs())
        theirs = reference.Model(*reference.get_init_inputs())
        ours.load_state_dict(theirs.state_dict())
        seen = [_call(ours, theirs, torch.rand(shape)) for shape in json.loads(shapes)]
        report = {"seen": seen, "findings": [str(finding) for finding in session.findings]}
    print(json.dumps(report))


if __name__ == "__main__":
    main()
