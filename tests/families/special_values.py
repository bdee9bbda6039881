"""Child of test_families.py: run one emitted file on the emulator with NaN and infinities in each
argument, one after the other, and compare what is not finite with PyTorch's results.

Arguments: problem file, emitted file, dtype, JSON of sizes. Prints one JSON object.
"""

import json
import sys

import torch
from run import load, resize, results_of

from kernelwright.emulator import Session


def main() -> None:
    problem, emitted, dtype_name, sizes = sys.argv[1:]
    dtype = getattr(torch, dtype_name)
    differing = []
    with Session(order_seed=1, threads=1) as session, torch.no_grad():
        reference = load(problem, "reference")
        candidate = load(emitted, "candidate").ModelNew()
        old = {getattr(reference, name): size for name, size in json.loads(sizes).items()}
        given = reference.get_inputs()  # whose values nobody takes
        for special in (torch.nan, torch.inf, -torch.inf):
            for place in range(len(given)):
                torch.manual_seed(place)
                # Sums of positive numbers are not 0, which an infinity makes NaN of.
                inputs = [resize(x, old, dtype).abs() for x in given]
                inputs[place].view(-1)[inputs[place].numel() // 2] = special
                wanted = results_of(reference.Model()(*inputs))
                for own, other in zip(results_of(candidate(*inputs)), wanted, strict=True):
                    if not torch.allclose(own, other, rtol=2e-2, atol=2e-2, equal_nan=True):
                        differing.append(f"{special} in {place}")
    print(json.dumps({"differing": differing, "findings": [str(f) for f in session.findings]}))


if __name__ == "__main__":
    main()
