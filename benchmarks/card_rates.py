"""Ceilings of a card as PyTorch reaches them: copies, reads, writes, products.

    python benchmarks/card_rates.py --output card_rates_h100.json

Bytes a second of four gigabytes copied (read and written), summed (read) and filled (written);
FLOP/s of products of 8,192 x 8,192 x 8,192 of random numbers in each arithmetic. Medians of
eleven calls.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import torch
from event_time import median_ms
from provenance import provenance

_BYTES = 2**32
_SIDE = 8192
_CALLS = 11


def seconds(function: Callable[[], object]) -> float:
    """Median seconds of a call on the card."""
    return median_ms(function, _CALLS) / 1e3


def bandwidths() -> dict[str, float]:
    """Bytes a second of each way to use memory."""
    source, target = (torch.rand(_BYTES // 4, device="cuda") for _ in range(2))
    return {
        "copy": 2 * _BYTES / seconds(lambda: target.copy_(source)),
        "read": _BYTES / seconds(source.sum),
        "write": _BYTES / seconds(lambda: target.fill_(1.0)),
    }


def products() -> dict[str, float]:
    """FLOP/s of each arithmetic."""
    found = {}
    for name, dtype, allows_tf32 in (
        ("float32", torch.float32, False),
        ("tf32", torch.float32, True),
        ("float16", torch.float16, False),
        ("bfloat16", torch.bfloat16, False),
        ("float64", torch.float64, False),
    ):
        torch.backends.cuda.matmul.allow_tf32 = allows_tf32
        a, b = (torch.rand(_SIDE, _SIDE, device="cuda", dtype=dtype) for _ in range(2))
        found[name] = 2 * _SIDE**3 / seconds(lambda a=a, b=b: a @ b)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=Path, default=Path("card_rates.json"))
    options = parser.parse_args()
    found = {"provenance": provenance(), "bandwidth": bandwidths(), "flops": products()}
    options.output.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
