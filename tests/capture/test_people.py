"""Modules as people write them: what PyTorch lets them do, graph and plan against an eager call."""

import sys
from pathlib import Path

import pytest
import torch

from kernelwright.checking import check_plan
from kernelwright.machine import H200
from kernelwright.module import capture_in_memory
from kernelwright.schedule import plan_graph

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from capture_corpus.of_people import MODULES

NAMES = (
    *("decoder with a cache", "mixture of experts", "tied language model", "linear attention"),
    *("modulated convolution", "graph layer", "nearest neighbours", "coupling of a flow"),
    *("autograd function", "checkpoint", "autocast", "vmap", "hook of a child"),
    *("parametrised weight", "orthogonal weight", "GAN discriminator, spectral norm"),
)


@pytest.mark.parametrize("name", NAMES)
def test_graph_and_plan_compute_what_the_module_does(name: str) -> None:
    torch.manual_seed(0)
    module, args, kwargs = MODULES[name]()
    with torch.no_grad():
        graph = capture_in_memory(module, args, kwargs)
        plan = plan_graph(graph, H200).plan
        checks = check_plan(module, args, kwargs, graph, plan)
    assert [check.difference for check in checks if not check.agrees] == []
