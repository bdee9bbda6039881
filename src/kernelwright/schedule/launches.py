"""Launches of kernels: what all families of them have in common."""

from collections.abc import Sequence
from typing import TypedDict

from kernelwright.ir.graph import Node
from kernelwright.ir.plan import Kernel, Launch
from kernelwright.schedule.naming import merge_operators


class Labels(TypedDict):
    """What people call a kernel; its name comes when the whole plan is known."""

    name: str
    operators: tuple[str, ...]
    sources: tuple[str, ...]


def labels(members: Sequence[Node]) -> Labels:
    """Labels of a kernel that computes these nodes, in the order of the graph."""
    return Labels(
        name="",
        operators=merge_operators(*(node.operators for node in members)),
        sources=tuple(dict.fromkeys(node.source for node in members if node.source)),
    )


def launched(kernel: Kernel, results: Sequence[Node], inputs: Sequence[Node]) -> Launch:
    """The launch of a kernel that reads and writes the values of these nodes."""
    return Launch(
        results=tuple(node.name for node in results),
        kernel=kernel,
        inputs=tuple(node.name for node in inputs),
    )
