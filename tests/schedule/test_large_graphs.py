"""Planning is linear in the graph: twice the nodes take hardly more than twice the work."""

import cProfile
import pstats
import runpy
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from kernelwright.ir.graph import Graph
from kernelwright.machine import H200
from kernelwright.schedule import plan_graph

_GRAPHS = Path(__file__).parents[2] / "benchmarks" / "large_graphs.py"
FAMILIES: Mapping[str, Callable[[int], Graph]] = runpy.run_path(str(_GRAPHS))["FAMILIES"]


def _calls(graph: Graph) -> int:
    """Calls of functions in a plan's making, the same on any machine."""
    profile = cProfile.Profile()
    profile.runcall(plan_graph, graph, H200)
    return int(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]


@pytest.mark.parametrize("family", FAMILIES)
def test_twice_the_nodes_take_hardly_more_than_twice_the_calls(family: str) -> None:
    make = FAMILIES[family]
    plan_graph(make(150), H200)  # products of these sizes are ranked once for all
    one, two = make(500), make(1000)
    assert _calls(two) / _calls(one) < 1.1 * len(two.nodes) / len(one.nodes)
