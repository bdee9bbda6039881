"""Put emitted files before KernelBench's own evaluator and static checker, both unmodified.

    python benchmarks/kernelbench_eval.py --kernelbench CHECKOUT/src --emitted FOLDER \
        --output benchmarks/results/kernelbench_eval_h200.json

FOLDER holds `<name>_new.py` for each problem examples/<name>.py. Needs a GPU and pydantic. The
packages by which KernelBench talks to language models are not needed for judging: empty modules
stand in for those that are not installed.
"""

import argparse
import importlib.util
import json
import sys
import types
from pathlib import Path

import torch
from provenance import provenance

EXAMPLES = Path(__file__).parents[1] / "examples"
_CLIENTS = {"openai": ["OpenAI"], "litellm": ["completion"], "dotenv": ["load_dotenv"]}


def main() -> None:
    """Evaluate every emitted file that has a problem of its name, and write one JSON file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernelbench", type=Path, required=True)
    parser.add_argument("--emitted", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    sys.path.insert(0, str(arguments.kernelbench))
    _stand_in_for_clients()
    rows = {}
    for candidate in sorted(arguments.emitted.glob("*_new.py")):
        name = candidate.stem.removesuffix("_new")
        rows[name] = _evaluate((EXAMPLES / f"{name}.py").read_text(), candidate.read_text())
        print(name, json.dumps(rows[name]), flush=True)
    report = {"provenance": provenance(), "problems": rows}
    arguments.output.write_text(json.dumps(report, indent=2) + "\n")


def _stand_in_for_clients() -> None:
    for name, attributes in _CLIENTS.items():
        if importlib.util.find_spec(name) is None:
            module = types.ModuleType(name)
            for attribute in attributes:
                setattr(module, attribute, lambda *args, **kwargs: None)
            sys.modules[name] = module


def _evaluate(reference: str, candidate: str) -> dict[str, object]:
    from kernelbench.eval import eval_kernel_against_ref
    from kernelbench.kernel_static_checker import validate_kernel_static

    valid, errors, warnings = validate_kernel_static(candidate, backend="cuda")
    result = eval_kernel_against_ref(
        reference,
        candidate,
        num_correct_trials=5,
        num_perf_trials=100,
        measure_performance=True,
        device=torch.device("cuda:0"),
    )
    assert result is not None, "the evaluator met a lock file"
    return {
        "static_check": {"valid": valid, "errors": errors, "warnings": warnings},
        "compiled": result.compiled,
        "correct": result.correctness,
        "candidate_ms": result.runtime,
        "reference_ms": result.ref_runtime,
        "metadata": {key: str(value) for key, value in result.metadata.items()},
    }


if __name__ == "__main__":
    main()
