"""Every problem of the corpus: the graph computes what the module computes, at any size."""

from collections.abc import Callable
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map

from kernelwright.capture import capture, capture_module
from kernelwright.ir.graph import Graph
from kernelwright.ir.types import TensorType
from kernelwright.machine import H200
from kernelwright.problem import Instance, Problem, instantiate, load_problem, resize
from kernelwright.schedule import Choices, Library, plan_graph

CORPUS = sorted((Path(__file__).parent / "corpus").glob("*.py"))
NAMES = [path.stem for path in CORPUS]

# Their sizes are held fast: by a tensor that the constructor makes.
STATIC = ("attributes",)

# A few roundings. PyTorch's CPU kernels round a number that is added to a 16-bit tensor to 16 bits
# first; its CUDA kernels do not, nor does the graph.
TOLERANCES = {torch.float16: 4e-3, torch.bfloat16: 3e-2}

Run = Callable[..., Any]


@cache
def problem(name: str) -> Problem:
    return load_problem(Path(__file__).parent / "corpus" / f"{name}.py")


@cache
def graph(name: str) -> Graph:
    return capture(problem(name))


def make(problem: Problem) -> Instance:
    torch.manual_seed(1)
    return instantiate(problem)


def compare(run: Run, graph: Graph, module: nn.Module, inputs: tuple[Any, ...]) -> None:
    """The same results, the same changes to buffers and arguments, the same random numbers."""
    ours, theirs = deepcopy(module), deepcopy(module)
    our_inputs, their_inputs = copied(inputs), copied(inputs)
    with torch.no_grad():
        torch.manual_seed(2)
        actual = run(graph, ours, our_inputs, {})
        our_random = torch.rand(3)
        torch.manual_seed(2)
        expected = theirs(*their_inputs)
    assert torch.equal(our_random, torch.rand(3)), "drew other random numbers"
    assert tree_map(type, actual) == tree_map(type, expected)
    same = tree_leaves([actual, dict(ours.state_dict()), our_inputs])
    for a, b in zip(
        same, tree_leaves([expected, dict(theirs.state_dict()), their_inputs]), strict=True
    ):
        tolerance = TOLERANCES.get(getattr(b, "dtype", None), 2e-5)
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)


def copied(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    return tree_map(lambda x: x.clone() if isinstance(x, torch.Tensor) else x, inputs)


@pytest.mark.parametrize("name", NAMES)
def test_training(name: str, run: Run) -> None:
    instance = make(problem(name))
    assert instance.module.training
    compare(run, graph(name), instance.module, instance.inputs)


@pytest.mark.parametrize("name", NAMES)
def test_evaluation(name: str, run: Run) -> None:
    instance = make(problem(name))
    instance.module.eval()
    if not _asks_for_its_mode(instance):
        return  # its graph is that of test_training, node by node
    evaluated = capture_module(deepcopy(instance.module), copied(instance.inputs))
    compare(run, evaluated, instance.module, instance.inputs)


@pytest.mark.parametrize("name", NAMES)
def test_other_sizes(name: str, run: Run) -> None:
    if name in STATIC:
        assert not graph(name).symbols
        return
    larger = resized(name, lambda value: value + 4)
    smaller = resized(name, lambda value: value - 1)
    assert larger.source != smaller.source, "no size is free"
    for other in (larger, smaller):
        instance = make(other)
        compare(run, graph(name), instance.module, instance.inputs)


@pytest.mark.parametrize("name", NAMES)
def test_every_product_as_the_user_called_it(name: str, run: Run) -> None:
    nodes = graph(name).nodes
    calls = {node.part_of.result: "asked for" for node in nodes if node.part_of is not None}
    instance = make(problem(name))
    planned = plan_graph(graph(name), H200, Library.NEVER, Choices(left=calls))
    assert planned.choices.left == calls
    assert all(node.part_of is None for node in planned.rewritten.graph.nodes)
    compare(run, planned.rewritten.graph, instance.module, instance.inputs)


def _asks_for_its_mode(instance: Instance) -> bool:
    """Whether any part of the module reads `training`: to capture the others again adds nothing."""
    module = deepcopy(instance.module)
    for part in module.modules():
        del part.__dict__["training"]
    try:
        with torch.no_grad():
            module(*copied(instance.inputs))
    except AttributeError as error:
        assert "training" in str(error), error
        return True
    return False


def resized(name: str, change: Callable[[int], int]) -> Problem:
    """The problem with every constant changed that is a size of its inputs alone, and free."""
    result = problem(name)
    arguments = make(result).init_args
    for constant, value in result.constants.items():
        candidate = resize(result, {constant: change(value)})
        try:
            instance = make(candidate)
            instance.module(*copied(instance.inputs))
        except Exception:  # the problem itself does not work at this size
            continue
        if instance.init_args == arguments and takes(graph(name), instance.inputs):
            result = candidate
    return result


def takes(graph: Graph, inputs: tuple[Any, ...]) -> bool:
    """True if the inputs have the sizes that the graph holds fast."""
    tensors = [leaf for leaf in tree_leaves(inputs) if isinstance(leaf, torch.Tensor)]
    types = [node.type for node in graph.inputs if isinstance(node.type, TensorType)]
    return all(
        not dim.is_static or dim.hint == size
        for tensor, kind in zip(tensors, types, strict=True)
        for dim, size in zip(kind.shape, tensor.shape, strict=True)
    )
