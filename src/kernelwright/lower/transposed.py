"""Values under their own names and in their own shapes whose neighbours lie along the channels, and
views of them."""

from dataclasses import replace

from kernelwright.ir.graph import Node
from kernelwright.ir.kinds import DiagEmbed, Flip, Reshape, Roll, View
from kernelwright.ir.layouts import is_view, layout_of
from kernelwright.ir.types import Layout
from kernelwright.lower.memory_order import Nodes


class TransposedValues:
    """Such nodes of the new graph, and copies in PyTorch's order for what reads them so."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._layouts: dict[str, Layout | None] = {}
        """Their layouts, where these are known."""
        self._first: dict[str, str] = {}
        """Those that lie as PyTorch would have them, copied or anyway, by the original's name."""

    def __contains__(self, name: object) -> bool:
        return name in self._layouts

    def add(self, name: str, layout: Layout | None, *, lies_first: bool = False) -> None:
        """Note a value; `lies_first`: PyTorch would have it in memory so, too."""
        self._layouts[name] = layout
        if lies_first:
            self._first[name] = name

    def first_of(self, name: str) -> str:
        """The value as PyTorch would have it in memory."""
        if name not in self._first:
            node = self._nodes.made[name]
            self._first[name] = self._nodes.copy(f"{name}_channels_first", name, node)
        return self._first[name]

    def has_view(self, node: Node) -> bool:
        """Whether the node is a view of such a value where it lies; then it is in the graph."""
        if not isinstance(node.kind, View):
            return False
        (name,) = node.inputs
        made, how, known = self._nodes.made[name], node.kind.map, self._layouts[name]
        if known is None or isinstance(how, DiagEmbed | Flip | Roll):
            return False
        source = replace(made, type=replace(made.tensor, layout=known))
        if isinstance(how, Reshape) and not is_view(source.tensor, node.tensor.shape):
            return False
        self._nodes.add(node)
        layout = layout_of(node, [source])
        if layout is not None:
            self.add(node.name, layout)
        return True
