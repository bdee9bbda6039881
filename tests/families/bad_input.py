"""Child of test_bad_input.py: call emitted files wrongly, print what each call raised as JSON."""

import importlib.util
import json
import sys
from collections.abc import Callable
from types import ModuleType

import torch

from kernelwright.emulator import Session


def load(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location("candidate", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def raised(call: Callable[[], object]) -> list[str]:
    try:
        call()
    except Exception as error:
        return [type(error).__name__, str(error)]
    return ["nothing", ""]


def main() -> None:
    linear_path, scale_path = sys.argv[1:]
    seen: dict[str, list[str]] = {}
    with Session() as session:
        linear, scale = load(linear_path), load(scale_path)
        model, multiply = linear.ModelNew(*linear.get_init_inputs()), scale.ModelNew()
        (x,) = linear.get_inputs()
        matrix, _ = scale.get_inputs()
        launches = session.launches
        seen["no tensor"] = raised(lambda: model([1.0]))
        seen["dtype"] = raised(lambda: model(x.double()))
        seen["rank"] = raised(lambda: model(x[0]))
        seen["size"] = raised(lambda: model(x[:, 1:]))
        seen["gradient"] = raised(lambda: model(x.clone().requires_grad_()))
        seen["weight's dtype"] = raised(
            lambda: linear.ModelNew(*linear.get_init_inputs()).half()(x)
        )
        seen["scalar"] = raised(lambda: multiply(matrix, torch.tensor(2.0)))
        seen["constructor"] = raised(lambda: linear.ModelNew(8, 8, 1.0))
        seen["launches"] = ["", str(session.launches - launches)]
        with torch.no_grad():
            seen["right"] = raised(lambda: model(x))
        seen["right scalar"] = raised(lambda: multiply(matrix, 2))
    # Outside of the session nothing pretends that this is a GPU.
    seen["device"] = raised(lambda: model(x.detach()))
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
