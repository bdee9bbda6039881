"""Child of test_families.py: a product of a softmax whose operands are not as usual.

Arguments: emitted file. Prints the largest error of each case, relative to the shares by |values|,
and what the emulator found.
"""

import importlib.util
import json
import sys

import torch

from kernelwright.emulator import Session

BATCH, ROWS, WIDTH = 2, 9, 20
NAN, INF = float("nan"), float("inf")


def case(keys: int, scale: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores and values."""
    torch.manual_seed(0)
    return torch.randn(BATCH, ROWS, keys) * scale, torch.rand(BATCH, keys, WIDTH)


def with_score(value: float, *place: int | slice) -> tuple[torch.Tensor, torch.Tensor]:
    scores, values = case(64)
    scores[place] = value
    return scores, values


def with_value(value: float, score: float) -> tuple[torch.Tensor, torch.Tensor]:
    """One value of a key, and its score in each row."""
    scores, values = case(64)
    values[1, 7, 3] = value
    scores[1, :, 7] = score
    return scores, values


CASES = {
    "pairs": case(96),
    "floats": case(40),
    "far apart": case(64, 20.0),
    "one share": case(64, 1000.0),
    "no key": with_score(-INF, 1, 3, slice(None)),
    "few keys": with_score(-INF, 1, 3, slice(5, None)),
    "NaN score": with_score(NAN, 0, 2, 5),
    "infinite score": with_score(INF, 0, 2, 5),
    "NaN value": with_value(NAN, 0.0),
    "infinite value": with_value(INF, 0.0),
    # Its share is 2^-101.
    "infinite value of a small share": with_value(INF, -70.0),
    "infinite value of no share": with_value(INF, -INF),
    "large value": with_value(2.0**40, 0.0),
}


def error_of(result: torch.Tensor, scores: torch.Tensor, values: torch.Tensor) -> float:
    """Of what is finite; infinities and NaN have to be where they belong."""
    shares = torch.softmax(scores.double(), -1)
    # As far as float32 has them.
    shares = torch.where(shares < 2.0**-150, 0.0, shares)
    exact, size = shares @ values.double(), shares @ values.double().abs()
    finite = exact.isfinite()
    assert torch.equal(result[~finite].double().nan_to_num(1.5), exact[~finite].nan_to_num(1.5))
    return ((result.double() - exact).abs() / size)[finite].max().item()


def main() -> None:
    spec = importlib.util.spec_from_file_location("candidate", sys.argv[1])
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with Session(order_seed=1, threads=1) as session, torch.no_grad():
        spec.loader.exec_module(module)
        model = module.ModelNew()
        worst = {name: error_of(model(*given), *given) for name, given in CASES.items()}
    print(json.dumps({"worst": worst, "findings": [str(f) for f in session.findings]}))


if __name__ == "__main__":
    main()
