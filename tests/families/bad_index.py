"""Child of test_families.py: an emitted file that picks rows of a table, with indices that are
there and one that is not. Prints one JSON object."""

import importlib.util
import json
import sys

import torch

from kernelwright.emulator import Session


def main() -> None:
    spec = importlib.util.spec_from_file_location("candidate", sys.argv[1])
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    seen: dict[str, object] = {}
    with Session(threads=1) as session, torch.no_grad():
        spec.loader.exec_module(module)
        model, table = module.ModelNew(), torch.rand(10, 6)
        for name, last in (("inside", -10), ("outside", 10)):
            index = torch.tensor([3, 9, last])
            try:
                found = model(table, index)
                seen[name] = "" if torch.equal(found, table[index]) else "wrong"
            except Exception as error:
                seen[name] = type(error).__name__
        seen["findings"] = [str(it) for it in session.findings]
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
