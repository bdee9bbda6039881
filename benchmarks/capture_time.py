"""How long capture takes beside torch.export alone, as modules grow, in seconds of a core.

    python benchmarks/capture_time.py --output benchmarks/results/capture_time.json

Stacks of one block, repeated. torch.export gets what capture gives it: open sizes wherever the
module allows. Seconds are processor time, the least of three runs after one that warms up: other
work on the machine adds little to that. Needs no GPU.
"""

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from provenance import provenance
from torch import nn
from torch.export import Dim, export

from kernelwright.capture import capture_module
from kernelwright.ir.graph import Graph

_SMALL = (1, 4, 16, 64)
"""Blocks of a stack whose block is a few nodes."""
_LARGE = (1, 2, 4)
"""Blocks of a stack whose block is fifty."""
_RUNS = 3


def _perceptron(blocks: int) -> nn.Module:
    return nn.Sequential(*(_layers(nn.Linear(32, 32), nn.GELU()) for _ in range(blocks)))


def _convolutions(blocks: int) -> nn.Module:
    one = (nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
    return nn.Sequential(*(_layers(*one) for _ in range(blocks))).eval()


def _transformer(blocks: int) -> nn.Module:
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    return nn.TransformerEncoder(layer, blocks, enable_nested_tensor=False)


def _layers(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(*layers)


FAMILIES: Mapping[str, tuple[Callable[[int], nn.Module], tuple[int, ...], tuple[int, ...]]] = {
    "linear, gelu": (_perceptron, (16, 32), _SMALL),
    "convolution, norm, relu (evaluation)": (_convolutions, (2, 8, 16, 16), _SMALL),
    "transformer encoder (evaluation)": (lambda it: _transformer(it).eval(), (2, 10, 32), _LARGE),
    "transformer encoder (training)": (_transformer, (2, 10, 32), _LARGE),
}
"""What makes a stack of so many blocks, the shape of its argument, and how many blocks."""


def main() -> None:
    """Measure all and write one JSON file."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    rows = []
    for row in _rows():
        rows.append(row)
        print(row, flush=True)
        report = {"provenance": provenance(), "runs": _RUNS, "rows": rows}
        arguments.output.write_text(json.dumps(report, indent=1) + "\n")


def _rows() -> Iterator[dict[str, Any]]:
    for name, (make, shape, sizes_of_stacks) in FAMILIES.items():
        for blocks in sizes_of_stacks:
            module, x = make(blocks), torch.rand(shape)
            sizes = ({place: Dim.AUTO for place in range(x.dim())},)

            def exported(module: nn.Module = module, x: Any = x, sizes: Any = sizes) -> object:
                return export(module, (x,), dynamic_shapes=sizes, strict=False)

            def captured(module: nn.Module = module, x: Any = x) -> Graph:
                return capture_module(module, [x])

            alone, whole = _seconds(exported), _seconds(captured)
            yield {
                "stack": name,
                "blocks": blocks,
                "nodes": len(captured().nodes),
                "export_seconds": round(alone, 3),
                "capture_seconds": round(whole, 3),
                "ratio": round(whole / alone, 2),
            }


def _seconds(work: Callable[[], object]) -> float:
    """The least processor time of a call, after one that warms up."""
    work()
    found = []
    for _ in range(_RUNS):
        start = time.process_time()
        work()
        found.append(time.process_time() - start)
    return min(found)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    main()
